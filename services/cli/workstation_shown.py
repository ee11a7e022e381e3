"""A workstation on the screen."""

from datetime import UTC, datetime

from rich.text import Text

from services.cli.escapes import marked
from services.cli.evidence import clock
from services.cli.output import STATE_STYLES, ago, out, state_text
from services.cli.render import asked_for, stage_line
from services.cli.wording import permitted
from shared.client.workstations import WorkstationView
from shared.contracts.durations import in_words
from shared.lifecycle.explain import idle_rule
from shared.lifecycle.states import ACTIVE, StageStatus, State

_STYLES = {"active": "bold green", "suspending": "magenta", "suspended": "magenta"}


def agreed(view: WorkstationView) -> list[str]:
    """When it will be suspended and end, in words."""
    idle, lifetime = view.workstation.idle_suspend_seconds, view.spec.time_limit_seconds
    return [
        "nothing suspends it for being idle" if idle is None else f"suspended once it was idle for {in_words(idle)}",
        "it may be up for as long as it likes" if lifetime is None else f"ends once it was up for {in_words(lifetime)}",
    ]


def word(view: WorkstationView) -> str:
    """The phase where it has one, else the state."""
    return view.phase if view.phase in _STYLES else view.state


def row(view: WorkstationView) -> tuple[str | Text, ...]:
    """Its line in a list."""
    shown = word(view)
    style = _STYLES.get(shown) or STATE_STYLES.get(shown, "")
    return view.id, view.name, Text(shown, style), str(view.spec.gpus), ago(view.submitted_at), _now(view)


def standing(view: WorkstationView) -> str:
    """One line: how it stands after what was asked of it."""
    shown = word(view)
    styled = f"[{_STYLES[shown]}]{shown}[/]" if shown in _STYLES else state_text(shown)
    said = _now(view)
    return f"{view.id} {styled}" + (f"; {marked(said)}" if said else "")


def show_workstation(view: WorkstationView) -> None:
    """Everything that a person asks of a workstation, on one screen."""
    shown = word(view)
    styled = f"[{_STYLES[shown]}]{shown}[/]" if shown in _STYLES else state_text(shown)
    out.print(f"[bold]{marked(view.name)}[/]  {view.id}  {styled}")
    if view.message:
        out.print(f"  {marked(view.message)}")
    if hint := permitted(view.hint, view.actions):
        out.print(f"  [dim]what to do:[/] {marked(hint)}")
    if view.phase != "active" and view.state is not State.PAUSED:
        out.print()
        for stage in view.stages:
            out.print(stage_line(stage))
    out.print()
    for label, value in _facts(view):
        out.print(f"  [dim]{label:<11}[/] {marked(value)}")
    for warning in view.warnings:
        out.print(f"  [yellow]warning[/]     {marked(warning)}")


def why_not_up(view: WorkstationView) -> str:
    """The sentence about one that has no address now, and what to do."""
    if view.state is State.PAUSED:
        return f"it is suspended. Bring it up: tidegate workstation resume {view.id} --wait"
    if view.ended:
        return f"it is {view.state}" + (f", {view.message}" if view.message else "")
    return _now(view) or f"it is {view.state}"


def _now(view: WorkstationView) -> str:
    """What it waits for, or what comes next by itself."""
    if view.ended:
        return view.message or ""
    if view.state is State.PAUSED:
        return "its files are kept"
    if view.phase == "suspending":
        return "its files are being kept"
    if view.desired_state == "stopped":
        return "a stop was asked for"
    if view.phase == "active":
        return _idle(view)
    waits = next((stage.waiting_on for stage in view.stages if stage.status is StageStatus.ACTIVE), None)
    place = f"position {view.position} in the line" if view.position is not None else ""
    return "; ".join(part for part in (f"waits on {waits}" if waits else "", place) if part)


def _idle(view: WorkstationView) -> str:
    idle = view.workstation
    if idle.suspends_at is not None and idle.idle_since is not None:
        left = max(0, round((idle.suspends_at - datetime.now(UTC)).total_seconds()))
        more = f"; put it off: tidegate workstation snooze {view.id}"
        return f"idle since {_clock(idle.idle_since)}, suspended in {in_words(left)}{more}"
    if idle.snoozed_until is not None and idle.snoozed_until > datetime.now(UTC):
        return f"not suspended before {_clock(idle.snoozed_until)}"
    return (idle_rule(idle, datetime.now(UTC)) or "").removeprefix("it is ")


def _facts(view: WorkstationView) -> list[tuple[str, str]]:
    rows = [
        ("command", " ".join(view.spec.command)),
        ("asks for", asked_for(view.spec)),
        ("owner", f"{view.user} in {view.tenant}/{view.project}"),
        *(("agreed", line) for line in agreed(view)),
    ]
    if view.state in ACTIVE and view.started_at is not None:
        rows.append(("up since", _clock(view.started_at)))
    if now := _now(view):
        rows.append(("now", now))
    if view.attempt > 1:
        rows.append(("attempt", str(view.attempt)))
    if view.gpu_seconds != "0.000":
        rows.append(("GPU seconds", view.gpu_seconds))
    if view.phase == "active":
        rows.append(("address", f"tidegate workstation url {view.id}"))
    return rows


def _clock(at: datetime) -> str:
    return clock(at, datetime.now(UTC).date())
