"""Waiting for a job or a pipeline without looking at its logs: what a person has to know meanwhile goes to stderr."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from services.cli.escapes import marked
from services.cli.output import but_the_state, err
from shared.client.client import Tidegate
from shared.client.views import JobView, PipelineView
from shared.lifecycle.pipeline import PipelineWord
from shared.lifecycle.record import Origin
from shared.lifecycle.states import TERMINAL, State

ORIGINS: Final[dict[Origin, str]] = {
    "submit": "submitted",
    "resume": "resumed",
    "retry": "retried by hand",
    "automatic": "retried automatically",
}
"""What began an attempt, as it is said."""
MOVING: Final = frozenset({PipelineWord.RUNNING, PipelineWord.QUEUED})
_NO_NEWS: Final = frozenset({"reset", "deleted"})
_LOOK_SECONDS: Final = 0.3

Until = Callable[[State], bool]


def ended(state: State) -> bool:
    """Nothing more happens to it by itself, and a resume does not go on with it."""
    return state in TERMINAL


def paused_or_ended(state: State) -> bool:
    """Nothing more happens to it by itself."""
    return state is State.PAUSED or state in TERMINAL


def wait(client: Tidegate, since: JobView, *, until: Until = ended, step: str | None = None) -> JobView:
    """The job once `until` is so of its state; where it was so for a moment only, that is waited for again. A pause,
    and the attempt after it, are said (of a pipeline's `step` with its name): neither is the end."""
    while not until(since.state):
        for told, lines in told_since(client, since.id, since):
            if until(State(told["state"])) and told["state"] not in TERMINAL:
                break  # the stream ends by itself with the job
            for line in lines:
                err.print(line if step is None else f"{marked(step)}: {line}")
        since = client.job(since.id, patient=True)
    return since


def next_attempt(client: Tidegate, job: JobView) -> JobView | None:
    """The job once it has another attempt than in `job`; None where it ends without one."""
    for told, lines in told_since(client, job.id, job):
        for line in lines:
            err.print(line)
        if told["attempt"] > job.attempt:
            return client.job(job.id, patient=True)
    return None


def told_since(client: Tidegate, job_id: str, since: JobView | None) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """The job as it is in `since`, then as each event has it (from the first one where that is not given), with the
    lines that somebody who waits has to read; until the job has ended."""
    news, after = News(1 if since is None else since.attempt), None
    if since is not None:
        after = f"{since.epoch}-{since.seq}"
        told = since.model_dump(mode="json", include={"state", "attempt", "message", "hint"})
        yield told, news.new(told)
    for event in client.events(job=job_id, after=after):
        if event.event not in _NO_NEWS:
            told = json.loads(event.data)["job"]
            yield told, news.new(told)


def wait_pipeline(client: Tidegate, pipeline: PipelineView) -> PipelineView:
    """Return once every step has ended."""
    for step in pipeline.steps:
        wait(client, client.job(step.job, patient=True), step=step.name)
    return client.pipeline(pipeline.id, patient=True)


def settle(client: Tidegate, pipeline_id: str) -> PipelineView:
    """Return once no step moves: the pipeline is paused, or has ended."""
    while (view := client.pipeline(pipeline_id, patient=True)).word in MOVING:
        time.sleep(_LOOK_SECONDS)
    return view


class News:
    """What a person who waits has to know of a job's next event: that it is paused, and that an attempt begins."""

    def __init__(self, attempt: int) -> None:
        self._attempt = attempt
        self._paused = False

    def new(self, job: dict[str, Any]) -> list[str]:
        """The lines that an event's job adds."""
        lines = []
        if job["attempt"] > self._attempt:
            self._attempt = job["attempt"]
            lines.append(begins(job["attempt"], job["attempts"][-1].get("origin", "submit"), job.get("message")))
        paused = job["state"] == State.PAUSED
        if paused and not self._paused:
            said = marked(but_the_state("PAUSED", job.get("message")))
            lines.append(f"[magenta]PAUSED[/] {said}".rstrip())
            lines.append(f"what to do: {marked(job.get('hint') or 'resume it')} (this command waits for it)")
        self._paused = paused
        return lines


def begins(number: int, origin: Origin, message: str | None) -> str:
    """The line between two attempts, with why there is another one."""
    why = (message or "").removeprefix(f"attempt {number - 1}: ").removesuffix("; it is tried again")
    said = f": {marked(why)}" if why else ""
    return f"[bold]attempt {number}[/] ({ORIGINS[origin]}){said}"
