"""What the runner recorded is read strictly, and whatever else lies there is no record."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.backends.slurm import layout
from shared.backends.slurm.records import (
    Records,
    read,
    read_claim,
    read_exit,
    read_started,
    read_stop_seen,
    request_stop,
)

RUN = {
    "submission": "tidegate.j1.a1.s1",
    "token": "t1",
    "job": "j1",
    "attempt": 1,
    "tenant": "acme",
    "slurm_job_id": "7",
    "restart": 0,
    "node": "n1",
}
CLAIM = RUN | {"claimed_ms": 1_796_029_200_000}
EXIT = RUN | {
    "ran": True,
    "code": 3,
    "signal": None,
    "reason": None,
    "started_ms": 1_796_029_200_500,
    "ended_ms": 1_796_029_201_500,
    "duration_ms": 1000,
    "stop_seen_ms": 1_796_029_201_000,
    "stop_seen_by": "request",
}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3)
)


def put(directory: Path, name: str, content: object) -> None:
    """Write a record, or what is none."""
    text = content if isinstance(content, str) else json.dumps(content)
    (directory / name).write_text(text)


def test_a_whole_end_is_read(tmp_path: Path) -> None:
    put(tmp_path, "claim", CLAIM)
    put(tmp_path, "exit.0.json", EXIT)
    end = read(str(tmp_path)).exits[0]
    assert (end.code, end.signal, end.duration) == (3, None, timedelta(seconds=1))
    assert end.started_at == datetime(2026, 11, 30, 9, 0, 0, 500_000, tzinfo=UTC)
    assert end.stop_seen is not None
    assert (end.stop_seen.by, end.stop_seen.at) == ("request", datetime(2026, 11, 30, 9, 0, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    "wrong",
    [
        {"code": None},
        {"signal": 9},
        {"code": 256},
        {"code": "3"},
        {"code": True},
        {"ran": 1},
        {"ran": False},
        {"ended_ms": 0},
        {"ended_ms": None},
        {"started_ms": None},
        {"duration_ms": -1},
        {"duration_ms": 10**20},
        {"reason": 5},
        {"restart": 1},
        {"restart": "0"},
        {"token": None},
        {"token": "t2"},
        {"submission": "tidegate.j1.a1.s2"},
        {"slurm_job_id": "8"},
        {"slurm_job_id": 7},
    ],
    ids=str,
)
def test_what_is_not_a_whole_end_of_the_claims_holder_is_no_end(tmp_path: Path, wrong: dict[str, object]) -> None:
    put(tmp_path, "claim", CLAIM)
    put(tmp_path, "exit.0.json", EXIT | wrong)
    assert read(str(tmp_path)).exits == {}


@pytest.mark.parametrize("torn", ["", "{", json.dumps(EXIT)[:-20], "[]", "null", "\0\0\0"])
def test_a_torn_record_is_none(tmp_path: Path, torn: str) -> None:
    put(tmp_path, "claim", CLAIM)
    put(tmp_path, "exit.0.json", torn)
    put(tmp_path, "started.0.json", torn)
    put(tmp_path, "stop_seen.0.json", torn)
    put(tmp_path, "claim.1", torn)
    records = read(str(tmp_path))
    assert (len(records.claims), records.started, records.stop_seen, records.exits) == (1, {}, {}, {})
    put(tmp_path, "claim", torn)
    assert read(str(tmp_path)) == Records(claim_unreadable=True)


def test_an_end_without_a_claim_is_none(tmp_path: Path) -> None:
    put(tmp_path, "exit.0.json", EXIT)
    assert read(str(tmp_path)) == Records()
    assert read(str(tmp_path / "nowhere")) == Records()


def test_later_claims_of_the_same_job_are_in_order_and_those_of_others_are_not_there(tmp_path: Path) -> None:
    put(tmp_path, "claim", CLAIM | {"restart": 1})
    for restart in (10, 2):
        put(tmp_path, layout.claim_name(restart), CLAIM | {"restart": restart})
    put(tmp_path, layout.claim_name(3), CLAIM | {"restart": 3, "token": "t2"})
    put(tmp_path, layout.claim_name(4), CLAIM)
    records = read(str(tmp_path))
    assert [claim.run.restart for claim in records.claims] == [1, 2, 10]


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("claim", ("claim", -1)),
        ("claim.2", ("claim", 2)),
        ("exit.0.json", ("exit", 0)),
        ("stop_seen.12.json", ("stop_seen", 12)),
        ("exit.json", None),
        ("exit.01.json", None),
        ("exit.1", None),
        ("exit.\u0661.json", None),
        ("claim.x", None),
        ("claim.1.json", None),
        (".exit.0.json.t1.7.0.n1.99", None),
        ("exit.99999999999999.json", None),
        ("revoked", None),
        ("env.t1", None),
    ],
)
def test_only_names_of_records_are_names_of_records(name: str, parsed: tuple[str, int] | None) -> None:
    assert layout.split_record_name(name) == parsed


@given(st.dictionaries(st.sampled_from(sorted(EXIT | CLAIM)), json_values))
def test_whatever_a_record_says_reading_it_never_fails(changed: dict[str, object]) -> None:
    for one in (EXIT | CLAIM | changed, changed):
        for reader in (read_claim, read_started, read_stop_seen, read_exit):
            reader(one)


@pytest.mark.parametrize(("name", "grace"), [("", 1), ("SIG TERM", 1), ("term", 1), ("TERM", -1), ("TERM\n", 1)])
def test_a_stop_that_cannot_be_asked_for_is_refused(tmp_path: Path, name: str, grace: int) -> None:
    with pytest.raises(ValueError, match="a stop is"):
        request_stop(str(tmp_path), "stop", name, grace, datetime(2026, 11, 30, tzinfo=UTC))
    assert not (tmp_path / layout.STOP).exists()
