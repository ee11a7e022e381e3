"""Each answer that a person got is true: what was done is in the log once, what was refused is not, and every refusal
gives the sentence that was right for a version of the job which was there between the question and the answer."""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import prod
from typing import Final

import httpx

from shared.lifecycle.actions import command_of
from shared.lifecycle.advance import advance
from shared.lifecycle.inputs import AnyCommand, Retry, Snooze, Stop
from shared.lifecycle.pipeline import PipelineCommand, ask_pipeline
from shared.lifecycle.record import JobRecord
from shared.lifecycle.states import TERMINAL, State
from tests.chaos.person import Try
from tests.chaos.versions import Asked, Versions

_DONE: Final = (httpx.codes.OK, httpx.codes.NO_CONTENT)
_COMBINATIONS: Final = 3000
"""Of the versions of a pipeline's steps: where there were more, its sentence is not looked up."""
_NOW: Final = datetime(2000, 1, 1, tzinfo=UTC)


def untrue_answers(
    tries: Sequence[Try], told: Mapping[str, Versions], pipelines: Mapping[str, tuple[str, ...]]
) -> list[str]:
    """What is wrong with the answers, and with the logs beside them."""
    judge = _Judge(told, pipelines)
    unasked = judge.match(tries)
    return [*unasked, *(f"{one}: {why}" for one in tries for why in judge.untrue(one))]


class _Judge:
    def __init__(self, told: Mapping[str, Versions], pipelines: Mapping[str, tuple[str, ...]]) -> None:
        self._told = told
        self._pipelines = pipelines
        self._did: dict[Try, list[Asked]] = defaultdict(list)

    def match(self, tries: Sequence[Try]) -> Iterator[str]:
        """Give each command of the logs to a request of that time: what is left was asked by nobody who was not
        refused, or was done twice."""
        pipeline_of = {job: pipeline for pipeline, steps in self._pipelines.items() for job in steps}
        could: dict[tuple[str, str, bool, bool], list[Try]] = defaultdict(list)
        for one in tries:
            if one.status is None or one.status in _DONE:
                could[one.target, one.verb, one.force, one.by_admin].append(one)
        for job, versions in self._told.items():
            given: set[Try] = set()
            for asked in sorted(versions.asked, key=lambda asked: asked.at):
                key = (asked.verb, asked.force, asked.by_admin)
                whose = [*could[job, *key], *could[pipeline_of.get(job, ""), *key]]
                fits = [one for one in whose if one not in given and one.sent <= asked.at <= one.answered]
                if fits:
                    one = min(fits, key=lambda one: (one.target != job, one.answered))  # a pipeline has others
                    given.add(one)
                    self._did[one].append(asked)
                else:
                    yield f"the log of {job} has a {asked.verb} that nobody asked for, or one for two: {asked}"

    def untrue(self, one: Try) -> Iterator[str]:
        """Why an answer is not true."""
        if one.status is None:
            return
        of_pipeline = one.target in self._pipelines
        if one.status in _DONE:
            if one not in self._did:
                yield from self._not_so_already(one)
            if one.view is not None and not of_pipeline:
                yield from self._shows_another(one)
        elif one.status == httpx.codes.NOT_FOUND:
            steps = self._pipelines.get(one.target, (one.target,))
            if not all(self._told[job].deleted_by(one.answered) for job in steps):
                yield "it was there"
        elif one.status == httpx.codes.CONFLICT:
            right = self._right_of_pipeline(one) if of_pipeline else self._right_of_job(one)
            if not right:
                yield "no version of that time is a reason"
        else:
            yield "that is no answer"

    def _not_so_already(self, one: Try) -> Iterator[str]:
        """Nothing was done: everything has to have been so."""
        if one.verb == "delete":
            if not self._told[one.target].deleted_by(one.answered):
                yield "it was not deleted, and nothing was done"
            return
        command = _command(one)
        for job in self._pipelines.get(one.target, (one.target,)):
            met = self._told[job].met(one.sent, one.answered)
            ignored = ("ignored", "refused") if one.target in self._pipelines else ("ignored",)
            if not any(_outcome(record, command)[0] in ignored or record.deleted for record in met):
                yield f"{job} was not so, and nothing was done"

    def _shows_another(self, one: Try) -> Iterator[str]:
        assert one.view is not None
        shown = [version.record for version in self._told[one.target].all if version.record.seq == one.view["seq"]]
        if not shown or (shown[0].state, shown[0].attempt) != (one.view["state"], one.view["attempt"]):
            yield f"it shows {one.view['state']} in version {one.view['seq']}, and the log {shown[:1]}"

    def _right_of_job(self, one: Try) -> bool:
        why = one.detail.partition(" is not possible: ")[2] or one.detail
        versions = self._told[one.target]
        met = versions.met(one.sent, one.answered)
        if any(_outcome(record, _command(one)) == ("refused", why) for record in met):
            return True
        if met[0].pipeline is None:
            return False
        steps = self._pipelines[met[0].pipeline.id]
        if why.startswith(f"its pipeline {met[0].pipeline.id} has not ended"):
            around = [record for job in steps for record in self._told[job].met(one.sent, one.answered)]
            return any(record.state not in TERMINAL for record in around)
        if one.verb == "delete" and self._names_a_step_without_success(why, one, steps):
            return True
        return self._names_a_deleted_step(why, steps, one.answered)

    def _right_of_pipeline(self, one: Try) -> bool:
        why = one.detail.partition(" is not possible: ")[2] or one.detail
        steps = self._pipelines[one.target]
        if self._names_a_deleted_step(why, steps, one.answered):
            return True
        met = [self._told[job].met(one.sent, one.answered) for job in steps]
        if prod(map(len, met)) > _COMBINATIONS:
            return True
        command = _command(one)
        assert isinstance(command, PipelineCommand)
        for records in itertools.product(*met):
            there = [record for record in records if not record.deleted]
            if there and ask_pipeline(there, command, _NOW).outcome.why == why:
                return True
        return False

    def _names_a_step_without_success(self, why: str, one: Try, steps: Sequence[str]) -> bool:
        later = [job for job in steps if job > one.target]
        met = [record for job in later for record in self._told[job].met(one.sent, one.answered)]
        failed = {_step_name(record) for record in met if record.state in TERMINAL - {State.SUCCEEDED}}
        return any(why.startswith(f"step {name} did not succeed, and could not be retried") for name in failed)

    def _names_a_deleted_step(self, why: str, steps: Sequence[str], moment: float) -> bool:
        named = [job for job in steps if f"step {_step_name(self._told[job].last)} was deleted" in why]
        return any(self._told[job].deleted_by(moment) for job in named)


def _command(one: Try) -> AnyCommand:
    if one.verb == "snooze":
        return Snooze(actor="somebody", at=_NOW, until=_NOW)
    command = command_of(one.verb, "somebody", _NOW, by_admin=one.admin)
    return command.model_copy(update={"force": one.force}) if isinstance(command, Stop | Retry) else command


def _outcome(record: JobRecord, command: AnyCommand) -> tuple[str, str | None]:
    outcome = advance(record, [command], _NOW).outcomes[0]
    return outcome.what, outcome.why


def _step_name(record: JobRecord) -> str:
    assert record.pipeline is not None, "a step knows its pipeline"
    return record.pipeline.step
