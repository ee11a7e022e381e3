"""Words, exit codes and times as Slurm prints them."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from shared.backends.slurm.ids import SlurmId, parse_id
from shared.backends.slurm.rows import ExitStatus
from shared.backends.slurm.submitted import Printed, parse_submitted
from shared.backends.slurm.text import Moment, State, duration, exit_pair, exit_status, moment, something, state, table

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("901", SlurmId("901")),
        ("901_[1-10%2]", SlurmId("901", tasks="[1-10%2]")),
        ("901_[20-29,31,40-44%5]", SlurmId("901", tasks="[20-29,31,40-44%5]")),
        ("901_[1,3,5,...]", SlurmId("901", tasks="[1,3,5,...]")),
        ("901_4", SlurmId("901", tasks="4")),
        ("902+0", SlurmId("902", part="0")),
        ("902+1", SlurmId("902", part="1")),
        ("903.batch", SlurmId("903", step="batch")),
        ("903_7.0", SlurmId("903", tasks="7", step="0")),
        ("902+1.extern", SlurmId("902", part="1", step="extern")),
        (" 5001 ", SlurmId("5001")),
        ("", None),
        ("-1", None),
        ("5001;alpha", None),
        ("901_", None),
        ("--name=x", None),
        ("٣", None),
    ],
)
def test_an_id_is_text_with_parts(text: str, parsed: SlurmId | None) -> None:
    assert parse_id(text) == parsed


@pytest.mark.parametrize(
    ("printed", "parsed"),
    [
        pytest.param("5001\n", Printed("5001", None), id="parsable"),
        pytest.param("5001;alpha\n", Printed("5001", "alpha"), id="parsable, of several clusters"),
        pytest.param("Submitted batch job 5001 on cluster alpha\n", Printed("5001", "alpha"), id="a sentence"),
        pytest.param(
            "Welcome to alpha\n** 3 days to the maintenance **\nSubmitted batch job 5001\n",
            Printed("5001", None),
            id="below a banner",
        ),
        pytest.param("Your job was passed on. Good luck!\n", None, id="no number"),
        pytest.param("job 5001 might be there\n", None, id="a number in a sentence of somebody else"),
        pytest.param("5001\n5002\n", None, id="two ids"),
        pytest.param("5001\nSubmitted batch job 5001\n", Printed("5001", None), id="one id, twice"),
        pytest.param("0\n", None, id="no job has number 0"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_the_id_is_found_in_what_sbatch_printed(printed: str, parsed: Printed | None) -> None:
    assert parse_submitted(printed) == parsed


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("RUNNING", State("RUNNING")),
        ("CANCELLED by 61007", State("CANCELLED", cancelled_by=61007)),
        ("cancelled by 1000", State("CANCELLED", cancelled_by=1000)),
        ("CANCELLED by somebody", State("CANCELLED")),
        ("CANCELLED+", State("CANCELLED")),
        ("OUT_OF_ME+", State("OUT_OF_MEMORY")),
        ("NODE_FAIL+", State("NODE_FAIL")),
        (" COMPLETED ", State("COMPLETED")),
        ("COMPLETING", State("COMPLETING", completing=True)),
        ("CANCELLED+COMPLETING", State("CANCELLED", completing=True)),
        ("COMP+", State("COMP+")),
        ("C+", State("C+")),
        ("SOMETHING_NEW", State("SOMETHING_NEW")),
        ("FAILED-rerun", State("FAILED-RERUN")),
        ("", None),
        ("+", None),
    ],
)
def test_a_state_is_its_first_word(text: str, read: State | None) -> None:
    assert state(text) == read


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("0:0", ExitStatus(0, 0)),
        ("0:9", ExitStatus(0, 9)),
        ("1:0", ExitStatus(1, 0)),
        ("0:125", ExitStatus(0, 125)),
        ("0:oops", None),
        ("oops", None),
        ("0", None),
        ("", None),
        ("-1:0", None),
    ],
)
def test_an_exit_pair_that_is_malformed_is_unknown(text: str, read: ExitStatus | None) -> None:
    assert exit_pair(text) == read


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("0", ExitStatus(0, 0)),
        ("768", ExitStatus(3, 0)),
        ("35072", ExitStatus(137, 0)),
        ("9", ExitStatus(0, 9)),
        ("139", ExitStatus(0, 11)),
        ("125", ExitStatus(0, 125)),
        ("3893", ExitStatus(0, 53)),
        ("3:0", ExitStatus(3, 0)),
        ("4294967294", None),
        ("", None),
    ],
)
def test_squeues_exit_code_is_the_raw_status(text: str, read: ExitStatus | None) -> None:
    assert exit_status(text) == read


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0:00", 0), ("1:26", 86), ("10:00", 600), ("1:00:00", 3600), ("2-03:04:05", 183845), ("00:00:01", 1), ("86", 86)],
)
def test_a_duration_is_read(text: str, seconds: int) -> None:
    assert duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "INVALID", "UNLIMITED", "Partition_Limit", "-1", "1:2:3:4"])
def test_what_is_no_duration_is_none(text: str) -> None:
    assert duration(text) is None


@pytest.mark.parametrize("text", ["", "N/A", "Unknown", "None", "(null)", "None assigned", " n/a "])
def test_slurms_words_for_nothing_are_nothing(text: str) -> None:
    assert something(text) is None
    assert moment(text, None) == Moment(None)


@pytest.mark.parametrize(
    ("text", "zone", "read"),
    [
        pytest.param("1796023558", None, Moment(datetime(2026, 11, 30, 7, 25, 58, tzinfo=UTC)), id="epoch seconds"),
        pytest.param("0", None, Moment(None), id="the epoch itself is no value"),
        pytest.param("1970-01-01T00:00:00", ZoneInfo("UTC"), Moment(None), id="nor is it as text"),
        pytest.param(
            "2026-10-25T01:30:00", BERLIN, Moment(datetime(2026, 10, 24, 23, 30, tzinfo=UTC)), id="before the hour"
        ),
        pytest.param(
            "2026-10-25T02:30:00",
            BERLIN,
            Moment(datetime(2026, 10, 25, 0, 30, tzinfo=UTC), doubtful=True),
            id="an hour that was there twice",
        ),
        pytest.param(
            "2026-10-25T03:30:00", BERLIN, Moment(datetime(2026, 10, 25, 2, 30, tzinfo=UTC)), id="after the hour"
        ),
        pytest.param(
            "2026-03-29T02:30:00",
            BERLIN,
            Moment(datetime(2026, 3, 29, 1, 30, tzinfo=UTC), doubtful=True),
            id="an hour that was not there",
        ),
        pytest.param("2026-11-30T07:25:58", None, Moment(None, doubtful=True), id="a local time of who knows where"),
        pytest.param("2026-13-30T07:25:58", BERLIN, Moment(None, doubtful=True), id="no month"),
        pytest.param("now", BERLIN, Moment(None, doubtful=True), id="no time"),
        pytest.param("99999999999999", None, Moment(None, doubtful=True), id="after all time"),
        pytest.param("0001-01-01T00:00:00", ZoneInfo("Asia/Tokyo"), Moment(None, doubtful=True), id="before all time"),
    ],
)
def test_a_time_is_certain_or_says_that_it_is_not(text: str, zone: ZoneInfo | None, read: Moment) -> None:
    assert moment(text, zone) == read


def test_what_is_in_a_name_is_no_field_and_no_row() -> None:
    answer = "JOBID#~NAME#~STATE#~\n1#~a|b\n2|c|COMPLETED#~RUNNING#~\n"
    read = table(answer, "#~", ("JOBID", "NAME", "STATE"))
    assert not isinstance(read, str)
    assert read.rows == (("1", "a|b\n2|c|COMPLETED", "RUNNING"),)


def test_what_stands_before_the_header_is_no_row() -> None:
    read = table("CLUSTER: alpha\nJOBID#~NAME#~\n1#~a#~\n", "#~", ("JOBID", "NAME"))
    assert not isinstance(read, str)
    assert read.rows == (("1", "a"),)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param("", "no header", id="empty"),
        pytest.param("1#~a#~\n", "no header", id="a row and no header"),
        pytest.param("JOBID#~", "no header", id="a part of the header"),
        pytest.param("JOBID#~NAME#~\n1#~a#~\n2#~", "cut short", id="a part of a row"),
    ],
)
def test_an_answer_that_is_not_whole_is_none(answer: str, why: str) -> None:
    read = table(answer, "#~", ("JOBID", "NAME"))
    assert isinstance(read, str)
    assert why in read


def test_a_header_alone_is_an_answer_of_no_jobs() -> None:
    read = table("JOBID#~NAME#~\n", "#~", ("JOBID", "NAME"))
    assert not isinstance(read, str)
    assert read.rows == ()
