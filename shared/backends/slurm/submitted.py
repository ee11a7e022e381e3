"""What sbatch printed: the id of the job, and the cluster where it names one."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PARSABLE = re.compile(r"([0-9]{1,10})(?:;(\S+))?")
_SENTENCE = re.compile(r"Submitted batch job ([0-9]{1,10})(?: on cluster (\S+))?\.?")


@dataclass(frozen=True, slots=True)
class Printed:
    id: str
    cluster: str | None


def parse_submitted(text: str) -> Printed | None:
    """The id in what sbatch printed, among the lines of a banner; None where no line, or more than one, is one.

    `--parsable` gives `5001` or `5001;alpha`; a wrapper around sbatch may print the sentence all the same.
    """
    found: list[Printed] = []
    for line in text.splitlines():
        match = _PARSABLE.fullmatch(line.strip()) or _SENTENCE.fullmatch(line.strip())
        if match and int(match[1]) > 0:
            found.append(Printed(match[1], match[2]))
    return found[0] if len(set(found)) == 1 else None
