"""Launching once: intent on disk first, then one forked supervisor that holds a lock for as long as it lives."""

from __future__ import annotations

import gc
import json
import os
import socket
from collections.abc import Mapping

from shared.backends.local import layout, locks, processes, uids
from shared.backends.local.crew import Crew, Task
from shared.backends.local.devices import Devices
from shared.backends.local.files import read_record, temporary_beside, write_whole
from shared.backends.local.moments import now_ms, utc
from shared.backends.local.orders import Order, OrderError
from shared.backends.local.serving import serve
from shared.backends.local.supervisor import become_supervisor
from shared.runtime import failpoints

Answer = dict[str, object]

ACCEPTED, ALREADY, BUSY, REFUSED = "accepted", "already", "busy", "refused"


class Launching:
    """The host's submissions that have not ended: what they hold, and which process supervises them."""

    def __init__(self, root: str, devices: Devices, slots: int) -> None:
        self.root, self.devices, self.slots = root, devices, slots
        self.crew = Crew()
        self.live: set[str] = set()
        self._boot_id = processes.boot_id()

    def launch(self, fields: Mapping[str, object]) -> Answer:
        """accepted | already | busy | refused. Whatever is asked twice runs once."""
        submission = fields.get("submission")
        try:
            return self._launch(Order(fields), fields)
        except OrderError as error:
            return _answer(submission, REFUSED, "invalid_order", str(error))
        except uids.UidTableError as error:
            return _answer(submission, REFUSED, "no_uid", str(error))
        except OSError as error:
            return _answer(submission, BUSY, "host_trouble", f"the local host could not record the launch: {error}")

    def _launch(self, order: Order, fields: Mapping[str, object]) -> Answer:
        submission = order.submission
        if self._has_begun(order):
            return _answer(submission, ALREADY, None, "this submission was launched before")
        if submission in self.live:
            return self._while_it_is_counted(submission)
        refusal = self._why_not(order)
        if refusal is not None:
            return refusal
        busy = self._why_later(order)
        if busy is not None:
            return busy
        uid = uids.uid_for(self.root, order.tenant)
        gid = uid if os.geteuid() == 0 else os.getegid()
        layout.make_attempt_directory(self.root, order.tenant, order.job, order.attempt, gid)
        devices = self.devices.take(submission, order.gpus)
        assert devices is not None
        try:
            spec_fd = self._record_intent(order, uid, devices)
            if spec_fd is None:
                self.devices.release(submission)
                return _answer(submission, ALREADY, None, "another process is about to run this submission")
            try:
                failpoints.reach("spawn.before")
                task = (fields, uid, gid, devices)
                if not self.crew.hand(submission, task, spec_fd):
                    self._fork(submission, task, spec_fd)
                failpoints.reach("spawn.after")
            finally:
                os.close(spec_fd)
        except OSError:
            self.devices.release(submission)
            raise
        self.live.add(submission)
        return _answer(submission, ACCEPTED, None, "a supervisor is taking the claim")

    def _while_it_is_counted(self, submission: str) -> Answer:
        """No claim yet: either its supervisor is about to take it, or it died before, and then it never ran."""
        if locks.is_held(layout.record_path(self.root, submission, layout.SPEC)):
            return _answer(submission, ALREADY, None, "its supervisor is about to take the claim")
        return _answer(submission, BUSY, "unsettled", "its supervisor died before the claim: ask again in a moment")

    def _has_begun(self, order: Order) -> bool:
        for kind in (layout.EXIT, layout.STARTED, layout.CLAIM):
            if os.path.lexists(layout.record_path(self.root, order.submission, kind)):
                return True
        claim = read_record(f"{order.attempt_directory(self.root)}/{layout.CLAIM}")
        if claim is not None and claim.get("submission") == order.submission:
            return True
        released = f"{self.root}/{layout.RELEASED}"
        return any(
            os.path.lexists(f"{released}/{date}/{order.submission}.{kind}.json")
            for date in os.listdir(released)
            for kind in (layout.EXIT, layout.CLAIM, layout.SPEC)
        )

    def _why_not(self, order: Order) -> Answer | None:
        here = order.attempt_directory(self.root)
        if os.path.lexists(f"{here}/{layout.CLAIM}"):
            sentence = f"attempt {order.attempt} of {order.job} is claimed by another submission: it runs once only"
            return _answer(order.submission, REFUSED, "attempt_claimed", sentence)
        if os.path.lexists(f"{here}/{layout.REVOKED}"):
            sentence = f"attempt {order.attempt} of {order.job} is revoked: launch the next attempt"
            return _answer(order.submission, REFUSED, "revoked", sentence)
        if order.not_after_ms is not None and now_ms() > order.not_after_ms:
            sentence = f"the launch came after its deadline {utc(order.not_after_ms)}: ask again with a new one"
            return _answer(order.submission, REFUSED, "too_late", sentence)
        if order.gpus > self.devices.total:
            sentence = f"needs {order.gpus} GPUs; this machine has {self.devices.total}"
            return _answer(order.submission, REFUSED, "too_many_gpus", sentence)
        return None

    def _why_later(self, order: Order) -> Answer | None:
        free = self.devices.free
        if order.gpus > free:
            sentence = f"needs {order.gpus} GPUs; {free} of {self.devices.total} are free"
            return _answer(order.submission, BUSY, "gpus", sentence)
        if len(self.live) >= self.slots:
            sentence = f"{len(self.live)} of {self.slots} jobs run here already"
            return _answer(order.submission, BUSY, "slots", sentence)
        return None

    def _record_intent(self, order: Order, uid: int, devices: list[int]) -> int | None:
        """Create the spec, locked before it can be seen; its descriptor, or None when a live process holds it.

        A spec that nobody holds, with no claim anywhere, never ran and never will: it gives way.
        """
        path = layout.record_path(self.root, order.submission, layout.SPEC)
        if os.path.lexists(path):
            if locks.is_held(path):
                return None
            os.unlink(path)
        record = order.as_record() | {
            "uid": uid,
            "devices": devices,
            "accepted_at": utc(now_ms()),
            "boot_id": self._boot_id,
        }
        temporary = temporary_beside(path)
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            locks.take(fd)
            write_whole(fd, json.dumps(record).encode())
            os.link(temporary, path)
        except OSError:
            os.close(fd)
            raise
        finally:
            os.unlink(temporary)
        return fd

    def _fork(self, submission: str, task: Task, spec_fd: int) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            pid = os.fork()
            if pid != 0:
                self.crew.join(pid, ours, submission)
                return
            status = 1
            try:
                gc.disable()
                become_supervisor(spec_fd, theirs.fileno(), *failpoints.descriptors())
                failpoints.become(failpoints.SUPERVISOR)
                serve(self.root, theirs, task, spec_fd)
                status = 0
            finally:
                os._exit(status)

    def ended(self, submission: str) -> None:
        """Nothing of it is left: what it held is free. Idempotent."""
        self.live.discard(submission)
        self.devices.release(submission)

    def adopt(self, submission: str, devices: object) -> None:
        """Count in what an earlier host launched and what has not ended."""
        self.live.add(submission)
        if isinstance(devices, list):
            self.devices.mark_held(submission, [index for index in devices if type(index) is int])


def _answer(submission: object, answer: str, reason: str | None, sentence: str) -> Answer:
    return {"submission": submission, "answer": answer, "reason": reason, "sentence": sentence}
