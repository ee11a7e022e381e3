"""The host's command line, read without argparse: what the host imports, every supervisor carries."""

from __future__ import annotations

import sys

USAGE = "usage: python -m shared.backends.local.host --root DIR [--virtual-gpus N] [--slots N] [--hide DIR]..."
SLOTS_DEFAULT = 64
VIRTUAL_GPUS_MAX = 1024


class Options:
    """What the command line says."""

    def __init__(self) -> None:
        self.root = ""
        self.virtual_gpus: int | None = None
        self.slots = SLOTS_DEFAULT
        self.hide: list[str] = []


def parse(arguments: list[str]) -> Options:
    """Ends the process with status 2 and a sentence when the line is wrong."""
    options = Options()
    rest = list(arguments)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name in ("-h", "--help"):
            raise SystemExit(USAGE)
        if name not in ("--root", "--virtual-gpus", "--slots", "--hide"):
            raise refusal(f"{name!r} is not an option")
        if not equals:
            if not rest:
                raise refusal(f"{name} needs a value")
            value = rest.pop(0)
        if name == "--root":
            options.root = value
        elif name == "--hide":
            options.hide.append(value)
        elif name == "--slots":
            options.slots = _number(name, value, 1, 100_000)
        else:
            options.virtual_gpus = _number(name, value, 0, VIRTUAL_GPUS_MAX)
    if not options.root:
        raise refusal("--root is missing: give the directory for the records and work of local jobs")
    return options


def _number(name: str, text: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        raise refusal(f"{name} is {text!r}; give a number from {least} to {most}")
    return int(text)


def refusal(sentence: str) -> SystemExit:
    """To be raised: says what is wrong and ends the process with status 2."""
    sys.stderr.write(f"{sentence}\n{USAGE}\n")
    return SystemExit(2)
