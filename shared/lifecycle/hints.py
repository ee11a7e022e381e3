"""What to do next about a job that has ended or is paused: only what its record permits. Pure."""

from typing import Final

from shared.lifecycle.reasons import REASONS, EndReason
from shared.lifecycle.record import JobRecord
from shared.lifecycle.usage import remaining_seconds

_RETRY: Final = "tidegate retry {job}"


def hint(reason: EndReason, record: JobRecord) -> str | None:
    """What to do next, none where there is nothing to do."""
    text = REASONS[reason].hint
    if text is None:
        return None
    if _RETRY in text and (instead := _instead_of_a_retry(record)) is not None:
        kept = "what came back is in tidegate outputs {job}; " if reason is EndReason.COPY_BACK_FAILED else ""
        text = kept + instead
    if record.kind == "workstation":
        text = text.replace("tidegate resume", "tidegate workstation resume")
    return text.format(job=record.id)


def _instead_of_a_retry(record: JobRecord) -> str | None:
    """What is right where a retry by hand would be refused."""
    if record.retries.by_hand >= record.retries.by_hand_budget:
        return f"its budget of {record.retries.by_hand_budget} retries by hand is spent: submit it again"
    if record.pipeline is not None and not record.pipeline.upstream_done:
        return f"start it again with its pipeline: tidegate retry {record.pipeline.id}"
    if remaining_seconds(record) == 0:
        return "its maximum lifetime is used up: start another workstation"
    return None
