"""Copies the outputs of one attempt back. Blocking, for a worker thread; nothing is told here.

Everything goes below a name that only this lease uses; the guarded row that names the manifest makes it visible.
"""

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, Final

from services.stager.blobs import Blobs, GoOn, StoreError
from services.stager.facts import Result
from services.stager.leases import Claim
from services.stager.manifest import ManifestFile, as_text
from services.stager.marks import Mark
from services.stager.patterns import Patterns
from services.stager.underway import Trace
from services.stager.walk import Found, FoundFolder, Loss, Refused, TooMany, Walk, refusal
from shared.contracts.queries import OutputFile, OutputFolder, output_key
from shared.contracts.snapshot import shown
from shared.lifecycle.facts import MAX_ITEMS
from shared.runtime import failpoints

_SAID: Final = 3
_STORE_PAUSES_SECONDS: Final = (0.2, 1.0)
_READS: Final = 3
_MOST_PROBLEMS: Final = 100
_MOST_LOST: Final = 1000
_MOST_NAMES: Final = 100_000
_THE_REST: Final = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one attempt may copy back."""

    files: int
    bytes: int


class ChangedMeanwhile(Exception):
    """A file had another size or time after it was read, however often it was read."""


class Copying:
    """Copies back from one cluster."""

    def __init__(self, blobs: Blobs, root: str, limits: Limits) -> None:
        self._blobs = blobs
        self._root = root
        self._limits = limits

    def run(self, claim: Claim, patterns: Sequence[str], go_on: GoOn, *, last_try: bool) -> Result:
        """Copy what the patterns name. Raises StoreError where it may work later; on the last try what could be copied
        is kept, and the result says `failed`. Every file of the manifest was read back from the store and compared.
        Where nothing came back but should have there is no manifest: an earlier attempt's stays the newest."""
        assert claim.directory is not None, "outputs are owed of a staged attempt only"
        try:
            walk = Walk(f"{self._root}/{claim.directory}", Patterns(patterns))
        except OSError as error:
            return Result("failed", message=f"the working directory cannot be read: {error.strerror}")
        with tempfile.TemporaryFile() as spool, tempfile.TemporaryFile() as folders:
            try:
                manifest = ManifestFile(spool, folders, claim.job, claim.attempt, f"{prefix_of(claim.trace)}/")
                copy = _Copy(self._blobs, claim, walk, self._limits, manifest, spool, go_on, last_try=last_try)
                failpoints.reach("copy.before")
                copy.everything()
                failpoints.reach("copy.after")
            finally:
                walk.close()
            return copy.publishable()

    def forget(self, trace: Trace) -> None:
        """Remove what a lease stored."""
        prefix = prefix_of(trace)
        self._blobs.remove(prefix)
        self._blobs.remove(manifest_of(prefix))

    def forget_below(self, trace: Trace) -> None:
        """Remove what earlier leases of the attempt stored."""
        for name in self._blobs.folders(f"{trace.tenant}/outputs/{trace.job}"):
            attempt, _, rest = name.rpartition("/")[2].removesuffix(manifest_of("")).partition("-")
            mark = Mark.read(rest)
            if attempt == f"a{trace.attempt}" and mark is not None and mark < trace.mark:
                self._blobs.remove(name)


def prefix_of(trace: Trace) -> str:
    """Where a lease puts outputs."""
    return f"{trace.tenant}/outputs/{trace.job}/a{trace.attempt}-{trace.mark}"


def manifest_of(prefix: str) -> str:
    """The name of the manifest of the outputs at `prefix`."""
    return f"{prefix}.manifest.json"


class _Copy:
    def __init__(
        self,
        blobs: Blobs,
        claim: Claim,
        walk: Walk,
        limits: Limits,
        manifest: ManifestFile,
        spool: BinaryIO,
        go_on: GoOn,
        *,
        last_try: bool,
    ) -> None:
        self._blobs = blobs
        self._walk = walk
        self._limits = limits
        self._go_on = go_on
        self._last_try = last_try
        self._succeeded = claim.succeeded is True
        self._prefix = prefix_of(claim.trace)
        self._spool = spool
        self._manifest = manifest
        self._problems: list[str] = []
        self._refused = 0
        self._lost: list[str] = []
        self._names: dict[tuple[int, int], str] = {}
        self._only_nothing = True
        """Of all that was refused there was nothing to keep."""
        self._folders = 0
        self._files = 0
        self._bytes = 0

    def everything(self) -> None:
        """Copy until all is done, or nothing more can be."""
        try:
            for item in self._walk:
                self._go_on()
                if isinstance(item, Refused):
                    # An output has to be there; a pause has lost nothing where the next attempt has the link again.
                    if self._succeeded or not item.is_kept:
                        self._refuse(item)
                elif isinstance(item, FoundFolder):
                    self._folder(item)
                else:
                    self._one(item)
        except TooMany as error:
            self._problem(str(error), Loss.CONTENT, _THE_REST)

    def publishable(self) -> Result:
        """Store the manifest; what the result says is true once the row names it."""
        if self._lost and self._files + self._folders == 0:
            return Result("failed", message=self._said())
        key = manifest_of(self._prefix)
        size = self._manifest.finish(self._problems, self._lost, self._walk.links)
        self._spool.seek(0)
        try:
            failpoints.reach("rename.before")
            self._blobs.put(key, self._spool, size, self._go_on)
            failpoints.reach("rename.after")
            self._blobs.settle()
        except StoreError as error:
            if not self._last_try:
                raise
            return Result("failed", message=f"the store of outputs cannot be written: {error}")
        missing = self._walk.unmatched if self._succeeded else ()
        copied = Result("verified", self._files, self._bytes, key, missing[:MAX_ITEMS], self._said())
        if self._refused and (self._succeeded or not self._only_nothing):
            return replace(copied, outcome="failed")
        return replace(copied, outcome="missing") if missing else copied

    def _said(self) -> str | None:
        more = f"; and {self._refused - _SAID} more" if self._refused > _SAID else ""
        return "; ".join(self._problems[:_SAID]) + more if self._problems else None

    def _folder(self, found: FoundFolder) -> None:
        modified_ns = _storable(found.modified_ns)
        if found.is_empty:
            self._folders += 1
            entry = OutputFile(
                path=found.path, size_bytes=0, sha256="", mode=found.mode, kind="directory", modified_ns=modified_ns
            )
            self._manifest.add(entry)
        else:
            self._manifest.add_folder(OutputFolder(path=found.path, mode=found.mode, modified_ns=modified_ns))

    def _one(self, found: Found) -> None:
        try:
            size, digest, status = self._copied(found)
        except OSError as error:
            self._refuse(Refused(found.path, f"it cannot be read: {error.strerror or error}", Loss.CONTENT))
            return
        except ChangedMeanwhile:
            self._refuse(Refused(found.path, "it went on changing while it was copied", Loss.CONTENT))
            return
        except StoreError as error:
            if not self._last_try:
                raise
            self._refuse(Refused(found.path, f"the store did not take it: {error}", Loss.CONTENT))
            if self._refused > _SAID:
                raise TooMany("the rest was not tried") from error
            return
        self._files += 1
        self._bytes += size
        entry = OutputFile(
            path=found.path,
            size_bytes=size,
            sha256=digest,
            mode=found.mode,
            modified_ns=_storable(status.st_mtime_ns),
            hard_link_of=self._hard_link_of(found, status),
        )
        self._manifest.add(entry)
        if self._files > self._limits.files or self._bytes > self._limits.bytes:
            limit = f"{self._limits.files} files and {self._limits.bytes} bytes"
            raise TooMany(f"the outputs are more than {limit}, the limit here: name fewer, or pack them in the job")

    def _hard_link_of(self, found: Found, status: os.stat_result) -> str | None:
        """The first name under which the file came, where this is another; of so many files as are remembered."""
        if status.st_nlink < 2:
            return None
        file = (status.st_dev, status.st_ino)
        if file not in self._names and len(self._names) < _MOST_NAMES:
            self._names[file] = found.path
            return None
        return self._names.get(file)

    def _copied(self, found: Found) -> tuple[int, str, os.stat_result]:
        """Size and digest of a copy that equals the file as it was all the while, and the file's status."""
        for _ in range(_READS):
            with open(self._walk.open_file(found), "rb", buffering=0) as file:
                before = os.fstat(file.fileno())
                if before.st_size + self._bytes > self._limits.bytes:
                    raise TooMany(
                        f"{shown(found.path)} and what was copied before it exceed {self._limits.bytes} bytes"
                    )
                size, digest = self._stored(found, file, before.st_size)
                after = os.fstat(file.fileno())
            if (size, before.st_size, before.st_mtime_ns) == (before.st_size, after.st_size, after.st_mtime_ns):
                return size, digest, before
        raise ChangedMeanwhile

    def _stored(self, found: Found, file: BinaryIO, size: int) -> tuple[int, str]:
        """A short trouble of the store is sat out here, so that the rest need not be copied again."""
        key = f"{self._prefix}/{output_key(found.path)}"
        for pause in _STORE_PAUSES_SECONDS:
            try:
                return self._blobs.put(key, file, size, self._go_on)
            except StoreError:
                self._go_on()
                time.sleep(pause)
                file.seek(0)
        return self._blobs.put(key, file, size, self._go_on)

    def _refuse(self, refused: Refused) -> None:
        self._problem(refusal(refused), refused.loss, refused.path)

    def _problem(self, sentence: str, loss: Loss, path: str) -> None:
        self._refused += 1
        self._only_nothing &= loss is Loss.NOTHING
        if len(self._problems) < _MOST_PROBLEMS:
            self._problems.append(sentence)
        if loss is Loss.CONTENT and _THE_REST not in self._lost:
            self._lost.append(as_text(path) if len(self._lost) < _MOST_LOST else _THE_REST)


def _storable(modified_ns: int) -> int | None:
    """A job may give its files any time. What 64 bits do not hold (before 1677, after 2262) not every reader of JSON
    takes, nor every file system."""
    return modified_ns if -(1 << 63) <= modified_ns < 1 << 63 else None
