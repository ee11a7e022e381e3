"""`tidegate explain JOB`: on one screen why a job is where it is, what was seen, what comes next, and what it cost."""

from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from services.cli.escapes import marked
from services.cli.evidence import SOURCE_CELLS, clock
from services.cli.given import checked
from services.cli.output import ago, duration, out, print_json, state_text
from services.cli.session import connect

_LABEL_CELLS: Final = 6


def register(app: typer.Typer) -> None:
    app.command("explain", help="Say why a job is where it is, what was seen, what comes next, and what it cost.")(
        explain
    )


def explain(
    job: Annotated[str, typer.Argument(help="the job's id")],
    as_json: Annotated[bool, typer.Option("--json", help="print the API's own object")] = False,
) -> None:
    with connect() as client:
        told = client.call("GET", f"/v1/jobs/{checked(job)}/explain")
    if as_json:
        return print_json(told)
    now = datetime.now(UTC)
    for line in lines_of(told, now):
        out.print(line)
    return None


def lines_of(told: dict[str, Any], now: datetime) -> list[str]:
    """The screen."""
    name = f"[bold]{marked(told['name'])}[/]  " if told.get("name") else ""
    lines = [f"{name}{marked(str(told['job']))}  {state_text(told['state'])}", ""]
    lines.append(_row("why", told["why"]))
    lines.append(_row("next", _next(told.get("next"), now)))
    lines.append(_row("cost", _cost(told["cost"])))
    if told.get("evidence"):
        lines += ["", "  [dim]seen[/]"]
    return lines + [_seen(seen, now) for seen in told.get("evidence") or ()]


def _seen(seen: dict[str, Any], now: datetime) -> str:
    at = clock(datetime.fromisoformat(seen["at"]), now.astimezone().date())
    where = f"  [dim]({marked(seen['where'])})[/]" if seen.get("where") else ""
    return f"  [dim]{at}  {marked(seen['seen_by']):<{SOURCE_CELLS}}[/] {marked(seen['what'])}{where}"


def _row(label: str, value: str) -> str:
    return f"  [dim]{label:<{_LABEL_CELLS}}[/] {marked(value)}"


def _next(step: dict[str, Any] | None, now: datetime) -> str:
    if step is None:
        return "nothing"
    by = f", by {step['who']}" if step.get("who") else ""
    return f"{step['what']}{by}{_when(step.get('at'), now)}"


def _when(given: str | None, now: datetime) -> str:
    if given is None:
        return ""
    at = datetime.fromisoformat(given)
    shown = clock(at, now.astimezone().date())
    if at <= now:
        return f", due at {shown} ({ago(at, now)})"
    return f", at {shown} (in {duration((at - now).total_seconds())})"


def _cost(cost: dict[str, Any]) -> str:
    notes = []
    if float(cost.get("not_billable_gpu_seconds") or 0):
        notes.append(f"{cost['not_billable_gpu_seconds']} of them not billed")
    if cost.get("estimated"):
        notes.append("estimated: not every end was seen")
    return f"{cost['gpu_seconds']} GPU seconds" + (f" ({'; '.join(notes)})" if notes else "")
