"""The one transition table: what every input does in every state. `advance` reads it, and decides nothing beside it.

The table speaks of the current attempt. Before it comes the attempts' fence: a fact about an older attempt is evidence
of that attempt only; evidence of a newer one, which only a record taken back by a restore meets, makes that the current
one, unless the job succeeded.
"""

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from shared.lifecycle.states import State


class Step(StrEnum):
    """What an input does."""

    MERGE = "merge"
    """Merge the evidence and derive state, stages and, when the attempt is sealed, the verdict."""
    EVIDENCE = "evidence"
    """Merge after the verdict: segments and metering may change, state and end reason never."""
    ADOPT = "adopt"
    """Evidence of an attempt that the record does not know as admitted (after a restore): admit it, then merge."""
    ADOPT_NEWER = "adopt newer"
    """Evidence of an attempt after the current one: that one is sealed, the newer one adopted. Never in the table."""
    ADMIT = "admit"
    GATE = "gate"
    WISH = "wish"
    """Set `desired_state`; the attempt ends when it is sealed."""
    STOP_NOW = "stop now"
    PAUSE_NOW = "pause now"
    PAUSE_AGAIN = "pause again"
    """It is paused: only an admin's pause changes anything."""
    SNOOZE = "snooze"
    RESUME = "resume"
    RETRY = "retry"
    HOLD = "hold"
    RELEASE = "release"
    OPEN_UPSTREAM = "open upstream"
    UNREACHABLE = "unreachable"
    OPEN_RECOPY = "open recopy"
    CLOSE_RECOPY = "close recopy"
    DELETE = "delete"
    IGNORE = "ignore"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Row:
    """One cell of the table; `why` is the reason where the input is ignored or refused, `while_pausing` the one where
    a pause is on its way."""

    step: Step
    why: str | None = None
    while_pausing: str | None = None


EVIDENCE_KINDS: Final = (
    "input_valid",
    "input_invalid",
    "staged",
    "staging_failed",
    "staging_sealed",
    "accepted",
    "launch_refused",
    "launcher_sealed",
    "gpus_freed",
    "seen_pending",
    "seen_running",
    "seen_idle",
    "segment_requeued",
    "exited",
    "lost",
)
GATE_KINDS: Final = ("admitted", "held")
POLICY_KINDS: Final = ("policy_stop", "policy_pause")
COMMAND_KINDS: Final = (
    "stop",
    "pause",
    "resume",
    "retry",
    "snooze",
    "hold",
    "release",
    "recopy",
    "delete",
    "upstream_done",
    "upstream_failed",
)
INPUT_KINDS: Final = (*EVIDENCE_KINDS, *GATE_KINDS, *POLICY_KINDS, "recopied", *COMMAND_KINDS)


def _ignore(why: str) -> Row:
    return Row(Step.IGNORE, why)


def _refuse(why: str) -> Row:
    return Row(Step.REFUSE, why)


_WAITS = "it waits at a gate and goes on once that is open"
_NOT_WAITING = "it was let through already"
_ENDED = {
    State.SUCCEEDED: "it succeeded already",
    State.FAILED: "it failed already",
    State.STOPPED: "it is stopped already",
}

_QUEUED: Final[dict[str, Row]] = {
    **{kind: Row(Step.ADOPT) for kind in EVIDENCE_KINDS},
    "admitted": Row(Step.ADMIT),
    "held": Row(Step.GATE),
    "policy_stop": Row(Step.STOP_NOW),
    "policy_pause": Row(Step.PAUSE_NOW),
    "recopied": _ignore("no recopy is open"),
    "stop": Row(Step.STOP_NOW),
    "pause": Row(Step.PAUSE_NOW),
    "resume": _refuse(f"it is not paused: {_WAITS}"),
    "retry": _refuse(f"it has not ended: {_WAITS}"),
    "snooze": _refuse(f"it is not up: {_WAITS}"),
    "hold": Row(Step.HOLD),
    "release": Row(Step.RELEASE),
    "recopy": _refuse("it has not run yet, so there are no outputs"),
    "delete": _refuse("it has not ended: stop it first"),
    "upstream_done": Row(Step.OPEN_UPSTREAM),
    "upstream_failed": Row(Step.UNREACHABLE),
}


def _active(word: str) -> dict[str, Row]:
    return {
        **{kind: Row(Step.MERGE) for kind in EVIDENCE_KINDS},
        "admitted": _ignore(_NOT_WAITING),
        "held": _ignore(_NOT_WAITING),
        "policy_stop": Row(Step.WISH),
        "policy_pause": Row(Step.WISH),
        "recopied": _ignore("no recopy is open"),
        "stop": Row(Step.WISH),
        "pause": Row(Step.WISH),
        "resume": Row(
            Step.REFUSE, f"it is not paused: it is {word}", "it is still pausing: resume it once it is paused"
        ),
        "retry": _refuse(f"it has not ended: it is {word}"),
        "snooze": Row(Step.SNOOZE),
        "hold": _refuse(f"{_NOT_WAITING}: pause it instead"),
        "release": _refuse(f"{_NOT_WAITING}: nothing holds it"),
        "recopy": _refuse(f"it has not ended: it is {word}, and its outputs are copied back at its end"),
        "delete": _refuse(f"it has not ended: it is {word}; stop it first"),
        "upstream_done": _ignore(_NOT_WAITING),
        "upstream_failed": _ignore(_NOT_WAITING),
    }


_PAUSED: Final[dict[str, Row]] = {
    **{kind: Row(Step.EVIDENCE) for kind in EVIDENCE_KINDS},
    "admitted": _ignore("it is paused; the event `paused` ends the reservation"),
    "held": _ignore("it is paused"),
    "policy_stop": Row(Step.STOP_NOW),
    "policy_pause": _ignore("it is paused already"),
    "recopied": _ignore("no recopy is open"),
    "stop": Row(Step.STOP_NOW),
    "pause": Row(Step.PAUSE_AGAIN),
    "resume": Row(Step.RESUME),
    "retry": _refuse("it is paused: resume it instead"),
    "snooze": _refuse("it is paused: nothing would suspend it"),
    "hold": _refuse("it is paused, so nothing starts it: hold it after resume"),
    "release": _refuse("it is paused: resume it instead"),
    "recopy": _refuse("it is paused; its outputs were copied back when it was"),
    "delete": _refuse("it is paused: stop it first"),
    "upstream_done": Row(Step.OPEN_UPSTREAM),
    "upstream_failed": Row(Step.UNREACHABLE),
}


def _ended(state: State) -> dict[str, Row]:
    why = _ENDED[state]
    retryable = state is not State.SUCCEEDED
    return {
        **{kind: Row(Step.EVIDENCE) for kind in EVIDENCE_KINDS},
        "admitted": _ignore(f"{why}; its last event ends the reservation"),
        "held": _ignore(why),
        "policy_stop": _ignore(why),
        "policy_pause": _ignore(why),
        "recopied": Row(Step.CLOSE_RECOPY) if state is State.FAILED else _ignore("no recopy is open"),
        "stop": _refuse(why),
        "pause": _refuse(why),
        "resume": _refuse(f"{why}: only a paused job can be resumed"),
        "snooze": _refuse(why),
        "retry": Row(Step.RETRY) if retryable else _refuse("it succeeded already: submit it again to run it again"),
        "hold": _refuse(why),
        "release": _refuse(why),
        "recopy": Row(Step.OPEN_RECOPY) if state is State.FAILED else _refuse(f"{why}: there is nothing to copy again"),
        "delete": Row(Step.DELETE),
        "upstream_done": _ignore(why),
        "upstream_failed": _ignore(why),
    }


_BY_STATE: Final[dict[State, dict[str, Row]]] = {
    State.QUEUED: _QUEUED,
    State.SUBMITTED: _active("being started"),
    State.PENDING: _active("waiting at the backend"),
    State.RUNNING: _active("running"),
    State.PAUSED: _PAUSED,
    **{state: _ended(state) for state in _ENDED},
}

TRANSITIONS: Final = MappingProxyType(
    {(state, kind): _BY_STATE[state][kind] for state in State for kind in INPUT_KINDS}
)
"""Total over state x input: a missing cell stops the import."""
