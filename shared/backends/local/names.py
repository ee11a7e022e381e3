"""Names of submissions: made from deployment, job, attempt and launch token, and read back."""

from __future__ import annotations

_PART = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
# Leaves room in a file name of 255 bytes for the kind of record and a temporary's suffix.
SUBMISSION_LENGTH_MAX = 180


def is_name(text: str) -> bool:
    """May `text` be one component of a path: not empty, not hidden, nothing a path or a shell reads otherwise."""
    return 0 < len(text) <= 128 and not text.startswith((".", "-")) and _NAME.issuperset(text)


def submission_name(deployment: str, job: str, attempt: int, token: str) -> str:
    """`<deployment>.<job>.a<attempt>.<token>`: the same input always gives the same name."""
    for what, part in (("deployment", deployment), ("job", job), ("token", token)):
        if not part or not _PART.issuperset(part):
            raise ValueError(f"{what} {part!r} cannot be part of a submission's name: use a-z, 0-9 and '-'")
    if attempt < 1:
        raise ValueError(f"attempt {attempt} is not an attempt's number: the first attempt is 1")
    name = f"{deployment}.{job}.a{attempt}.{token}"
    if len(name) > SUBMISSION_LENGTH_MAX:
        raise ValueError(f"the submission's name {name!r} is longer than {SUBMISSION_LENGTH_MAX} characters")
    return name


def parse_submission_name(name: str) -> tuple[str, str, int, str] | None:
    """(deployment, job, attempt, token), or None for a name that `submission_name` never makes."""
    parts = name.split(".")
    if len(parts) != 4 or not parts[2].startswith("a") or not parts[2][1:].isascii() or not parts[2][1:].isdigit():
        return None
    deployment, job, attempt, token = parts[0], parts[1], int(parts[2][1:]), parts[3]
    try:
        made = submission_name(deployment, job, attempt, token)
    except ValueError:
        return None
    return (deployment, job, attempt, token) if made == name else None
