"""Which script a command line hands to an interpreter, where that is certain.

Only what is certain is named: an option that is not known here ends the search, because its value could be mistaken for
the script. Sources: the manual pages python(1), bash(1), dash(1), perl(1).
"""

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Interpreter:
    """How an interpreter reads its command line. `flags` are letters without a value, `valued` take the next word (or
    the rest of theirs), `ends` mean that no script follows."""

    name: str
    flags: str = ""
    valued: str = ""
    ends: str = ""
    long_flags: frozenset[str] = frozenset()
    searches_path: bool = False
    """A script without a slash that is not in the working directory is looked for on PATH."""


@dataclass(frozen=True, slots=True)
class Script:
    """A file that the interpreter will read first."""

    path: str
    searches_path: bool


@dataclass(frozen=True, slots=True)
class Module:
    """A module that `python -m` will look for, in the working directory and elsewhere."""

    name: str


_PYTHON: Final = Interpreter("python", flags="bBdEiIOPqRsSuvx", valued="WX", ends="chmV?")
_SHELL: Final = Interpreter(
    "sh",
    flags="abefhiklmnpruvxBCEHPT",
    valued="oO",
    ends="cs",
    long_flags=frozenset({"--login", "--norc", "--noprofile", "--posix", "--restricted", "--verbose"}),
    searches_path=True,
)
_PERL: Final = Interpreter("perl", flags="acfnpsStTuUwWX", valued="I", ends="eEhvV")
_PLAIN: Final = Interpreter("other")
_NAMES: Final = (
    (re.compile(r"(python|pypy)(\d+(\.\d+)?)?"), _PYTHON),
    (re.compile(r"bash|sh|dash|ksh|zsh"), _SHELL),
    (re.compile(r"perl(5(\.\d+)*)?"), _PERL),
    (re.compile(r"ruby|node|Rscript|julia|lua|php"), _PLAIN),
)
_SUFFIXES: Final = frozenset(
    {".py", ".sh", ".bash", ".zsh", ".ksh", ".pl", ".rb", ".js", ".mjs", ".cjs", ".R", ".r", ".jl", ".lua", ".php"}
)


def script_of(command: Sequence[str]) -> Script | Module | None:
    """The script or module that the command certainly starts with; None where there is none, or it is not certain."""
    interpreter = _interpreter(command[0])
    if interpreter is None:
        return None
    words = iter(command[1:])
    for word in words:
        if word == "--":
            word = next(words, "")
        elif word.startswith("--"):
            if word not in interpreter.long_flags:
                return None
            continue
        elif word.startswith(("-", "+")) and len(word) > 1:
            rest = _options(interpreter, word[1:])
            if rest is None:
                return _module(interpreter, word, next(words, ""))
            if rest:
                next(words, None)
            continue
        return Script(word, interpreter.searches_path) if _looks_like_a_file(word) else None
    return None


def _interpreter(program: str) -> Interpreter | None:
    name = posixpath.basename(program)
    return next((found for pattern, found in _NAMES if pattern.fullmatch(name)), None)


def _options(interpreter: Interpreter, letters: str) -> bool | None:
    """Whether the last of these options takes the next word; None where the search ends."""
    for place, letter in enumerate(letters):
        if letter in interpreter.valued:
            return place == len(letters) - 1
        if letter not in interpreter.flags:
            return None
    return False


def _module(interpreter: Interpreter, word: str, following: str) -> Module | None:
    if interpreter is not _PYTHON or "m" not in word or not set(word[1 : word.index("m")]) <= set(_PYTHON.flags):
        return None
    name = word[word.index("m") + 1 :] or following
    return Module(name) if name else None


def _looks_like_a_file(word: str) -> bool:
    return word not in ("", "-") and ("/" in word or posixpath.splitext(word)[1] in _SUFFIXES)
