"""The two families of failure, and the named failures of the stores."""


class Retryable(Exception):
    """It may work later: the message is redelivered with a growing delay, and parked after `MAX_DELIVER` tries."""


class Final(Exception):
    """It will never work: the message is parked at once, with this sentence."""


class Unavailable(Retryable):
    """Somebody else is away. This says nothing about the message, so it never counts towards parking it."""


class DatabaseUnavailable(Unavailable):
    """PostgreSQL cannot be reached, or went away during a transaction that is therefore not known to be committed."""


class BrokerUnavailable(Unavailable):
    """NATS cannot be reached, or did not acknowledge in time: the message may or may not be stored."""


class RpcUnavailable(Unavailable):
    """Nobody answers that query now."""


class RpcError(Exception):
    """The other service answered a query with an error; the text is its sentence."""


class PublishRefused(Exception):
    """The broker looked at the message and refused it (or the whole batch): sending the same again will not help."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class PublishDenied(PublishRefused):
    """This NATS user may not publish on that subject."""


class LoginRefused(Exception):
    """A store is there and does not let this service in: the login is wrong, which waiting does not mend."""


class SettingsError(Exception):
    """A setting is missing or wrong. The text names the variable, what was given (unless secret) and what is right."""
