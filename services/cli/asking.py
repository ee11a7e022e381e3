"""Asking something of one or several jobs and pipelines, saying how each is then, and waiting for what was asked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from services.cli.escapes import marked
from services.cli.given import is_pipeline
from services.cli.interrupted import says_that_it_goes_on
from services.cli.output import but_the_state, err, out, state_text
from services.cli.pipelines import word_text
from services.cli.waiting import Until, ended, settle, wait, wait_pipeline
from services.cli.wording import in_commands
from shared.client.client import Tidegate
from shared.client.errors import Refused
from shared.client.views import JobView, PipelineView
from shared.lifecycle.pipeline import PipelineWord
from shared.lifecycle.states import ACTIVE, State

EXIT_REFUSED: Final = 3
_BEGINS: Final = ("resume", "retry")
AnswerT = TypeVar("AnswerT")


def ask(ids: Sequence[str], what: Callable[[str], AnswerT]) -> tuple[list[AnswerT], int]:
    """The answers about each, and the exit code. Of several, one that is refused is said and the others are asked; a
    single one's refusal is raised."""
    if len(ids) == 1:
        return [what(ids[0])], 0
    answers, code = [], 0
    for given in ids:
        try:
            answers.append(what(given))
        except Refused as refused:
            err.print(f"[bold red]error:[/] {given}: {marked(in_commands(str(refused)))}")
            code = EXIT_REFUSED
    return answers, code


@dataclass(frozen=True, slots=True)
class Asked:
    """One action. `said` is the sentence after it, where the answer does not tell that; `until` is what is waited
    for."""

    action: str
    body: dict[str, Any]
    said: str | None = None
    until: Until | None = None

    def of(self, client: Tidegate, given: str) -> dict[str, Any]:
        """The job or pipeline after it."""
        kind = "pipelines" if is_pipeline(given) else "jobs"
        answer: dict[str, Any] = client.call("POST", f"/v1/{kind}/{given}/{self.action}", json=self.body)
        return answer

    def line(self, answer: dict[str, Any]) -> str:
        """How it is now, and what was asked for and is not so yet."""
        if is_pipeline(answer["id"]):
            view = PipelineView.model_validate(answer)
            going = [step.name for step in view.steps if self._is_coming(step.state, step.desired_state)]
            said = f"a {self.action} was asked for: {', '.join(going)}" if going else None
            return _line(view.id, word_text(view.word), said)
        job = JobView.model_validate(answer)
        said = self.said if not job.ended else None
        if self._is_coming(job.state, job.desired_state):
            said = f"a {self.action} was asked for"
        elif self.action in _BEGINS:
            said = f"attempt {job.attempt}"
        return _line(job.id, state_text(job.state), said)

    def _is_coming(self, state: State, desired: str) -> bool:
        return state in ACTIVE and desired == {"stop": "stopped", "pause": "paused"}.get(self.action)


def _line(given: str, state: str, said: str | None) -> str:
    return f"{given} {state}" + (f"; {marked(said)}" if said else "")


def end_of(
    client: Tidegate, asked: Asked, answers: Sequence[dict[str, Any]], *, shown: bool
) -> tuple[list[dict[str, Any]], bool]:
    """Wait for what was asked of each; how they are then, and whether all came to what was asked for."""
    ends, all_well = [], True
    for answer in answers:
        given = answer["id"]
        with says_that_it_goes_on(given):
            if is_pipeline(given):
                view = PipelineView.model_validate(answer)
                view = wait_pipeline(client, view) if asked.until is ended else settle(client, given)
                line, well = _end_of_pipeline(asked, view)
            else:
                job = wait(client, JobView.model_validate(answer), until=asked.until or ended)
                line, well = _end_of_job(asked, job)
        if shown and line != asked.line(answer):
            out.print(line)
        all_well = all_well and well
        kind = "pipelines" if is_pipeline(given) else "jobs"
        ends.append(client.call("GET", f"/v1/{kind}/{given}", patient=True))
    return ends, all_well


def _end_of_job(asked: Asked, job: JobView) -> tuple[str, bool]:
    said = None if job.state is State.SUCCEEDED else but_the_state(job.state, job.message)
    return _line(job.id, state_text(job.state), said), _is_well(
        asked, job.state is State.SUCCEEDED, job.state is State.PAUSED
    )


def _end_of_pipeline(asked: Asked, view: PipelineView) -> tuple[str, bool]:
    well = _is_well(asked, view.word is PipelineWord.SUCCEEDED, view.word is PipelineWord.PAUSED)
    return _line(view.id, word_text(view.word), view.message), well


def _is_well(asked: Asked, succeeded: bool, paused: bool) -> bool:
    """A stop is done whatever the end was; a pause once it is paused; what begins anew once it has succeeded."""
    return asked.action == "stop" or (paused if asked.action == "pause" else succeeded)
