"""Subjects: who may publish what, and that every reader's filters take what is meant for it."""

from itertools import product

import pytest

from shared.contracts.facts import NotYours, decode_fact, encode_fact
from shared.contracts.ids import is_id, new_id
from shared.contracts.subjects import (
    FACT_KINDS,
    FILTERS,
    JOB_EVENTS,
    SERVICES,
    cluster_subject,
    fact_subject,
    is_tenant_name,
    job_subject,
    logs_subject,
    rpc_subject,
    usage_subject,
)
from shared.lifecycle.duties import Duty
from shared.lifecycle.facts import FACT
from shared.lifecycle.states import State
from tests.contract.test_examples import example
from tests.unit.lifecycle.jobs import START

DESIGN = {
    "jobs": (job_subject("acme", "queued"), "jobs.v1.*.*"),
    "facts": (fact_subject("stager", "staged"), "facts.v1.*.*"),
    "clusters": (cluster_subject("local", "capacity"), "clusters.v1.*.*"),
    "usage": (usage_subject("acme", "segment"), "usage.v1.*.*"),
    "rpc": (rpc_subject("api", "specs"), "rpc.v1.*.*"),
    "logs": (logs_subject("acme"), "logs.v1.*"),
}
READERS = {
    Duty.ADMIT: "gatekeeper",
    Duty.STAGE_IN: "stager",
    Duty.COPY_BACK: "stager",
    Duty.LAUNCH: "launcher",
    Duty.STOP: "launcher",
    Duty.OBSERVE: "watcher",
}


def matches(subject: str, pattern: str) -> bool:
    """NATS: `*` is one token, `>` at least one token at the end."""
    given, wanted = subject.split("."), pattern.split(".")
    if wanted[-1] == ">":
        return len(given) >= len(wanted) and matches(".".join(given[: len(wanted) - 1]), ".".join(wanted[:-1]))
    return len(given) == len(wanted) and all(w in ("*", g) for g, w in zip(given, wanted, strict=True))


@pytest.mark.parametrize(("subject", "pattern"), DESIGN.values(), ids=DESIGN.keys())
def test_every_subject_has_the_form_of_the_design(subject: str, pattern: str) -> None:
    assert matches(subject, pattern)


@pytest.mark.parametrize("event", JOB_EVENTS)
def test_every_job_event_is_read_by_somebody(event: str) -> None:
    subject = job_subject("acme", event)
    assert any(matches(subject, pattern) for patterns in FILTERS.values() for pattern in patterns)


@pytest.mark.parametrize(("service", "kind"), [(s, kind) for s, kinds in FACT_KINDS.items() for kind in kinds])
def test_every_fact_is_read_by_api(service: str, kind: str) -> None:
    assert any(matches(fact_subject(service, kind), pattern) for pattern in FILTERS["api"])


def test_cluster_reports_are_read_by_the_gatekeeper() -> None:
    for kind in ("capacity", "capacity.a100"):
        assert any(matches(cluster_subject("c1", kind), one) for one in FILTERS["gatekeeper_clusters"])


@pytest.mark.parametrize("service", ["gatekeeper", "stager", "launcher", "watcher", "metering"])
@pytest.mark.parametrize("event", ["reset", "deleted", "desired", "evidence", "succeeded", "failed", "stopped"])
def test_every_service_reads_what_ends_its_work(service: str, event: str) -> None:
    assert any(matches(job_subject("acme", event), pattern) for pattern in FILTERS[service])


@pytest.mark.parametrize(
    ("duty", "events"),
    [
        pytest.param(Duty.ADMIT, ("queued", "held"), id="who admits reads what waits"),
        pytest.param(Duty.STAGE_IN, ("submitted",), id="who stages in reads what was let through"),
        pytest.param(Duty.COPY_BACK, ("stage", "running", "evidence"), id="who copies back reads ends and recopies"),
        pytest.param(Duty.LAUNCH, ("submitted", "stage", "pending"), id="who launches reads what was staged"),
        pytest.param(Duty.OBSERVE, ("pending", "running", "stage"), id="who observes reads what was accepted"),
    ],
)
def test_who_owes_an_answer_reads_the_events_that_ask_for_it(duty: Duty, events: tuple[str, ...]) -> None:
    for event in events:
        assert any(matches(job_subject("acme", event), pattern) for pattern in FILTERS[READERS[duty]])


def test_metering_reads_the_event_of_an_automatic_retry() -> None:
    """The last attempt's segments end in it."""
    assert job_subject("*", "queued") in FILTERS["metering"]


def test_an_event_is_named_for_each_state() -> None:
    assert {state.lower() for state in State} <= set(JOB_EVENTS)


@pytest.mark.parametrize(
    ("service", "kind"),
    [
        (service, kind)
        for service, kind in product(FACT_KINDS, (kind for kinds in FACT_KINDS.values() for kind in kinds))
        if kind not in FACT_KINDS[service]
    ],
)
def test_no_service_reports_anothers_fact(service: str, kind: str) -> None:
    fact = FACT.validate_json(example(f"fact-{kind.replace('_', '-')}"))
    with pytest.raises(NotYours, match=f"{service} may not report {kind}"):
        encode_fact(service, fact)
    with pytest.raises(NotYours, match=f"{service} may not report it there"):
        decode_fact(fact_subject(service, kind), fact.model_dump_json().encode())


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param("facts.v1.stager.staged", id="another kind's subject"),
        pytest.param("facts.v1.api.lost", id="a service that reports nothing"),
        pytest.param("facts.v1.nobody.lost", id="nobody's subject"),
    ],
)
def test_a_fact_on_a_subject_that_is_not_its_own_is_refused(subject: str) -> None:
    with pytest.raises(NotYours):
        decode_fact(subject, example("fact-lost"))


def test_a_known_fact_told_again_has_a_message_id_of_its_own_and_the_same_version() -> None:
    fact = FACT.validate_json(example("fact-accepted"))
    first, again = encode_fact("launcher", fact), encode_fact("launcher", fact, answer=2)
    assert again.msg_id == f"{first.msg_id}/again.2"
    assert again.body == first.body


def test_a_number_that_is_given_again_after_a_restore_makes_another_message_id() -> None:
    """The broker would drop a message whose id it knows."""
    fact = FACT.validate_json(example("fact-accepted"))
    later = fact.model_copy(update={"version": fact.version.model_copy(update={"epoch": 2})})
    assert encode_fact("launcher", later).msg_id != encode_fact("launcher", fact).msg_id


TENANTS = {
    "acme": True,
    "a": True,
    "team-7": True,
    "7": True,
    "a" * 40: True,
    "": False,
    "a" * 41: False,
    "-acme": False,
    "acme-": False,
    "Acme": False,
    "ac.me": False,
    "ac*me": False,
    "ac>me": False,
    "ac/me": False,
    "..": False,
    "ac me": False,
    "acmé": False,
    "acme\n": False,
}


@pytest.mark.parametrize(("name", "right"), TENANTS.items(), ids=[repr(name)[:20] for name in TENANTS])
def test_a_tenants_name_is_one_subject_token_and_one_path_part(name: str, *, right: bool) -> None:
    assert is_tenant_name(name) is right


def test_ids_sort_by_time_and_fit_everywhere() -> None:
    ids = [new_id("j", START.replace(year=year)) for year in (2026, 2027, 2050)]
    assert ids == sorted(ids)
    assert all(is_id(one) and len(one) == 27 for one in ids)
    assert len({new_id("p", START) for _ in range(1000)}) == 1000


@pytest.mark.parametrize(
    "text", ["", "j", "J01JDX3K8Q7W5M2V9C4B6N1R0TE", "../../etc/passwd", "j" + "0" * 27, "x" + "0" * 26]
)
def test_what_is_no_id_may_not_stand_in_a_path(text: str) -> None:
    assert not is_id(text)


def test_every_service_is_known() -> None:
    assert set(FACT_KINDS) <= set(SERVICES)
    assert set(FILTERS) - {"gatekeeper_clusters"} == set(SERVICES)
