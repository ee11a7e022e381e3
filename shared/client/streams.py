"""Events and logs as they come, through restarts of the server: a stream that ends before what it tells of has ended is
taken up where it ended, whether the server closed it well, as it does before it stops, or it broke."""

from collections.abc import Iterator
from typing import Any, Final

from shared.client.connection import Connection
from shared.client.errors import NoServer, Unavailable
from shared.client.outage import Outage
from shared.client.sse import EventReader, ServerEvent
from shared.lifecycle.states import TERMINAL, State

_ENDS: Final = frozenset({*(state.lower() for state in TERMINAL), "deleted"})
_NO_CHANGE: Final = frozenset({"evidence", "reset"})


class Streams(Connection):
    """A connection that streams are read from."""

    def events(self, *, job: str | None = None, after: str | None = None) -> Iterator[ServerEvent]:
        """Each event after the id `after` once: of a job until it has ended, else of the tenant for ever."""
        path = "/v1/events" if job is None else f"/v1/jobs/{job}/events"
        reader, outage, ended = EventReader(after), Outage(), False
        while True:
            headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": reader.last_id} if reader.last_id else {})
            broken: NoServer | Unavailable | None = None
            try:
                with self._stream("GET", path, headers=headers, read_seconds=60) as response:
                    outage.opened()
                    for event in reader.read(response.iter_lines()):
                        outage.over()
                        ended = ended if event.event in _NO_CHANGE else event.event in _ENDS
                        yield event
            except (NoServer, Unavailable) as error:
                broken = error
            if job is not None and (ended or (broken is None and self._ended_with(job, reader.last_id))):
                return
            self._ride_out(outage, broken or NoServer(f"{self.endpoint.url} ended the stream {path}"))

    def logs(
        self, job_id: str, *, stream: str = "stdout", follow: bool = False, attempt: int | None = None
    ) -> Iterator[bytes]:
        """The bytes of a log in chunks, of the current attempt where none is named; with `follow` until the job has
        ended, one attempt after the other, or until the named attempt has."""
        if not follow:
            yield from self._log_so_far(job_id, stream, attempt)
        elif attempt is not None:
            yield from self._log_until_its_end(job_id, stream, attempt)
        else:
            newest: int | None = self._look(job_id)["attempt"]
            while newest is not None:
                yield from self._log_until_its_end(job_id, stream, newest)
                newest = self._attempt_after(job_id, newest)

    def _log_so_far(self, job_id: str, stream: str, attempt: int | None) -> Iterator[bytes]:
        params = {"stream": stream, "follow": "false"} | ({} if attempt is None else {"attempt": str(attempt)})
        offset = 0
        while True:
            asked = params | {"offset": str(offset)}
            with self._stream("GET", f"/v1/jobs/{job_id}/logs", params=asked, read_seconds=None) as response:
                received = 0
                for chunk in response.iter_raw():
                    received += len(chunk)
                    yield chunk
            offset += received
            if received == 0 or offset >= int(response.headers.get("Tidegate-Size", offset)):
                return

    def _log_until_its_end(self, job_id: str, stream: str, attempt: int) -> Iterator[bytes]:
        """Asked for once more after the attempt was seen to have ended: the server may have stopped before its end."""
        params = {"stream": stream, "follow": "true", "attempt": str(attempt)}
        offset, outage, sealed = 0, Outage(), False
        while True:
            asked = params | {"offset": str(offset)}
            broken: NoServer | Unavailable
            try:
                with self._stream("GET", f"/v1/jobs/{job_id}/logs", params=asked, read_seconds=None) as response:
                    outage.opened()
                    for chunk in response.iter_raw():
                        outage.over()
                        offset += len(chunk)
                        yield chunk
                if sealed and offset >= int(response.headers.get("Tidegate-Size", 0)):
                    return
                broken = NoServer(f"{self.endpoint.url} ended the log of {job_id}")
            except (NoServer, Unavailable) as error:
                broken = error
            before, sealed = sealed, sealed or _is_sealed(self._look(job_id), attempt)
            if before or not sealed:
                self._ride_out(outage, broken)

    def _attempt_after(self, job_id: str, attempt: int) -> int | None:
        """The attempt after one that is over; None where the job ends with it."""
        while (job := self._look(job_id))["attempt"] <= attempt:
            if job["state"] in TERMINAL:
                return None
            for _ in self.events(job=job_id, after=f"{job['epoch']}-{job['seq']}"):
                if self._look(job_id)["attempt"] > attempt:
                    break
        return attempt + 1

    def _ended_with(self, job_id: str, event_id: str | None) -> bool:
        """Whether the job has ended, with nothing after that event."""
        job = self._look(job_id)
        return job["state"] in TERMINAL and _position(event_id) >= (job["epoch"], job["seq"])

    def _look(self, job_id: str) -> dict[str, Any]:
        job: dict[str, Any] = self.call("GET", f"/v1/jobs/{job_id}", patient=True)
        return job


def _is_sealed(job: dict[str, Any], attempt: int) -> bool:
    """Whether nothing more is written in that attempt."""
    return bool(job["attempt"] > attempt or job["state"] == State.PAUSED or job["state"] in TERMINAL)


def _position(event_id: str | None) -> tuple[int, int]:
    """The epoch and the number that an event's id consists of; that of nothing is before all."""
    epoch, _, number = (event_id or "0-0").partition("-")
    return int(epoch), int(number)
