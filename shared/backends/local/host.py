"""The local backend's host: a small process outside all services that forks one supervisor per attempt.

    python -m shared.backends.local.host --root DIR [--virtual-gpus N] [--slots N] [--hide DIR]...

It takes JSON lines on `<root>/host.sock` (mode 0600), holds `<root>/host.lock` while it lives, and outlives every
service. It keeps nothing that is not on disk: when it is killed its supervisors go on, and the next host reads on.
It imports little on purpose: supervisors are forks of it, and share its memory.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import struct
import sys

from shared.backends.local import layout, linux, locks, processes, view
from shared.backends.local.complaints import complain
from shared.backends.local.devices import Devices, find_devices
from shared.backends.local.files import write_record
from shared.backends.local.launching import BUSY, Answer, Launching
from shared.backends.local.moments import now_ms, utc
from shared.backends.local.options import Options, parse, refusal
from shared.backends.local.tending import Tending
from shared.runtime import failpoints

ANOTHER_HOST = 75
_LINE_BYTES_MAX = 64 << 20
_SETTLE_SECONDS = 0.05
_WAITING_SECONDS = 1.0
_IDLE_SECONDS = 10.0
_SEND_SECONDS = 5.0


class Host:
    """The loop: connections, ended children, and submissions that have to be settled."""

    def __init__(self, root: str, lock: int, devices: Devices, slots: int, isolation: str) -> None:
        self._root, self._lock = root, lock
        self.launching = Launching(root, devices, slots)
        self.tending = Tending(root, self.launching)
        self.record: dict[str, object] = {
            "host": processes.identity(os.getpid()),
            "started_at": utc(now_ms()),
            "gpus_total": devices.total,
            "virtual": devices.virtual,
            "slots_total": slots,
            "isolation": isolation,
        }
        self._poll = select.poll()
        self._buffers: dict[int, tuple[socket.socket, bytearray]] = {}
        self._listener = _listen(root)
        self._wakeup, self._stopping = _wake_on_signals(), False
        self.tending.take_over()
        write_record(f"{root}/{layout.HOST_RECORD}", self.record)

    def serve(self) -> None:
        """Until SIGTERM or SIGINT, or until somebody has removed the root."""
        self._poll.register(self._listener, select.POLLIN)
        self._poll.register(self._wakeup, select.POLLIN)
        crew = self.launching.crew
        self._poll.register(crew, select.POLLIN)
        gc.collect()
        gc.freeze()  # forks share what is never touched again
        watched: set[int] = set()
        while not self._stopping:
            self.tending.settle()
            for pidfd in self.tending.pidfds.keys() - watched:
                self._poll.register(pidfd, select.POLLIN)
            watched = set(self.tending.pidfds)
            crew.let_go()
            ready = self._poll.poll(1000 * self._patience())
            if not ready and self._root_is_gone():
                complain(f"{self._root} is gone: this host ends")
                return
            for fd, _ in ready:
                if fd == self._listener.fileno():
                    self._accept()
                elif fd == self._wakeup:
                    self._stopping = not _only_children(os.read(fd, 4096)) or self._stopping
                elif fd == crew.fileno():
                    self.tending.collect()
                elif fd in self.tending.pidfds:
                    self._poll.unregister(fd)
                    watched.discard(fd)
                    self.tending.supervisor_ended(fd)
                else:
                    self._hear(fd)
            self.tending.reap()

    def _patience(self) -> float:
        if self.tending.unsettled:
            return _SETTLE_SECONDS
        return _WAITING_SECONDS if self.launching.crew.somebody_waits else _IDLE_SECONDS

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            complain(f"a connection could not be accepted: {error}")
            return
        _, uid, _ = struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid not in (0, os.geteuid()):
            connection.close()
            return
        self._buffers[connection.fileno()] = (connection, bytearray())
        self._poll.register(connection, select.POLLIN)

    def _hear(self, fd: int) -> None:
        connection, buffer = self._buffers[fd]
        try:
            part = connection.recv(1 << 20)
        except OSError:
            part = b""
        buffer += part
        if not part or len(buffer) > _LINE_BYTES_MAX:
            self._hang_up(fd)
            return
        while (end := buffer.find(b"\n")) >= 0:
            line = bytes(buffer[:end])
            del buffer[: end + 1]
            try:
                connection.settimeout(_SEND_SECONDS)
                connection.sendall(json.dumps(self._reply(line)).encode() + b"\n")
            except OSError:  # whoever asked is gone: what was launched is on record
                self._hang_up(fd)
                return

    def _hang_up(self, fd: int) -> None:
        connection, _ = self._buffers.pop(fd)
        self._poll.unregister(fd)
        connection.close()

    def _reply(self, line: bytes) -> Answer:
        try:
            request = json.loads(line)
            operation = request["op"]
            if operation == "launch":
                return {"answers": [self._launch(fields) for fields in request["launches"]]}
            if operation == "status":
                return self.record | {
                    "gpus_free": self.launching.devices.free,
                    "slots_free": max(0, self.launching.slots - len(self.launching.live)),
                    "live": len(self.launching.live),
                }
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            return {"error": f"not a request ({error!r}): send one JSON object a line, op launch or status"}
        return {"error": f"unknown op {operation!r}: send launch or status"}

    def _launch(self, fields: dict[str, object]) -> Answer:
        self.tending.collect()  # whoever is done with an early launch of a large batch takes a later one
        answer = self.launching.launch(fields)
        if answer["answer"] == BUSY:
            self.tending.reap()  # what has ended by now holds nothing any more
            answer = self.launching.launch(fields)
        return answer

    def _root_is_gone(self) -> bool:
        try:
            return not os.path.samestat(os.stat(f"{self._root}/{layout.HOST_LOCK}"), os.fstat(self._lock))
        except FileNotFoundError:
            return True


def _listen(root: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    directory = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    # A socket's path may have 107 bytes; this one is short however deep the root lies.
    path = f"/proc/self/fd/{directory}/{layout.SOCKET}"
    if os.path.lexists(path):
        os.unlink(path)
    before = os.umask(0o177)
    try:
        listener.bind(path)
    finally:
        os.umask(before)
        os.close(directory)
    listener.listen(128)
    return listener


def _wake_on_signals() -> int:
    """A descriptor that can be read after SIGCHLD, SIGTERM or SIGINT; each byte is the signal's number."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    return read_end


def _only_children(numbers: bytes) -> bool:
    return all(number == signal.SIGCHLD for number in numbers)


def main(arguments: list[str]) -> int:
    """Run until told to end; 75 when another host serves this root."""
    options: Options = parse(arguments)
    root = os.path.realpath(options.root)
    for path in options.hide:
        if not os.path.isdir(path) or f"{os.path.realpath(path)}/".startswith(f"{root}/"):
            raise refusal(f"--hide is {path!r}; give a directory that is there and is not the root or in it")
    failpoints.use(failpoints.RUNNER)
    layout.make_root(root)
    lock = os.open(f"{root}/{layout.HOST_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not locks.take(lock):
        complain(f"another host serves {root}: this one ends")
        return ANOTHER_HOST
    linux.become_subreaper()
    linux.name_process("tidegate-host")
    os.umask(0o077)
    os.chdir("/")  # a working directory would lead jobs past the view
    isolation, problem = view.isolate(root, options.hide)
    if problem:
        complain(problem)
    host = Host(root, lock, find_devices(options.virtual_gpus), options.slots, isolation)
    host.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
