"""Clocks are aware; messages that could never be sent are refused when they are made."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from infra.nats.config import authorization, render
from shared.contracts.subjects import SERVICES
from shared.runtime.clock import FixedClock, SystemClock
from shared.runtime.outbox import Outgoing


def test_the_system_clock_is_aware_and_in_utc() -> None:
    assert SystemClock().now().tzinfo is UTC


def test_a_fixed_clock_stands_still_until_it_is_set_or_moved_on() -> None:
    clock = FixedClock(datetime(2026, 3, 29, 2, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now() == datetime(2026, 3, 29, 0, tzinfo=UTC)
    clock.advance(timedelta(minutes=5))
    assert clock.now() == datetime(2026, 3, 29, 0, 5, tzinfo=UTC)


def test_a_fixed_clock_refuses_a_time_without_a_zone() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        FixedClock(datetime(2026, 1, 1))  # noqa: DTZ001 # that is the fault


@pytest.mark.parametrize(
    ("subject", "msg_id", "key", "said"),
    [
        ("rpc.v1.api.x", "id", "key", "no stream stores 'rpc.v1.api.x'"),
        ("jobs.v1.acme.queued", "", "key", "msg_id '' and key 'key' must not be empty"),
        ("jobs.v1.acme.queued", "id", "", "msg_id 'id' and key '' must not be empty"),
    ],
)
def test_a_message_that_could_never_be_sent_is_refused(subject: str, msg_id: str, key: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Outgoing(subject, msg_id, key, b"")


def test_the_brokers_configuration_needs_the_password_of_every_user_and_no_other() -> None:
    passwords = {user: f"pw-{user}" for user in ("admin", *SERVICES)}
    text = render(passwords=passwords, store_dir='/var/lib/with "quotes"', port=4333)
    assert "sync_interval: always" in text
    assert '"127.0.0.1:4333"' in text
    assert all(f'"pw-{user}"' in text for user in passwords)
    with pytest.raises(ValueError, match=r"missing=\['api'\], unknown=\['guest'\]"):
        authorization({("guest" if user == "api" else user): password for user, password in passwords.items()})
