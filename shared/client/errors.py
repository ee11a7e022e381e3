"""What can go wrong between a client and the server, as sentences for a person."""


class ClientError(Exception):
    """Something the person can act on; its text says what was given, what is right, what to do."""


class NoServer(ClientError):
    """No server is known, or it does not answer."""


class ServerGone(NoServer):
    """It answered before, and did not come back while it was waited for. What it was asked for goes on without it."""


class Unusable(ClientError):
    """What was given cannot be used as it is; nothing was sent."""


class Refused(ClientError):
    """The server understood and refused (RFC 9457 problem). `status` is the HTTP status, `title` the kind."""

    def __init__(self, status: int, title: str, detail: str) -> None:
        super().__init__(detail or title)
        self.status = status
        self.title = title
        self.detail = detail


class Unavailable(ClientError):
    """The server answers, but a service behind it does not: try again."""
