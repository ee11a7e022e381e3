"""Job events of the lost time: after a restore of the database some are still on their way.

A job that was submitted after the backup is in no record any more, and one from before it may have been taken back. So
an event of an earlier epoch is not believed: `api` is asked about its job, and what it answers is handled instead.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from shared.contracts.queries import NewestAnswer, NewestAsked
from shared.lifecycle.facts import Frozen
from shared.runtime.consume import Handler
from shared.runtime.messages import Delivery
from shared.runtime.service import Service

_ASKED_AT_ONCE: Final = 100


class _Job(Frozen):
    id: str
    epoch: int


class _Event(Frozen):
    job: _Job


def without_lost_time(service: Service, handler: Handler) -> Handler:
    """The handler, which gets no job event of an epoch before the service's own.

    In place of those of one job it gets the job's newest event. One that `api` does not know is nobody's: nothing is
    begun for it, and nothing that is there is ended. While `api` does not answer the events come again.
    """

    async def believed(deliveries: list[Delivery]) -> None:
        epoch = service.standing.epoch
        old = {job.id: delivery for delivery in deliveries if epoch > 1 and (job := _job(delivery.body)).epoch < epoch}
        if old:
            lost = await _asked(service, list(old))
            news = [delivery for delivery in deliveries if _job(delivery.body).epoch >= epoch]
            deliveries = [*news, *(replace(old[job], body=body) for job, body in lost.items())]
            if len(lost) < len(old):
                service.log.warning(
                    "events of jobs that the restored database does not know", jobs=len(old) - len(lost)
                )
        if deliveries:
            await handler(deliveries)

    return believed


def _job(body: bytes) -> _Job:
    return _Event.model_validate_json(body).job


async def _asked(service: Service, jobs: Sequence[str]) -> dict[str, bytes]:
    """The newest event of each of these jobs that is known."""
    questions = [
        NewestAsked(jobs=tuple(jobs[start : start + _ASKED_AT_ONCE])) for start in range(0, len(jobs), _ASKED_AT_ONCE)
    ]
    answers = await asyncio.gather(
        *(service.call("api", "newest", question.model_dump_json().encode()) for question in questions)
    )
    bodies = [event.encode() for answer in answers for event in NewestAnswer.model_validate_json(answer).events]
    return {_job(body).id: body for body in bodies}
