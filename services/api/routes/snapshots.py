"""Working directories by content: sent once, verified while they come in, known by their digest ever after."""

import hashlib
import re
import uuid
from contextlib import suppress
from typing import Final

from fastapi import APIRouter, Request
from obstore import delete_async, open_writer_async, rename_async
from starlette.responses import Response

from services.api.access import Caller
from services.api.context import Api, ApiPart, CallerPart, as_json
from services.api.problems import Problem

router = APIRouter()
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_BUFFER_BYTES: Final = 5 * 1024 * 1024  # the smallest part that object stores take: memory per upload

REMEMBER: Final = """
INSERT INTO snapshots (tenant, digest, size_bytes) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING
"""


def snapshot_path(tenant: str, digest: str) -> str:
    """Where a tenant's snapshot lies in the blob store."""
    return f"{tenant}/snapshots/{digest.removeprefix('sha256:')}.tar.gz"


@router.head("/snapshots/{digest}")
async def known(digest: str, api: ApiPart, caller: CallerPart) -> Response:
    """200 where the tenant has stored it, so that nothing is sent twice; else 404."""
    found = await api.reads.known_snapshots(caller.tenant, [_checked(digest)])
    return Response(status_code=200 if found else 404)


@router.put("/snapshots/{digest}", status_code=201, responses={200: {"description": "it was known already"}})
async def store(digest: str, request: Request, api: ApiPart, caller: CallerPart) -> Response:
    """Store a packed directory; its sha256 has to be the one in the path."""
    if await api.reads.known_snapshots(caller.tenant, [_checked(digest)]):
        async for _ in request.stream():  # read to the end: a client that is cut off reports a broken connection
            pass
        return as_json({"digest": digest, "stored": False})
    size = await _receive(api, caller, digest, request)
    await api.database.execute(REMEMBER, caller.tenant, digest, size)
    return as_json({"digest": digest, "stored": True, "size_bytes": size}, 201)


async def _receive(api: Api, caller: Caller, digest: str, request: Request) -> int:
    """Write what comes in under a name of its own, and give it its own only when it is whole and right."""
    incoming = f"{caller.tenant}/incoming/{uuid.uuid4().hex}"
    sum_, size = hashlib.sha256(), 0
    try:
        async with open_writer_async(api.blobs, incoming, buffer_size=_BUFFER_BYTES) as writer:
            async for chunk in request.stream():
                sum_.update(chunk)
                size += len(chunk)
                await writer.write(chunk)
        if f"sha256:{sum_.hexdigest()}" != digest:
            detail = f"{digest} was announced, and {size} bytes came whose digest is sha256:{sum_.hexdigest()}"
            raise Problem("invalid", f"{detail}: send the file again")
        await rename_async(api.blobs, incoming, snapshot_path(caller.tenant, digest))
    except BaseException:
        with suppress(Exception):
            await delete_async(api.blobs, incoming)
        raise
    return size


def _checked(digest: str) -> str:
    if not _DIGEST.fullmatch(digest):
        raise Problem("invalid", f"{digest[:80]!r} is no snapshot's digest: it is sha256: and 64 hexadecimal digits")
    return digest
