"""One process per attempt: takes the claim, runs the command, stops it when asked, records how it ended.

A supervisor is forked by the host without importing anything and outlives it. Nothing that the command forks survives
the supervisor's record of the end: all of it is below this process (PR_SET_CHILD_SUBREAPER), and the record is written
when there is no child left.
"""

from __future__ import annotations

import os
import resource
import signal

from shared.backends.local import command, environment, killing, linux, oom, ownership, processes, sweeping, workstation
from shared.backends.local.deadlines import Deadlines, Due
from shared.backends.local.moments import monotonic_ms, now_ms
from shared.backends.local.orders import Order
from shared.backends.local.recording import SUPERVISOR_FAILED, Recorder
from shared.runtime import failpoints

REVOKED_CODE = 75
REVOKED = "revoked"
ATTEMPT_CLAIMED = "attempt_claimed"
STOPPED_BEFORE_START = "stopped_before_start"
TIME_LIMIT = "time_limit"
OUT_OF_MEMORY = "out_of_memory"

NUDGE = signal.SIGUSR1
LEAST_PATIENCE_SECONDS = 0.5
# A nudge tells of a stop request at once; this finds the request whose writer died before nudging.
_LOOK_SECONDS = 1.0
# A job whose processes end faster than they are waited for must not keep us from looking at the clock.
_REAPED_AT_ONCE = 1000
_WAKERS = {signal.SIGCHLD, NUDGE}
# Blocked like the wakers and never waited for: only a stop request ends a job. The command gets an empty mask.
_NOT_FOR_US = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


class Supervisor:
    """The life of one attempt, from claim to record of the end."""

    def __init__(self, root: str, order: Order, uid: int, gid: int, devices: list[int]) -> None:
        self.order, self.uid, self.gid, self.devices = order, uid, gid, devices
        self.records = Recorder(root, order, devices, self_reported=os.geteuid() == uid)
        self.pid = 0
        self.started_ms = self.started_monotonic_ms = self.ended_monotonic_ms = 0
        self.wait_status: int | None = None
        self.max_rss_bytes: int | None = None
        self.stop_seen_ms: int | None = None
        self.deadlines = Deadlines(0, None, 0, None)
        self.start_recorded = False
        self.may_go_on = False

    def live(self) -> None:
        """Returns when the end is recorded, or at once when another process runs this very submission."""
        failpoints.reach("claim.before")
        try:
            claimed = self.records.claim()
        except OSError as error:
            self._record_no_start(SUPERVISOR_FAILED, 126, f"the claim could not be written: {error}")
            return
        if not claimed:
            holder = self.records.claim_holder()
            if holder != self.order.submission:
                sentence = f"this attempt is claimed by {holder or 'what cannot be read'}: it runs once only"
                self._record_no_start(ATTEMPT_CLAIMED, REVOKED_CODE, sentence)
            return
        failpoints.reach("claim.after")
        if self.records.is_revoked():
            self._record_no_start(REVOKED, REVOKED_CODE, "the attempt was revoked before it started")
            return
        if self.records.stop_request() is not None:
            self.stop_seen_ms = now_ms()
            self._record_no_start(STOPPED_BEFORE_START, REVOKED_CODE, "it was stopped before it started")
            return
        try:
            self._start()
        except command.StartFailure as failure:
            self._record_no_start(failure.reason, failure.code, failure.sentence)
            return
        except OSError as error:
            self._record_no_start(SUPERVISOR_FAILED, 126, f"the command could not be prepared: {error}")
            return
        self._watch()
        self._end_descendants()
        self._record_exit()

    def give_up(self, problem: BaseException) -> None:
        """An error of ours: end everything and record that much."""
        self._end_descendants()
        if self.pid and self.wait_status is None:
            self.ended_monotonic_ms = monotonic_ms()
        said = failed(problem)
        self._record_end(reason=SUPERVISOR_FAILED, code=None, killed_by=None, sentence=said, ran=self.pid != 0)

    # Before the command

    def _start(self) -> None:
        order, here = self.order, self.records.attempt_directory
        directory = f"{here}/{order.directory}"
        as_root = os.geteuid() == 0
        ownership.make_private_directory(f"{here}/home", self.uid, self.gid)
        # The tenant owns the files, so that a command can reopen /dev/stdout, but cannot pass through the directory.
        ownership.make_private_directory(f"{here}/logs", os.geteuid(), os.getegid())
        output = [self._open_log(name) for name in ("stdout", "stderr")]
        if as_root and os.path.isdir(directory) and not os.path.islink(directory):
            ownership.give(directory, self.uid, self.gid)
        own = {
            "TIDEGATE_JOB_ID": order.job,
            "TIDEGATE_RUN_ID": order.run,
            "TIDEGATE_ATTEMPT": str(order.attempt),
            "TIDEGATE_TENANT": order.tenant,
            "TIDEGATE_OUTPUT_DIR": directory,
            sweeping.MARKER: order.submission,
        }
        if order.resumed:
            own[environment.RESUME] = "1"
        desk = workstation.prepare(self.records.root, order.submission, here) if order.workstation else None
        if desk is not None:
            own |= desk.variables()
        variables = environment.build(order.environment, own=own, attempt_directory=here, devices=self.devices)
        self.started_ms, self.started_monotonic_ms = now_ms(), monotonic_ms()
        self.deadlines = Deadlines(
            self.started_monotonic_ms,
            order.time_limit_seconds,
            int(order.stop_grace_seconds * 1000),
            None if order.warning_signal is None else order.warning_seconds,
        )
        user = (self.uid, self.gid) if as_root else None
        failpoints.reach("start.before")
        self.pid = command.start(order.command, variables, directory, user, output)
        for fd in output:
            os.close(fd)
        failpoints.reach("start.after")
        self.start_recorded = self.records.start(self.pid, self.started_ms)
        if desk is not None:
            workstation.watch(desk, self.started_ms, self.devices)

    def _open_log(self, name: str) -> int:
        path = f"{self.records.attempt_directory}/logs/{name}"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        if os.geteuid() == 0:
            os.fchown(fd, self.uid, self.gid)
        return fd

    # While it runs

    def _watch(self) -> None:
        self._heed_stop()
        while self.wait_status is None:
            signal.sigtimedwait(_WAKERS, self._patience())
            self._reap()
            if self.wait_status is None:
                self.start_recorded = self.start_recorded or self.records.start(self.pid, self.started_ms)
                self._heed_stop()
                self._heed_clock()

    def _patience(self) -> float:
        due = self.deadlines.next_ms()
        until = _LOOK_SECONDS if due is None else min(_LOOK_SECONDS, (due - monotonic_ms()) / 1000)
        return max(until, 0.001)

    def _heed_stop(self) -> None:
        request = self.records.stop_request()
        if request is None:
            return
        signal_number, grace_ms, pausing = _asked(request)
        # After the limit the end is the limit's, however soon it is wanted now.
        if self.stop_seen_ms is None and not self.deadlines.over_limit:
            failpoints.reach("stop.before")
            self.stop_seen_ms = now_ms()
            self.records.stop_seen(self.stop_seen_ms)
            failpoints.reach("stop.after")
            self._reap()
            if self.wait_status is not None:
                self.stop_seen_ms = None  # it had ended by itself before any signal was sent
                return
        if self.deadlines.ask(monotonic_ms(), grace_ms, pausing=pausing):
            self._tell(signal_number if grace_ms > 0 else signal.SIGKILL)

    def _heed_clock(self) -> None:
        match self.deadlines.due(monotonic_ms()):
            case Due.WARN:
                self._tell(self.order.warning_signal or signal.SIGTERM)
            case Due.LIMIT:
                self._tell(signal.SIGTERM if self.deadlines.limit_grace_ms > 0 else signal.SIGKILL)
            case Due.KILL:
                self._tell(signal.SIGKILL)

    def _tell(self, signal_number: int) -> None:
        """Signal everything of the job, whatever its session."""
        if signal_number == signal.SIGKILL:
            killing.kill_below(os.getpid())  # what escapes by forking is ended after the command
        else:
            processes.signal_all(processes.descendants(os.getpid()), self.pid, signal_number)

    def _reap(self) -> None:
        for _ in range(_REAPED_AT_ONCE):
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.pid and self.wait_status is None:
                self.ended_monotonic_ms = monotonic_ms()
                self.wait_status = status
                self.max_rss_bytes = usage.ru_maxrss * 1024

    # The end

    def _end_descendants(self) -> None:
        """Returns when this process has no child left."""
        killing.end_children(self._reap)

    def _record_exit(self) -> None:
        assert self.wait_status is not None
        code = killed_by = reason = sentence = None
        if os.WIFSIGNALED(self.wait_status):
            killed_by = os.WTERMSIG(self.wait_status)
        else:
            code = os.WEXITSTATUS(self.wait_status)
        if self.deadlines.over_limit:
            reason = TIME_LIMIT
            sentence = f"it ran longer than its time limit of {self.order.time_limit_seconds} s"
        elif killed_by == signal.SIGKILL and oom.was_killed_for_memory(self.pid, self.started_monotonic_ms):
            reason = OUT_OF_MEMORY
            sentence = "the kernel killed it because the machine or its group ran out of memory"
        self._record_end(reason=reason, code=code, killed_by=killed_by, sentence=sentence, ran=True)

    def _record_no_start(self, reason: str, code: int, sentence: str) -> None:
        self._end_descendants()
        self._record_end(reason=reason, code=code, killed_by=None, sentence=sentence, ran=False)

    def _record_end(
        self, *, reason: str | None, code: int | None, killed_by: int | None, sentence: str | None, ran: bool
    ) -> None:
        if self.order.workstation:
            workstation.clear(self.records.root, self.order.submission)
        unasked = self.stop_seen_ms is None and not self.records.is_stop_asked()
        looked_ms = monotonic_ms()
        failpoints.reach("exit.before")
        self.records.end(
            ran=ran,
            code=code,
            killed_by=killed_by,
            reason=reason,
            sentence=sentence,
            started_ms=self.started_ms,
            duration_ms=max(0, self.ended_monotonic_ms - self.started_monotonic_ms),
            stop_seen_ms=self.stop_seen_ms,
            max_rss_bytes=self.max_rss_bytes,
        )
        # Whoever kills a supervisor because it records no end has asked it to stop LEAST_PATIENCE before or earlier. So
        # where nobody had asked shortly before the record was there, nobody means to kill this one.
        soon = monotonic_ms() - looked_ms < LEAST_PATIENCE_SECONDS * 1000 / 2
        self.may_go_on = ran and reason is None and unasked and soon and not self.order.workstation
        failpoints.reach("exit.after")


def failed(problem: BaseException) -> str:
    """The sentence about an error of ours."""
    return f"the supervisor failed, please report this: {problem!r}"


def become_supervisor(*kept: int) -> None:
    """Turn a fresh fork of the host into a session of its own that holds no descriptor of the host's but `kept`."""
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAKERS | _NOT_FOR_US)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    linux.close_descriptors(*kept)
    # For the command, which inherits them: a fresh fork of this process would pay for each of them again.
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if os.geteuid() == 0:
        os.setgroups([])
    linux.forbid_new_privileges()
    linux.become_subreaper()
    linux.name_process(sweeping.SUPERVISOR_NAME)


def _asked(request: dict[str, object]) -> tuple[int, int, bool]:
    """(signal, grace in milliseconds, whether it is a pause) of a request; what is not sensible in it is read as a stop
    by TERM without grace."""
    signal_number, grace = request.get("signal"), request.get("grace_seconds")
    if type(signal_number) is not int or not 0 < signal_number < signal.NSIG:
        signal_number = int(signal.SIGTERM)
    if not isinstance(grace, (int, float)) or not 0 <= grace <= 31_536_000:
        grace = 0
    return signal_number, int(grace * 1000), request.get("pausing") is True
