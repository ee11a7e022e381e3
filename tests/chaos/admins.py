"""What an admin has put a stop to goes on only when an admin says so, read from the order of the log alone."""

from collections.abc import Iterator, Mapping

from shared.lifecycle.reasons import EndReason
from shared.lifecycle.states import ACTIVE, State
from tests.chaos.versions import Asked, Versions


def got_round(told: Mapping[str, Versions]) -> Iterator[str]:
    """Jobs that somebody else let go on, or that do not say who keeps them."""
    for job, versions in told.items():
        admin = _Admin()
        asked = {one.version: one for one in versions.asked}
        before = State.QUEUED
        for number, version in enumerate(versions.all):
            record = version.record
            if number in asked:
                yield from (f"{job}: version {record.seq}: {what}" for what in admin.hears(asked[number]))
            if before is State.QUEUED and record.state in ACTIVE and admin.keeps:
                yield f"{job}: it was let through as version {record.seq}, and an admin keeps it"
            if record.state is State.PAUSED and admin.paused != (record.end_reason is EndReason.PAUSED_BY_ADMIN):
                yield f"{job}: version {record.seq} is {record.end_reason}, and an admin's pause: {admin.paused}"
            before = record.state


class _Admin:
    """What the admin wants of one job."""

    def __init__(self) -> None:
        self.paused = self.holds = False

    @property
    def keeps(self) -> bool:
        return self.paused or self.holds

    def hears(self, asked: Asked) -> Iterator[str]:
        """What is wrong with a command that was done."""
        match asked.verb, asked.by_admin:
            case "pause", True:
                self.paused = True
            case "hold", True:
                self.holds = True
            case (("stop" | "retry"), _):
                self.paused, self.holds = False, self.keeps  # the pause goes on as a hold of the next attempt
            case "resume", by_admin:
                if self.paused and not by_admin:
                    yield "a user resumes what an admin has paused"
                self.paused = False
            case "release", by_admin:
                if self.holds and not by_admin:
                    yield "a user releases what an admin holds"
                self.holds = False
