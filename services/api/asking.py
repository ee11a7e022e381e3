"""Questions to the other services, typed: what is asked, how long it may take, and what is said where none answers."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import orjson
from pydantic import BaseModel

from services.api.problems import Problem, unavailable
from shared.contracts import queries as q
from shared.contracts.subjects import SERVICES
from shared.lifecycle.record import Resources
from shared.runtime.errors import RpcError, RpcUnavailable
from shared.runtime.service import Service

Answer = TypeVar("Answer", bound=BaseModel)

_QUICK_SECONDS: Final = 0.5  # beside a request that can be answered without it
_FITS_AT_ONCE: Final = 1000  # so that the question fits into a message
_STILL: Final = "submitting, listing, stopping and the event streams still work"


class Asking:
    """Calls of `rpc.v1.<service>.<method>`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def fits(self, tenant: str, resources: Sequence[Resources]) -> Sequence[str | None] | str:
        """Per resources the sentence why such a job could never pass; a string says why it could not be asked."""
        why_not: list[str | None] = []
        for first in range(0, len(resources), _FITS_AT_ONCE):
            asked = q.FitAsked(tenant=tenant, resources=tuple(resources[first : first + _FITS_AT_ONCE]))
            try:
                answer = await self._quick("gatekeeper", "fits", asked)
            except (RpcUnavailable, RpcError) as error:
                return "the gatekeeper did not answer" if isinstance(error, RpcUnavailable) else str(error)
            why_not += q.FitAnswer.model_validate_json(answer).why_not
        return why_not

    async def positions(self, jobs: Sequence[str]) -> q.PositionsAnswer:
        """Where waiting jobs stand; empty where the gatekeeper does not say."""
        if jobs:
            try:
                answer = await self._quick("gatekeeper", "positions", q.PositionsAsked(jobs=tuple(jobs)))
                return q.PositionsAnswer.model_validate_json(answer)
            except (RpcUnavailable, RpcError):
                pass
        return q.PositionsAnswer(positions={})

    async def quotas(self, tenant: str | None) -> q.QuotaAnswer:
        """The limits of a tenant, or of all."""
        asked = q.QuotaAsked(tenant=tenant)
        return await self._ask("gatekeeper", "quota_get", asked, q.QuotaAnswer, "quotas cannot be read")

    async def set_quota(self, asked: q.QuotaSet) -> q.QuotaAnswer:
        """Change a tenant's limits; the answer holds them as they are then."""
        return await self._ask("gatekeeper", "quota_set", asked, q.QuotaAnswer, "quotas cannot be changed")

    async def logs(self, asked: q.LogsAsked) -> q.LogsAnswer:
        """A piece of a log."""
        return await self._ask("watcher", "logs", asked, q.LogsAnswer, "logs cannot be read")

    async def endpoint(self, tenant: str, job: str, attempt: int) -> q.EndpointAnswer:
        """Where a workstation's command listens."""
        asked = q.EndpointAsked(tenant=tenant, job=job, attempt=attempt)
        return await self._ask("watcher", "endpoint", asked, q.EndpointAnswer, "workstations cannot be reached")

    async def outputs(self, tenant: str, job: str) -> q.OutputsAnswer:
        """The newest verified outputs: the manifest, or its name in the blob store where it is large."""
        asked = q.OutputsAsked(tenant=tenant, job=job)
        return await self._ask("stager", "outputs", asked, q.OutputsAnswer, "outputs cannot be listed")

    async def usage(self, asked: q.UsageAsked) -> q.UsageAnswer:
        """GPU time."""
        return await self._ask("metering", "usage", asked, q.UsageAnswer, "usage cannot be read")

    async def dead_letters(self) -> tuple[list[dict[str, Any]], list[str]]:
        """The dead letters of all services, and the services that did not answer."""
        answers = await asyncio.gather(*(self._dead_letters_of(name) for name in SERVICES))
        silent = [name for name, answer in zip(SERVICES, answers, strict=True) if answer is None]
        return [letter for answer in answers for letter in answer or ()], silent

    async def dead_letter(self, service: str, method: str, number: int) -> Any:
        """`show` or `retry` one letter of a service."""
        request = orjson.dumps({"id": number})
        try:
            if service == self._service.name:
                return orjson.loads(await self._service.dead_letters.queries()[f"dead_letters_{method}"](request))
            return orjson.loads(await self._service.call(service, f"dead_letters_{method}", request, 15.0))
        except LookupError as error:
            raise Problem("not-found", str(error)) from error
        except RpcUnavailable as error:
            raise unavailable(service, "its dead letters cannot be reached", _STILL) from error
        except RpcError as error:
            raise _of_error(service, error) from error

    async def _dead_letters_of(self, service: str) -> list[dict[str, Any]] | None:
        try:
            if service == self._service.name:
                answer = await self._service.dead_letters.ls(b"{}")
            else:
                answer = await self._service.call(service, "dead_letters_ls", b"{}")
        except (RpcUnavailable, RpcError):
            return None
        return [{"service": service, **letter} for letter in orjson.loads(answer)]

    async def _quick(self, service: str, method: str, asked: BaseModel) -> bytes:
        return await self._service.call(service, method, asked.model_dump_json().encode(), _QUICK_SECONDS)

    async def _ask(self, service: str, method: str, asked: BaseModel, answer: type[Answer], so: str) -> Answer:
        try:
            body = await self._service.call(service, method, asked.model_dump_json().encode(), 5.0)
        except RpcUnavailable as error:
            raise unavailable(service, so, _STILL) from error
        except RpcError as error:
            raise _of_error(service, error) from error
        return answer.model_validate_json(body)


def _of_error(service: str, error: RpcError) -> Problem:
    """The other side's sentence, without the name of its exception."""
    name, _, said = str(error).partition(": ")
    if name == "LookupError":
        return Problem("not-found", said)
    if name == "ValueError":
        return Problem("invalid", said)
    return Problem(
        "service-error", f"{service} answered with an error ({name}): see its log with tidegate logs {service}"
    )
