"""What a spec may say and would be ignored: what nothing in this version carries out is refused, and variables that
the backend sets itself are warned of. Pure."""

from collections.abc import Iterator
from typing import Final

from shared.contracts.snapshot import shown
from shared.contracts.spec import JobSpec

SET_BY_THE_BACKEND: Final = frozenset(
    {
        "HOME",
        "CUDA_VISIBLE_DEVICES",
        "TIDEGATE_JOB_ID",
        "TIDEGATE_RUN_ID",
        "TIDEGATE_ATTEMPT",
        "TIDEGATE_TENANT",
        "TIDEGATE_OUTPUT_DIR",
        "TIDEGATE_SUBMISSION",
    }
)
"""Variables of a command that have the backend's value, whatever was given."""


def not_carried_out(spec: JobSpec) -> str | None:
    """The sentence about the first field that would be ignored, None where everything is carried out."""
    field, given = next(_ignored(spec), (None, ""))
    if field is None:
        return None
    return f"spec.{field}: {given} was given, and the local backend of this server does not carry it out: leave it out"


def _ignored(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Field and what was given."""
    if spec.image is not None:
        yield "image", shown(spec.image)
    if spec.nodes > 1:
        yield "nodes", str(spec.nodes)
    for field, texts in (("secrets", spec.secrets), ("expect", spec.expect)):
        if texts:
            more = f" and {len(texts) - 1} more" if len(texts) > 1 else ""
            yield field, shown(texts[0]) + more


def overridden(spec: JobSpec) -> tuple[str, ...]:
    """The warning about variables whose given values the command will not see."""
    names = sorted(SET_BY_THE_BACKEND.intersection(spec.env))
    if not names:
        return ()
    return (f"spec.env: {', '.join(names)} was given, and the command does not see that: the backend sets it itself",)
