"""The specs of jobs, asked of `api` in bulk and kept: a digest never changes its meaning."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from shared.contracts.queries import SpecsAnswer, SpecsAsked
from shared.contracts.spec import JobSpec

Ask = Callable[[SpecsAsked], Awaitable[SpecsAnswer]]
Key = tuple[str, str]
_KEPT: Final = 500
"""Specs are 48 KB at most, so that this bounds the memory."""
_PER_QUESTION: Final = 15
"""So many of the largest specs fit into one answer of 1 MB, the broker's limit."""


class Specs:
    """A cache by (tenant, digest), the least recently used dropped first."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._known: OrderedDict[Key, JobSpec] = OrderedDict()

    async def get(self, wanted: Iterable[Key]) -> Mapping[Key, JobSpec]:
        """The specs that exist; raises RpcUnavailable while `api` does not answer."""
        keys = dict.fromkeys(wanted)
        found = {key: self._known[key] for key in keys if key in self._known}
        missing: dict[str, list[str]] = {}
        for tenant, digest in keys:
            if (tenant, digest) not in found:
                missing.setdefault(tenant, []).append(digest)
        questions = [
            SpecsAsked(tenant=tenant, digests=tuple(digests[start : start + _PER_QUESTION]))
            for tenant, digests in missing.items()
            for start in range(0, len(digests), _PER_QUESTION)
        ]
        answers = await asyncio.gather(*(self._ask(question) for question in questions))
        for question, answer in zip(questions, answers, strict=True):
            found |= {(question.tenant, digest): spec for digest, spec in answer.specs.items()}
        for key, spec in found.items():
            self._known[key] = spec
            self._known.move_to_end(key)
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return found
