"""The host's side of supervisors that take one attempt after the other."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from shared.backends.local.crew import TASK_BYTES_MAX, Crew

FIELDS: dict[str, object] = {"submission": "second"}


@dataclass
class Ground:
    """A crew, a file for the lock, and the supervisors' ends of the channels."""

    crew: Crew
    spec_fd: int
    channels: dict[int, socket.socket] = field(default_factory=dict)

    def join(self, pid: int, submission: str = "first") -> socket.socket:
        """A supervisor joins; its end."""
        ours, self.channels[pid] = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.crew.join(pid, ours, submission)
        return self.channels[pid]

    def hand(self, fields: dict[str, object] = FIELDS) -> bool:
        """Whether a waiting one takes an attempt."""
        return self.crew.hand("second", (fields, 1, 2, [3]), self.spec_fd)


@pytest.fixture
def ground() -> Iterator[Ground]:
    """Nobody is there yet."""
    made = Ground(Crew(), os.open(os.devnull, os.O_RDONLY))
    yield made
    os.close(made.spec_fd)
    for channel in made.channels.values():
        channel.close()


def test_who_asks_for_more_is_done_with_its_attempt_and_gets_the_next_with_its_lock(ground: Ground) -> None:
    channel = ground.join(7)
    assert not ground.hand(), "it is at work"
    channel.send(b"?")
    assert ground.crew.collect() == ["first"]
    assert ground.hand()
    message, descriptors, _, _ = socket.recv_fds(channel, TASK_BYTES_MAX, 1)
    assert json.loads(message) == [FIELDS, 1, 2, [3]]
    assert os.path.samestat(os.fstat(descriptors[0]), os.fstat(ground.spec_fd))
    os.close(descriptors[0])
    assert ground.crew.ended(7) == "second"
    assert 7 not in ground.crew


def test_one_that_was_killed_while_it_waited_is_passed_over(ground: Ground) -> None:
    for pid in (7, 8):
        ground.join(pid, f"of {pid}").send(b"?")
    assert sorted(ground.crew.collect()) == ["of 7", "of 8"]
    ground.channels.pop(8).close()
    assert ground.hand()
    assert ground.crew.ended(8) is None
    assert ground.crew.ended(7) == "second"


def test_one_that_ends_at_its_attempt_leaves_it_unsettled(ground: Ground) -> None:
    ground.join(7)
    ground.channels.pop(7).close()
    assert ground.crew.collect() == []
    assert ground.crew.ended(7) == "first"
    assert ground.crew.ended(7) is None


def test_an_order_too_large_for_a_message_is_for_a_process_of_its_own(ground: Ground) -> None:
    ground.join(7).send(b"?")
    ground.crew.collect()
    assert not ground.hand({"command": "x" * TASK_BYTES_MAX})
    assert ground.hand()


def test_those_that_wait_are_let_go_after_a_while(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = ground.join(7)
    channel.send(b"?")
    ground.crew.collect()
    ground.crew.let_go()
    assert ground.crew.somebody_waits
    later = time.monotonic() + 2
    monkeypatch.setattr("shared.backends.local.crew.time.monotonic", lambda: later)
    ground.crew.let_go()
    assert not ground.crew.somebody_waits
    assert channel.recv(1) == b"", "it sees that the host has no more for it"


def test_the_host_imports_nothing_that_its_supervisors_would_carry_for_nothing() -> None:
    program = "import sys, shared.backends.local.host; print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"dataclasses", "inspect", "asyncio", "subprocess", "datetime", "hashlib", "threading"} & set(said)
