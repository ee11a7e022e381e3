"""What a spec may say and nothing in this version carries out: better refused than ignored. Pure."""

from collections.abc import Iterator

from shared.contracts.snapshot import shown
from shared.contracts.spec import JobSpec


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
