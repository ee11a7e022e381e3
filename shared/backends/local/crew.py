"""The host's supervisors: each has one attempt at a time, and may be handed a further one when it asks for it.

Starting a process anew for each attempt costs more than all that it does for it. A supervisor asks only when nothing is
left of its last attempt and nobody can still mean to end it (`serving`). Only the host lets one go that waits: so none
ends while an order is under way to it.
"""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Mapping

_IDLE_SECONDS = 1.0
# A message has to fit into the socket's buffer whole. A larger order gets a process of its own.
TASK_BYTES_MAX = 64 << 10
Task = tuple[Mapping[str, object], int, int, list[int]]
"""An order's fields, uid, gid, devices."""


class Member:
    """One supervisor: its process, the host's end of its channel, and what it supervises."""

    def __init__(self, pid: int, channel: socket.socket, submission: str) -> None:
        self.pid, self.channel = pid, channel
        self.submission: str | None = submission
        self.idle_since = 0.0


class Crew:
    """Every supervisor that this host has forked and that has not ended."""

    def __init__(self) -> None:
        self._members: dict[int, Member] = {}
        self._by_descriptor: dict[int, Member] = {}
        self._idle: list[Member] = []
        self._epoll = select.epoll()

    def __contains__(self, pid: object) -> bool:
        return pid in self._members

    def fileno(self) -> int:
        """Can be read when `collect` has something to do."""
        return self._epoll.fileno()

    @property
    def somebody_waits(self) -> bool:
        """Is one idle, so that `let_go` is to be called in a while?"""
        return bool(self._idle)

    def join(self, pid: int, channel: socket.socket, submission: str) -> None:
        """A new one, with its first attempt."""
        channel.setblocking(False)
        member = self._members[pid] = Member(pid, channel, submission)
        self._by_descriptor[channel.fileno()] = member
        self._epoll.register(channel, select.EPOLLIN)

    def hand(self, submission: str, task: Task, spec_fd: int) -> bool:
        """Give the attempt, and with it the lock on its spec, to one that waits. False: there is none for it."""
        message = json.dumps(task).encode() if self._idle else b""
        while self._idle and len(message) <= TASK_BYTES_MAX:
            member = self._idle.pop()
            try:
                socket.send_fds(member.channel, [message], [spec_fd])
            except OSError:  # it was killed while it waited
                self._hang_up(member)
                continue
            member.submission = submission
            return True
        return False

    def collect(self) -> list[str]:
        """Hear who asks for more; the submissions that they are done with."""
        done = []
        for descriptor, _ in self._epoll.poll(0):
            member = self._by_descriptor[descriptor]
            try:
                asked = member.channel.recv(1)
            except OSError:
                asked = b""
            if not asked:
                self._hang_up(member)
            elif member.submission is not None:
                done.append(member.submission)
                member.submission, member.idle_since = None, time.monotonic()
                self._idle.append(member)
        return done

    def let_go(self) -> None:
        """End those that have waited for a while: what they hold of memory is worth more than a fork now and then."""
        before = time.monotonic() - _IDLE_SECONDS
        while self._idle and self._idle[0].idle_since < before:
            self._hang_up(self._idle[0])

    def ended(self, pid: int) -> str | None:
        """A child of the host has ended; what it supervised, if it was a supervisor and had an attempt."""
        member = self._members.pop(pid, None)
        if member is None:
            return None
        self._hang_up(member)
        return member.submission

    def _hang_up(self, member: Member) -> None:
        if member in self._idle:
            self._idle.remove(member)
        if self._by_descriptor.pop(member.channel.fileno(), None) is not None:
            self._epoll.unregister(member.channel)
            member.channel.close()
