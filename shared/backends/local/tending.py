"""What the host owes those it does not supervise itself: noticing their ends, and ending what dead supervisors left."""

from __future__ import annotations

import os

from shared.backends.local import killing, layout, locks, processes, sweeping
from shared.backends.local.complaints import complain
from shared.backends.local.files import read_record
from shared.backends.local.launching import Launching


class Tending:
    """Follows every submission that has not ended, of this host and of those before it."""

    def __init__(self, root: str, launching: Launching) -> None:
        self.root, self.launching = root, launching
        self.pidfds: dict[int, str] = {}
        self.unsettled: set[str] = set()
        self._boot_id = processes.boot_id()

    def take_over(self) -> None:
        """Read the records once: whatever has no end is followed until it has, or until nothing of it is left."""
        kinds: dict[str, set[str]] = {}
        for name in os.listdir(f"{self.root}/{layout.OPEN}"):
            split = layout.split_record_name(name)
            if split is not None:
                kinds.setdefault(split[0], set()).add(split[1])
        for submission, present in kinds.items():
            if layout.EXIT not in present and present & {layout.SPEC, layout.CLAIM, layout.STARTED}:
                spec = read_record(layout.record_path(self.root, submission, layout.SPEC)) or {}
                self.launching.adopt(submission, spec.get("devices"))
                self.unsettled.add(submission)

    def reap(self) -> None:
        """Collect ended children; a supervisor that ended without a record leaves its submission unsettled."""
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            submission = self.launching.crew.ended(pid)
            if submission is not None:
                self._look_at(submission)

    def collect(self) -> None:
        """Hear of ends from supervisors that live on and wait for more."""
        for submission in self.launching.crew.collect():
            self._look_at(submission)

    def supervisor_ended(self, pidfd: int) -> None:
        """A supervisor that an earlier host forked is gone."""
        os.close(pidfd)
        self._look_at(self.pidfds.pop(pidfd))

    def settle(self) -> None:
        """One look at everything unsettled. Cheap when nothing is; call it again soon while something is."""
        if not self.unsettled:
            return
        self._kill_strays()
        for submission in list(self.unsettled):
            if self._has_ended(submission):
                self.unsettled.discard(submission)
                self.launching.ended(submission)
                continue
            claim = read_record(layout.record_path(self.root, submission, layout.CLAIM))
            if claim is not None and processes.is_alive(claim.get("supervisor"), self._boot_id):
                if self._follow(submission, claim):
                    self.unsettled.discard(submission)
            elif not locks.is_held(layout.record_path(self.root, submission, layout.SPEC)):
                spec = read_record(layout.record_path(self.root, submission, layout.SPEC))
                killed = sweeping.sweep(submission, sweeping.tenant_uid(spec))
                if killed:
                    complain(f"{submission}: its supervisor is gone; killed {killed} processes that it left")
                else:
                    self.unsettled.discard(submission)
                    self.launching.ended(submission)

    def _look_at(self, submission: str) -> None:
        if self._has_ended(submission):
            self.launching.ended(submission)
        else:
            self.unsettled.add(submission)

    def _has_ended(self, submission: str) -> bool:
        """By the record of its end, which may have been released before this process came to look."""
        if read_record(layout.record_path(self.root, submission, layout.EXIT)) is not None:
            return True
        released = f"{self.root}/{layout.RELEASED}"
        return any(os.path.lexists(f"{released}/{day}/{submission}.{layout.EXIT}.json") for day in os.listdir(released))

    def _follow(self, submission: str, claim: dict[str, object]) -> bool:
        supervisor = claim["supervisor"]
        assert isinstance(supervisor, dict)
        if supervisor["pid"] in self.launching.crew:
            return True
        try:
            pidfd = os.pidfd_open(supervisor["pid"])
        except OSError:
            return False
        if not processes.is_alive(supervisor, self._boot_id):
            os.close(pidfd)
            return False
        self.pidfds[pidfd] = submission
        return True

    def _kill_strays(self) -> None:
        """Orphans of a dead supervisor come to the host as the next subreaper: none of them lives on."""
        killing.kill_burst(self.reap, apart_from=self.launching.crew)
