"""Working directories by content: sent once, verified while they come in, known by their digest ever after."""

import hashlib
import re
from typing import Final

from fastapi import APIRouter, Request
from obstore import open_writer_async, rename_async
from starlette.responses import Response

from services.api.access import Caller
from services.api.context import Api, ApiPart, CallerPart, as_json
from services.api.problems import Problem
from services.api.stored import UPLOAD_HOURS, Upload

router = APIRouter()
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_BUFFER_BYTES: Final = 5 * 1024 * 1024  # the smallest part that object stores take: memory per upload


@router.head("/snapshots/{digest}")
async def known(digest: str, api: ApiPart, caller: CallerPart) -> Response:
    """200 where the tenant has stored it, so that nothing is sent twice; else 404."""
    return Response(status_code=200 if await api.stored.has(caller.tenant, _checked(digest)) else 404)


@router.put("/snapshots/{digest}", status_code=201, responses={200: {"description": "it was known already"}})
async def store(digest: str, request: Request, api: ApiPart, caller: CallerPart) -> Response:
    """Store a packed directory; its sha256 has to be the one in the path."""
    upload = await api.stored.begin(caller.tenant, _checked(digest))
    if upload is None:
        async for _ in request.stream():  # read to the end: a client that is cut off reports a broken connection
            pass
        return as_json({"digest": digest, "stored": False})
    size = await _store(api, caller, digest, upload, request)
    return as_json({"digest": digest, "stored": True, "size_bytes": size}, 201)


async def _store(api: Api, caller: Caller, digest: str, upload: Upload, request: Request) -> int:
    """Receive it and know it by its digest; its size."""
    try:
        size = await _receive(api, digest, upload, request)
        if not await api.stored.remember(caller.tenant, digest, size, upload):
            raise Problem("conflict", f"the upload took more than {UPLOAD_HOURS} hours: send the file again, faster")
    except BaseException:
        await api.stored.remove_soon([upload.incoming, upload.whole])
        raise
    return size


async def _receive(api: Api, digest: str, upload: Upload, request: Request) -> int:
    """Write what comes in under a name of its own, and let the stager find it only when it is whole and right."""
    sum_, size = hashlib.sha256(), 0
    async with open_writer_async(api.blobs, upload.incoming, buffer_size=_BUFFER_BYTES) as writer:
        async for chunk in request.stream():
            sum_.update(chunk)
            size += len(chunk)
            await writer.write(chunk)
    if f"sha256:{sum_.hexdigest()}" != digest:
        detail = f"{digest} was announced, and {size} bytes came whose digest is sha256:{sum_.hexdigest()}"
        raise Problem("invalid", f"{detail}: send the file again")
    await rename_async(api.blobs, upload.incoming, upload.whole)
    return size


def _checked(digest: str) -> str:
    if not _DIGEST.fullmatch(digest):
        raise Problem("invalid", f"{digest[:80]!r} is no snapshot's digest: it is sha256: and 64 hexadecimal digits")
    return digest
