"""Stages one attempt in: fetch, list, check, unpack. Blocking, for a worker thread; nothing is told here."""

import os
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, Final

from services.stager import folders, workdir
from services.stager.blobs import Blobs, GoOn, SnapshotGone
from services.stager.checks import NO_FILES, check, nothing
from services.stager.earlier import Before, Earlier
from services.stager.leases import Claim
from services.stager.listing import Limits, Tree, Unsafe, clean_path, list_snapshot, read_entries
from services.stager.machine import Machine
from services.stager.tar import Kind
from services.stager.underway import Trace
from services.stager.unpack import unpack
from shared.contracts.spec import JobSpec
from shared.lifecycle.facts import Finding
from shared.runtime import failpoints

_HEAD_BYTES: Final = 512
_SPARE_BYTES: Final = 64 << 20
_NOTHING: Final = Before()


@dataclass(frozen=True, slots=True)
class Valid:
    """Checked and staged into `directory` (relative to the root)."""

    directory: str
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Invalid:
    """Confirmed bad; nothing was written."""

    findings: tuple[Finding, ...]


class NoRoom(OSError):
    """The cluster's disk does not hold the files now."""


class Staging:
    """Stages in for one cluster."""

    def __init__(self, blobs: Blobs, machine: Machine | None, root: str, limits: Limits) -> None:
        self._blobs = blobs
        self._machine = machine
        self._root = root
        self._limits = limits

    def run(self, claim: Claim, spec: JobSpec, go_on: GoOn, before: Before = _NOTHING) -> Valid | Invalid:
        """Stage the attempt into the directory of the claim's lease epoch; over the snapshot goes what was brought back
        before.

        Raises `workdir.Taken` where that directory is in use, `workdir.Claimed` where the attempt has run, StoreError
        or OSError where it may work later, and whatever `go_on` raises. Whichever way it ends, nothing half done has a
        name that counts.
        """
        where = (self._root, claim.tenant, claim.job, claim.attempt, claim.mark)
        directory = workdir.relative(*where)
        earlier = Earlier(self._blobs, before, spec.outputs)
        if spec.snapshot is None:
            head = earlier.head_over(nothing, _HEAD_BYTES)
            checked = check(spec, earlier.over(NO_FILES), head, self._machine)
            if checked.findings:
                return Invalid(checked.findings)
            with workdir.making(*where) as into:
                failpoints.reach("copy.before")
                _over(earlier, NO_FILES, _moment(claim, into), into, go_on)
                failpoints.reach("copy.after")
            return Valid(directory, (*earlier.warnings, *checked.warnings))
        spool_in = workdir.make_attempt(*where[:4])
        try:
            with self._blobs.snapshot(claim.tenant, spec.snapshot, spool_in, go_on) as (archive, size):
                tree = list_snapshot(archive, size, self._limits, go_on)
                whole = earlier.over(tree)
                head = earlier.head_over(partial(_head, archive, tree), _HEAD_BYTES)
                checked = check(spec, whole, head, self._machine)
                if checked.findings:
                    return Invalid(checked.findings)
                self._make_sure_of_room(spool_in, whole)
                with workdir.making(*where) as into:
                    failpoints.reach("copy.before")
                    moment = _moment(claim, into)
                    unpack(archive, tree, moment, into, go_on)
                    _over(earlier, tree, moment, into, go_on)
                    failpoints.reach("copy.after")
                return Valid(directory, (*earlier.warnings, *checked.warnings))
        except Unsafe as unsafe:
            return Invalid(tuple(unsafe.findings))
        except SnapshotGone:
            return Invalid((_gone(spec.snapshot),))

    def directory_of_the_run(self, claim: Claim) -> str | None:
        """Where the attempt's command ran, as far as the backend's records say."""
        return workdir.directory_of_the_run(self._root, claim.tenant, claim.job, claim.attempt)

    def discard(self, trace: Trace, published: str | None) -> None:
        """Remove what a lease staged that does not count: `published` does."""
        where = (self._root, trace.tenant, trace.job, trace.attempt, trace.mark)
        workdir.discard(*where, published, lost_time=False)

    def _make_sure_of_room(self, folder: str, tree: Tree) -> None:
        disk = os.statvfs(folder)
        free = disk.f_bavail * disk.f_frsize
        if tree.bytes + _SPARE_BYTES > free:
            raise NoRoom(f"the files need {tree.bytes} bytes; the cluster's disk has {free} free")


def _moment(claim: Claim, into: int) -> int:
    """What is submitted has this time. Never later than the new directory by the clock of its file system, so that
    whatever is made in it is newer, also where that clock is behind `api`'s."""
    return min(claim.submitted_ns, os.fstat(into).st_mtime_ns)


def _over(earlier: Earlier, tree: Tree, moment: int, into: int, go_on: GoOn) -> None:
    """Over what was submitted goes what was brought back; then nothing more is written."""
    earlier.lay_in(into, tree, moment, go_on)
    folders.close(folders.submitted(tree, moment) | earlier.folders(moment), into, go_on)


def _head(archive: BinaryIO, tree: Tree, path: str) -> bytes:
    """The first bytes of a file, read from the archive."""
    member = tree.members[path]
    wanted = member.target if member.kind is Kind.HARD_LINK else path
    for entry, reader in read_entries(archive):
        if entry.kind is Kind.FILE and clean_path(entry.path) == wanted:
            return next(reader.content(), b"")[:_HEAD_BYTES]
    return b""


def _gone(digest: str) -> Finding:
    message = f"the submitted directory ({digest[:19]}…) is not in the store any more: submit again to upload it"
    return Finding(code="snapshot_missing", place="snapshot", message=message)
