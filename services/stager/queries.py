"""What others may ask about the stager's slice."""

import asyncio
from typing import Final

from services.stager.blobs import Blobs, NotStored
from services.stager.store import Store
from shared.contracts.queries import Manifest, OutputsAnswer, OutputsAsked

_IN_A_MESSAGE_BYTES: Final = 500_000


class Outputs:
    """Answers `outputs`."""

    def __init__(self, store: Store, blobs: Blobs) -> None:
        self._store = store
        self._blobs = blobs

    async def asked(self, request: bytes) -> bytes:
        """`OutputsAsked` -> `OutputsAnswer`: the newest outputs that were copied back, of the asking tenant only."""
        asked = OutputsAsked.model_validate_json(request)
        key = await self._store.outputs(asked.tenant, asked.job)
        try:
            answer = OutputsAnswer(manifest=None) if key is None else await self._named(key)
        except NotStored:  # the job was deleted, and a restore of the database brought it back
            answer = OutputsAnswer(manifest=None)
        return answer.model_dump_json().encode()

    async def _named(self, key: str) -> OutputsAnswer:
        if await asyncio.to_thread(self._blobs.size, key) > _IN_A_MESSAGE_BYTES:
            return OutputsAnswer(manifest=None, key=key)
        manifest = Manifest.model_validate_json(await asyncio.to_thread(self._blobs.get, key))
        ordered = manifest.model_copy(update={"files": tuple(sorted(manifest.files, key=lambda file: file.path))})
        return OutputsAnswer(manifest=ordered)
