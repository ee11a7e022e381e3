"""Where the runner's records lie in an attempt's directory on a cluster's shared root.

The directory itself is laid out as on the local backend, `<root>/work/<tenant>/<job>/a<attempt>`, so that the stager
works in it unchanged: staged directories, `logs/`, `home/`, `revoked`.
"""

from __future__ import annotations

CLAIM = "claim"
"""The first claim; a run of the same Slurm job after a requeue takes `claim.<restart>` beside it."""
REVOKED = "revoked"
STOP = "stop"
STARTED = "started"
STOP_SEEN = "stop_seen"
EXIT = "exit"
_OF_A_RESTART = (STARTED, STOP_SEEN, EXIT)


def environment_name(token: str) -> str:
    """The file of the environment's values of one submission: mode 0600, never in the script that Slurm keeps."""
    return f"env.{token}"


def claim_name(restart: int) -> str:
    """The claim that a run of this restart takes where an earlier run of its Slurm job has the first one."""
    return f"{CLAIM}.{restart:d}"


def record_name(kind: str, restart: int) -> str:
    """`started.0.json` and the like."""
    return f"{kind}.{restart:d}.json"


def split_record_name(name: str) -> tuple[str, int] | None:
    """(kind, restart) of a claim or record; None for another name. The first claim says its restart only inside: -1."""
    if name == CLAIM:
        return CLAIM, -1
    kind, _, rest = name.partition(".")
    number, _, suffix = rest.partition(".")
    if not (number.isascii() and number.isdigit()) or str(int(number[:9])) != number:
        return None
    if (kind == CLAIM and not _) or (kind in _OF_A_RESTART and suffix == "json"):
        return kind, int(number)
    return None
