"""Orders, refusals and nodes."""

from dataclasses import replace

import pytest

from shared.backends.slurm import nodes, queue, refusals
from shared.backends.slurm.nodes import Capacity, Inventory
from shared.backends.slurm.orders import Order, arguments
from shared.backends.slurm.rows import Listed, NoAnswer
from tests.unit.backends.slurm.recorded import SEPARATOR, commands, queue_answer

ORDER = Order(
    name="tg.j01.a1.s1",
    comment="tidegate/1 0123",
    script="#!/bin/sh\n",
    directory="/shared/work",
    output="/shared/50%j/out",
    error="/shared/err",
)


def test_every_value_stands_in_one_word_with_its_option() -> None:
    order = replace(
        ORDER,
        account="--uid=0",
        partition="gpu",
        constraint="a100&nvlink",
        gres="gpu:a100:2",
        qos="high",
        nodes=2,
        cpus_per_task=4,
        signal="B:TERM@60",
    )
    assert arguments(order) == [
        "--parsable",
        "--job-name=tg.j01.a1.s1",
        "--comment=tidegate/1 0123",
        "--chdir=/shared/work",
        "--output=/shared/50%%j/out",
        "--error=/shared/err",
        "--open-mode=append",
        "--export=ALL",
        "--no-requeue",
        "--account=--uid=0",
        "--partition=gpu",
        "--constraint=a100&nvlink",
        "--gres=gpu:a100:2",
        "--qos=high",
        "--nodes=2",
        "--cpus-per-task=4",
        "--signal=B:TERM@60",
    ]


@pytest.mark.parametrize(("seconds", "minutes"), [(1, 1), (60, 1), (61, 2), (3600, 60), (0.5, 1), (0, 1)])
def test_a_time_limit_is_minutes_rounded_up_and_never_none(seconds: float, minutes: int) -> None:
    assert f"--time={minutes}" in arguments(replace(ORDER, time_limit_seconds=seconds))


@pytest.mark.parametrize(("size", "mebibytes"), [(1, 1), (1 << 20, 1), ((1 << 20) + 1, 2), (1 << 34, 16384), (0, 1)])
def test_memory_is_mebibytes_rounded_up_and_never_all_of_a_node(size: int, mebibytes: int) -> None:
    assert f"--mem={mebibytes}M" in arguments(replace(ORDER, memory_bytes=size))


def test_requeue_and_hold_are_asked_for() -> None:
    assert "--requeue" in arguments(replace(ORDER, requeue=True))
    assert "--hold" in arguments(replace(ORDER, hold=True))


REFUSED = [
    ("-p nosuch", "partition", False),
    ("--gres=gpu:5", "size", False),
    ("--gres=gpu:a100:1", "size", False),
    ("--gres=tpu:1", "gres", False),
    ("--mem=64G", "size", False),
    ("-p inactive", "partition_unavailable", True),
    ("-w nonode", "nodes", False),
    ("--constraint=nofeat", "constraint", False),
    ("--array=0-20000", "array", False),
    ("--begin=2001-01-01", "time_limit", False),
    ("-t bogus", "time_limit", False),
]


@pytest.mark.parametrize(("option", "word", "passing"), REFUSED, ids=[row[0] for row in REFUSED])
def test_a_documented_refusal_has_its_word(option: str, word: str, passing: bool) -> None:
    [command] = [each for each in commands("submit_errors.txt") if each.typed.startswith(f"sbatch --parsable {option}")]
    refused = refusals.refusal(command.stderr)
    assert refused is not None
    assert refused[0] in command.stderr
    assert (refused[1].word, refused[1].passing) == (word, passing)


UNCLEAR = [
    ("ctld_down.txt", "the controller is down"),
    ("ctld_hung.txt", "the controller hangs: this very call had created a job"),
    ("munged_down.txt", "no authentication"),
]


@pytest.mark.parametrize("file", [row[0] for row in UNCLEAR], ids=[row[1] for row in UNCLEAR])
def test_what_may_have_been_taken_is_no_refusal(file: str) -> None:
    [command] = [each for each in commands(file) if each.typed.startswith("sbatch")]
    assert command.code == 1
    assert refusals.refusal(command.stderr) is None


@pytest.mark.parametrize(
    "stderr",
    [
        pytest.param("", id="nothing"),
        pytest.param(
            "sbatch: error: Batch job submission failed: Unspecified error", id="a submit plugin said no, perhaps"
        ),
        pytest.param("Invalid partition name specified", id="not by sbatch"),
        pytest.param(
            "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying.\n"
            "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
            id="the second try was refused",
        ),
        pytest.param(
            "sbatch: error: Batch job submission failed: Invalid qos specification\n"
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
            id="refused once, and once not",
        ),
    ],
)
def test_other_words_are_no_refusal(stderr: str) -> None:
    assert refusals.refusal(stderr) is None


@pytest.mark.parametrize(
    ("file", "typed", "words"),
    [
        ("permission.txt", "scancel 15159", ["denied"]),
        ("permission.txt", "scontrol suspend 15159", ["denied"]),
        ("requeue_refused.txt", "scontrol requeue 29", ["disabled"]),
        ("submit_errors.txt", "scontrol requeue 999999", ["unknown"]),
        ("ctld_down.txt", "scancel 81", [None]),
        ("ctld_hung.txt", "scancel 82", [None]),
        ("submit_errors.txt", "scancel 999999", []),
    ],
)
def test_what_scancel_and_scontrol_were_told_is_a_word(file: str, typed: str, words: list[str | None]) -> None:
    [command] = [each for each in commands(file) if each.typed.endswith(typed)]
    assert refusals.answer_words(command.stderr) == words


def sinfo(*rows: str) -> str:
    titles = "NODELIST|PARTITION|AVAIL|STATECOMPLETE|GRES|GRES_USED|CPUS(A/I/O/T)|REASON"
    return "".join(f"{line}|\n" for line in (titles, *rows)).replace("|", SEPARATOR)


def inventory(*rows: str) -> Inventory:
    read = nodes.parse(sinfo(*rows), SEPARATOR)
    assert isinstance(read, Inventory)
    return read


def test_capacity_counts_by_partition_and_gres() -> None:
    read = inventory(
        "n1|gpu*|up|mixed|gpu:a100:4(S:0-1)|gpu:a100:1(IDX:0)|8/8/0/16|none",
        "n2|gpu*|up|mixed+drain|gpu:a100:4(S:0-1)|gpu:a100:3(IDX:0-2)|3/0/13/16|bad gpu xid 79",
        "n1|closed|down|mixed|gpu:a100:4(S:0-1)|gpu:a100:1(IDX:0)|8/8/0/16|none",
    )
    assert [each for each in nodes.capacity(read) if each.gres != "cpu"] == [
        Capacity("closed", "gpu", total=4, allocated=1, unavailable=3),
        Capacity("closed", "gpu:a100", total=4, allocated=1, unavailable=3),
        Capacity("gpu", "gpu", total=8, allocated=4, unavailable=1),
        Capacity("gpu", "gpu:a100", total=8, allocated=4, unavailable=1),
    ]
    assert Capacity("gpu", "cpu", total=32, allocated=11, unavailable=13) in nodes.capacity(read)


@pytest.mark.parametrize(
    ("states", "trouble"),
    [
        ("idle", None),
        ("mixed", None),
        ("allocated+completing", None),
        ("idle+planned", None),
        ("idle+drain", "n1 is drained: jobs on it end, no new one starts (bad fan)"),
        ("down+not_responding", "n1 is down (bad fan)"),
        ("idle+not_responding", "n1 does not answer the controller (bad fan)"),
        ("idle+maint", "n1 is under maintenance (bad fan)"),
        ("idle+singing", "n1 is in state singing (bad fan)"),
        ("???", "n1 has not answered the controller yet (bad fan)"),
    ],
)
def test_a_node_that_takes_no_jobs_says_why(states: str, trouble: str | None) -> None:
    [node] = inventory(f"n1|gpu|up|{states}|gpu:4|gpu:0|0/16/0/16|bad fan").nodes
    assert node.trouble == trouble


@pytest.mark.parametrize(
    ("gres", "counted"),
    [
        ("gpu:4", {"gpu": 4}),
        ("gpu:2(IDX:0-1)", {"gpu": 2}),
        ("gpu:a100:4(S:0-1),gpu:h100:2(S:0)", {"gpu": 6, "gpu:a100": 4, "gpu:h100": 2}),
        ("gpu:a100:2(IDX:0,3),shard:8", {"gpu": 2, "gpu:a100": 2, "shard": 8}),
        ("bandwidth:lustre:no_consume:4G", {"bandwidth": 4 << 30, "bandwidth:lustre": 4 << 30}),
        ("(null)", {}),
        ("N/A", {}),
        ("", {}),
    ],
)
def test_gres_are_counted_by_name_and_by_type(gres: str, counted: dict[str, int]) -> None:
    assert nodes.counts(gres) == counted


def test_a_row_that_cannot_be_read_is_counted_and_hides_no_other() -> None:
    rows = [
        {"JobArrayID": "11", "Name": "a", "State": "RUNNING"},
        {"JobArrayID": "twelve", "Name": "b", "State": "RUNNING"},
        {"JobArrayID": "901_[1-10%2]", "Name": "c", "State": "RESV_DEL_HOLD"},
        {"JobArrayID": "13", "Name": "FAILED", "State": ""},
        {"JobArrayID": "902+1", "Name": "FAILED-rerun", "State": "COMPLETED"},
        {"JobArrayID": "14", "Name": "d", "State": "SOMETHING_NEW"},
    ]
    read = queue.parse(queue_answer(*rows), SEPARATOR, None)
    assert isinstance(read, Listed)
    assert [(row.id, row.state) for row in read.rows] == [
        ("11", "RUNNING"),
        ("901_[1-10%2]", "RESV_DEL_HOLD"),
        ("902+1", "COMPLETED"),
        ("14", "SOMETHING_NEW"),
    ]
    assert [line.split("|")[0] for line in read.skipped] == ["twelve", "13"]


def test_no_header_is_no_answer() -> None:
    assert isinstance(queue.parse("", SEPARATOR, None), NoAnswer)
