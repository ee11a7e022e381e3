"""GPU time used, and the quotas that limit it."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, StrictInt
from starlette.responses import Response

from services.api.access import Caller
from services.api.context import AdminPart, Api, ApiPart, CallerPart, as_json, checked_id
from services.api.problems import Problem
from shared.contracts.queries import Quota, QuotaAnswer, QuotaSet, UsageAnswer, UsageAsked
from shared.contracts.subjects import is_tenant_name
from shared.lifecycle.explain import seconds

router = APIRouter()
_MOST: int = 1_000_000


class Limits(BaseModel):
    """Limits to set; null lifts one, and what is left out stays."""

    model_config = ConfigDict(extra="forbid")

    slots: StrictInt | None = Field(default=None, ge=0, le=_MOST)
    gpus: StrictInt | None = Field(default=None, ge=0, le=_MOST)


@router.get("/usage", responses={200: {"model": UsageAnswer}})
async def usage(
    api: ApiPart,
    caller: CallerPart,
    group_by: Literal["tenant", "user", "job"] = "tenant",
    job: Annotated[str | None, Query(description="of one job only")] = None,
) -> Response:
    """GPU time of the tenant in integer milliseconds; an admin who groups by tenant sees all tenants."""
    everybody = caller.is_admin and group_by == "tenant" and job is None
    if job is not None:
        await api.job(caller, checked_id(job))
    tenant = None if everybody else caller.tenant
    answer = await api.asking.usage(UsageAsked(tenant=tenant, job=job, group_by=group_by))
    rows = [row.model_dump() | {"gpu_seconds": seconds(row.gpu_milliseconds)} for row in answer.rows]
    rest = answer.rest
    more = None if rest is None else rest.model_dump() | {"gpu_seconds": seconds(rest.gpu_milliseconds)}
    return as_json({"rows": rows, "rest": more})


@router.get("/quotas", responses={200: {"model": QuotaAnswer}})
async def quotas(api: ApiPart, caller: CallerPart) -> Response:
    """The tenant's limits and what is held now; an admin sees all tenants'."""
    answer = await api.asking.quotas(None if caller.is_admin else caller.tenant)
    return Response(answer.model_dump_json(), media_type="application/json")


@router.get("/quotas/{tenant}", responses={200: {"model": Quota}})
async def quota(tenant: str, api: ApiPart, caller: CallerPart) -> Response:
    """One tenant's limits."""
    if tenant != caller.tenant and not caller.is_admin:
        raise Problem("forbidden", f"this token may see the quota of {caller.tenant} only")
    await _known(api, tenant)
    return _of(await api.asking.quotas(tenant), tenant)


@router.put("/quotas/{tenant}", responses={200: {"model": Quota}})
async def set_quota(tenant: str, body: Limits, api: ApiPart, caller: AdminPart) -> Response:
    """Set a tenant's limits. Jobs that run already go on."""
    await _known(api, tenant)
    fields = tuple(name for name in ("slots", "gpus") if name in body.model_fields_set)
    if not fields:
        raise Problem("invalid", "nothing is set: give slots, gpus or both, a number or null for no limit")
    asked = QuotaSet(tenant=tenant, slots=body.slots, gpus=body.gpus, fields=fields, actor=_actor(caller))
    return _of(await api.asking.set_quota(asked), tenant)


async def _known(api: Api, tenant: str) -> None:
    if not is_tenant_name(tenant) or not await api.access.has_tenant(tenant):
        raise Problem("not-found", f"there is no tenant {tenant[:60]!r}: making a token for it makes it")


def _of(answer: QuotaAnswer, tenant: str) -> Response:
    found = next((quota for quota in answer.quotas if quota.tenant == tenant), Quota(tenant=tenant))
    return Response(found.model_dump_json(), media_type="application/json")


def _actor(caller: Caller) -> str:
    return f"{caller.user} ({caller.tenant})"
