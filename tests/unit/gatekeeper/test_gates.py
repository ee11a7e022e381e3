"""Each gate by itself: open, or closed with one sentence and its numbers."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.gatekeeper.domain import Admit, Hold, decide
from services.gatekeeper.gates import GATES, Closed, closed_gates, never_fits
from services.gatekeeper.line import Waiting, pool_of, tenant_of
from services.gatekeeper.room import Head, Limits, Pool, Room
from shared.lifecycle.record import HoldMark

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
LOCAL = Pool("local", "local", None, 8, 4, 8, NOW, True)


def a_job(**fields: Any) -> Waiting:
    defaults: dict[str, Any] = {
        "job": "j1",
        "attempt": 1,
        "tenant": "acme",
        "priority": 0,
        "queued_at": NOW,
        "gpus": 1,
        "coretype": "local",
    }
    return Waiting(**{**defaults, **fields})


def a_room(*pools: Pool, acme: Limits | None = None, default: Limits | None = None) -> Room:
    """Room in which nothing is used yet."""
    limits = {} if acme is None else {"acme": acme}
    return Room.of(pools or (LOCAL,), limits, default or Limits(), (), NOW, timedelta(seconds=30))


def first(job: Waiting, room: Room) -> Closed:
    closed = closed_gates(job, room)
    assert closed, "all gates are open"
    return closed[0]


def reason(job: Waiting, room: Room) -> str:
    gate = first(job, room).gate
    return f"{gate.name}: {gate.reason}"


def test_a_job_that_fits_finds_every_gate_open() -> None:
    assert closed_gates(a_job(gpus=8), a_room()) == ()


def test_gates_are_named_in_the_agreed_order() -> None:
    order = ["hold", "upstream", "cooldown", "throttle", "window", "budget", "quota_slots", "quota_gpus", "capacity"]
    built = [gate.__name__ for gate in GATES]
    assert built == [name for name in order if name in built]


def test_all_closed_gates_are_reported_in_their_order() -> None:
    mark = HoldMark(actor="rin", reason="later", by_admin=False, at=NOW)
    job = a_job(gpus=9, hold=mark, upstream="train", cooldown_until=NOW + timedelta(seconds=5))
    room = a_room(acme=Limits(slots=0, gpus=4))
    names = [closed.gate.name for closed in closed_gates(job, room)]
    assert names == ["hold", "upstream", "cooldown", "quota.slots", "quota.gpus", "capacity"]


@pytest.mark.parametrize(
    ("by_admin", "lifted_by", "kind"), [(False, "rin or an admin", "hold/user"), (True, "an admin", "hold/admin")]
)
def test_a_hold_says_who_put_it_and_who_lifts_it(by_admin: bool, lifted_by: str, kind: str) -> None:
    closed = first(a_job(hold=HoldMark(actor="rin", reason="wait", by_admin=by_admin, at=NOW)), a_room())
    assert (closed.gate.reason, closed.gate.lifted_by, closed.kind) == ("held by rin: wait", lifted_by, kind)


def test_the_cooldown_gate_says_when_it_opens_and_is_open_from_then_on() -> None:
    until = NOW + timedelta(seconds=15)
    closed = first(a_job(attempt=2, cooldown_until=until), a_room())
    assert closed.gate.opens_at == until
    assert closed.gate.reason == "attempt 1 failed; attempt 2 may start from 2026-11-30 12:00:15 UTC on"
    assert closed_gates(a_job(attempt=2, cooldown_until=NOW), a_room()) == ()


def test_quota_sentences_hold_the_numbers() -> None:
    room = a_room(acme=Limits(gpus=8))
    room.book("acme", "other", "local", 4)
    assert reason(a_job(gpus=6), room) == "quota.gpus: needs 6 GPUs; tenant acme has 4 of 8 free"
    gate = first(a_job(gpus=6), room).gate
    assert (gate.have, gate.need, gate.scope, gate.lifted_by) == (
        4,
        6,
        "tenant acme",
        "jobs that end, or a tenant admin",
    )


def test_a_quota_that_is_overdrawn_has_nothing_free() -> None:
    room = a_room(acme=Limits(gpus=2, slots=9))
    room.book("acme", "other", "other", 4)
    assert reason(a_job(gpus=1), room) == "quota.gpus: needs 1 GPU; tenant acme has 0 of 2 free"


def test_a_job_without_gpus_needs_no_gpu_quota_but_a_slot() -> None:
    room = a_room(acme=Limits(slots=1, gpus=0))
    assert closed_gates(a_job(gpus=0), room) == ()
    room.book("acme", "local", "local", 0)
    assert reason(a_job(gpus=0), room) == "quota.slots: needs a job slot; tenant acme has 0 of 1 free"


def test_a_tenant_without_a_quota_has_the_default() -> None:
    assert (
        reason(a_job(gpus=3), a_room(default=Limits(gpus=2)))
        == "quota.gpus: needs 3 GPUs; tenant acme may use 2 at most"
    )
    assert closed_gates(a_job(gpus=3), a_room(default=Limits(gpus=2), acme=Limits())) == ()


def test_asking_exactly_the_limit_fits_and_one_more_never_does() -> None:
    room = a_room(acme=Limits(gpus=8))
    assert never_fits("acme", 8, "local", None, room) is None
    assert never_fits("acme", 9, "local", None, room) == "needs 9 GPUs; tenant acme may use 8 at most"


def test_more_than_any_cluster_has_is_refused_with_both_numbers() -> None:
    pools = (LOCAL, replace(LOCAL, cluster="big", gpus=12, total_gpus=16))
    assert never_fits("acme", 16, "local", None, a_room(*pools)) is None
    sentence = "needs 17 GPUs; coretype local has 16 at most on one cluster"
    assert never_fits("acme", 17, "local", None, a_room(*pools)) == sentence


def test_a_coretype_that_nobody_offers_is_refused_and_says_what_is_offered() -> None:
    east = Pool("east", "h100", "eu-east", 8, 8, 8, NOW, True)
    room = a_room(LOCAL, east)
    assert (
        never_fits("acme", 1, "a100", None, room) == "no cluster offers coretype a100; offered: h100 in eu-east, local"
    )
    elsewhere = "no cluster offers coretype h100 in region eu-west; offered: h100 in eu-east, local"
    assert never_fits("acme", 1, "h100", "eu-west", room) == elsewhere
    assert never_fits("acme", 1, "h100", "eu-east", room) is None


def test_before_any_cluster_has_reported_nothing_is_refused_and_nothing_admitted() -> None:
    room = Room.of((), {}, Limits(), (), NOW, timedelta(seconds=30))
    assert never_fits("acme", 1, "local", None, room) is None
    assert reason(a_job(), room) == "capacity: no cluster offers coretype local; offered: nothing yet"


def test_foreign_use_makes_a_job_wait_but_never_refuses_it() -> None:
    room = a_room(replace(LOCAL, gpus=2))
    assert never_fits("acme", 8, "local", None, room) is None
    assert reason(a_job(gpus=8), room) == "capacity: needs 8 GPUs; cluster local has 2 of 8 free of coretype local"


def test_a_cluster_that_could_never_be_asked_refuses_nothing() -> None:
    new = replace(LOCAL, gpus=0, slots=0, total_gpus=None, reachable=False)
    assert never_fits("acme", 8, "local", None, a_room(new)) is None
    assert first(a_job(gpus=8), a_room(new)).kind == "capacity/unknown"


@pytest.mark.parametrize(
    ("pool", "why"),
    [
        (replace(LOCAL, at=NOW - timedelta(seconds=31)), "has not reported since 2026-11-30 11:59:29 UTC"),
        (replace(LOCAL, reachable=False), "cannot be reached since 2026-11-30 12:00:00 UTC"),
    ],
    ids=["silent", "unreachable"],
)
def test_what_is_not_known_is_said_to_be_unknown(pool: Pool, why: str) -> None:
    closed = first(a_job(), a_room(pool))
    assert closed.gate.reason == f"what coretype local has free is unknown: cluster local {why}"
    assert closed.kind == "capacity/unknown"


def test_a_cluster_that_is_known_serves_while_another_is_silent() -> None:
    silent = replace(LOCAL, cluster="silent", at=NOW - timedelta(hours=1), gpus=100)
    assert decide([a_job()], a_room(LOCAL, silent), keep_after=timedelta(minutes=5)) == [(a_job(), Admit("local"))]


def test_two_in_one_pass_never_share_what_fits_one() -> None:
    older = a_job(job="j1", gpus=5, queued_at=NOW - timedelta(seconds=1))
    younger = a_job(job="j2", gpus=5)
    [one, other] = decide([younger, older], a_room(), keep_after=timedelta(minutes=5))
    assert one == (older, Admit("local"))
    assert other[0] == younger
    assert isinstance(other[1], Hold)


def test_places_in_the_line_are_limited_by_what_is_free_there() -> None:
    room = a_room(LOCAL, acme=Limits(slots=3, gpus=6))
    room.book("acme", "local", "local", 5)
    heads = room.heads(["tenant:acme", "pool:local/*", "ceiling", "event", "time", "pool:h100/*"])
    assert heads == [Head("ceiling", 2**31 - 1, 500), Head("pool:local/*", 3, 3), Head("tenant:acme", 1, 2)]


def test_keys_are_read_back_as_they_were_made() -> None:
    assert tenant_of("tenant:acme") == "acme"
    assert tenant_of("pool:local/*") is None
    assert pool_of("pool:local/*") == ("local", None)
    assert pool_of("pool:p4d/x/eu-west") == ("p4d/x", "eu-west")
    assert pool_of("ceiling") is None
