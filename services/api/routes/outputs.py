"""What a job left behind: the manifest, and each file out of the blob store."""

import re
from typing import Annotated, Final

from fastapi import APIRouter, Header
from obstore import get_async
from obstore.exceptions import NotFoundError
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.responses import Response, StreamingResponse

from services.api.access import Caller
from services.api.context import Api, ApiPart, CallerPart, checked_id
from services.api.problems import Problem
from shared.contracts.queries import Manifest, OutputFile
from shared.lifecycle.states import TERMINAL


class _OutputPath(PathConvertor):
    """Any path: a file's name may hold a line end, at which Starlette's own `path` stops."""

    regex = "(?s:.*)"


register_url_convertor("output", _OutputPath())
router = APIRouter()
_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
_MANIFESTS_KEPT: Final = 4


@router.get("/jobs/{job}/outputs", responses={200: {"model": Manifest}})
async def manifest(job: str, api: ApiPart, caller: CallerPart) -> Response:
    """The newest verified outputs: path, size and sha256 of each file."""
    return Response((await _manifest(api, caller, job)).model_dump_json(), media_type="application/json")


@router.get("/jobs/{job}/outputs/{path:output}", responses={200: {"content": {"application/octet-stream": {}}}})
async def file(
    job: str, path: str, api: ApiPart, caller: CallerPart, range_: Annotated[str | None, Header(alias="Range")] = None
) -> Response:
    """The bytes of one file, or a range of them."""
    listed = await _manifest(api, caller, job)
    found = next((entry for entry in listed.files if entry.path == path), None)
    if found is None:
        raise Problem("not-found", f"job {job} has no output {path[:200]!r}: GET /v1/jobs/{job}/outputs lists them")
    if found.kind == "directory":
        raise Problem("invalid", f"{path[:200]!r} is a folder: fetch the files in it one by one")
    begin, end = _range(range_, found.size_bytes)
    headers = {
        "Content-Length": str(end - begin),
        "Accept-Ranges": "bytes",
        "Tidegate-Sha256": found.sha256,
        "X-Content-Type-Options": "nosniff",
    }
    if range_ is not None:
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{found.size_bytes}"
    status = 200 if range_ is None else 206
    if begin == end:
        return Response(b"", status, headers, "application/octet-stream")
    return await _from_store(api, _own(caller, listed.prefix + found.key), found, (begin, end), status, headers)


async def _from_store(
    api: Api, key: str, found: OutputFile, part: tuple[int, int], status: int, headers: dict[str, str]
) -> Response:
    try:
        blob = await get_async(api.blobs, key, options={"range": part})
    except (NotFoundError, FileNotFoundError):
        detail = f"{found.path!r} is in the manifest and not in the blob store any more: ask the operator"
        raise Problem("not-found", detail) from None
    return StreamingResponse(blob.stream(), status, headers, "application/octet-stream")


async def _manifest(api: Api, caller: Caller, job: str) -> Manifest:
    state = await api.reads.state(caller.tenant, checked_id(job))
    if state is None:
        raise await api.no_job(caller, job)
    answer = await api.asking.outputs(caller.tenant, job)
    if answer.key is not None:
        return await _large_manifest(api, caller, answer.key)
    if answer.manifest is None:
        ended = state[0] in TERMINAL
        why = "it has ended without any" if ended else f"it is {state[0]}, and they come with its end"
        raise Problem("not-found", f"job {job} has no outputs: {why}", state=state[0])
    return answer.manifest


async def _large_manifest(api: Api, caller: Caller, key: str) -> Manifest:
    """From the blob store; kept for the files that are fetched next, since a manifest's name never gets another one."""
    if key not in api.manifests:
        blob = await get_async(api.blobs, _own(caller, key))
        api.manifests[key] = Manifest.model_validate_json(bytes(await blob.bytes_async()))
        while len(api.manifests) > _MANIFESTS_KEPT:
            del api.manifests[next(iter(api.manifests))]
    return api.manifests[key]


def _own(caller: Caller, key: str) -> str:
    """The name in the blob store, which has to be the caller's tenant's own."""
    if not key.startswith(f"{caller.tenant}/outputs/"):
        raise Problem("internal", "the stager named outputs of another tenant: they are not shown")
    return key


def _range(given: str | None, size: int) -> tuple[int, int]:
    """The half-open range that one `bytes=` range asks for (RFC 9110); several at once are not offered."""
    if given is None:
        return 0, size
    match = _RANGE.fullmatch(given.strip())
    if match is None or (not match[1] and not match[2]):
        raise Problem("invalid", f"Range: {given[:60]!r} was given; ask for one range, such as bytes=0-1023")
    if not match[1]:
        begin, end = max(0, size - int(match[2])), size
    else:
        begin, end = int(match[1]), min(size, int(match[2]) + 1 if match[2] else size)
    if begin >= end:
        detail = f"Range: {given[:60]} was given, and the file has {size} bytes"
        raise Problem("range-not-satisfiable", detail, headers={"Content-Range": f"bytes */{size}"})
    return begin, end
