"""Questions that one service asks another about its slice (`rpc.v1.<service>.<method>`), as request and answer models.

Every answer may come late or not at all: who asks goes on without, and says what it could not check.
"""

import hashlib
import re
from typing import Final, Literal

from pydantic import AwareDatetime, Field

from shared.contracts.spec import JobSpec
from shared.lifecycle.facts import Frozen, Gate
from shared.lifecycle.record import Resources


class SpecsAsked(Frozen):
    """`api.specs`: the specs of a tenant's digests, in bulk (cache them: a digest never changes its meaning)."""

    tenant: str
    digests: tuple[str, ...]


class SpecsAnswer(Frozen):
    """The specs that are known; a digest that is missing is unknown."""

    specs: dict[str, JobSpec]


class NewestAsked(Frozen):
    """`api.newest`: how it stands with these jobs (at most 100), for who holds something of theirs since long."""

    jobs: tuple[str, ...]


class NewestAnswer(Frozen):
    """The body of each job's newest event, for `decode_event`. An unknown job has none: that permits nothing."""

    events: tuple[str, ...]


class FitAsked(Frozen):
    """`gatekeeper.fits`: could jobs of these resources ever pass the gates?"""

    tenant: str
    resources: tuple[Resources, ...]


class FitAnswer(Frozen):
    """One sentence per resources why not, none where it could pass."""

    why_not: tuple[str | None, ...]


class Quota(Frozen):
    """A tenant's limits. None: no limit of its own (the deployment's ceiling holds)."""

    tenant: str
    slots: int | None = None
    gpus: int | None = None
    slots_used: int = 0
    gpus_used: int = 0
    changed_by: str | None = None
    changed_at: AwareDatetime | None = None


class QuotaAsked(Frozen):
    """`gatekeeper.quota_get`; all tenants where `tenant` is None."""

    tenant: str | None = None


class QuotaSet(Frozen):
    """`gatekeeper.quota_set`: a limit that is None is lifted when it is named in `fields`."""

    tenant: str
    slots: int | None = None
    gpus: int | None = None
    fields: tuple[Literal["slots", "gpus"], ...]
    actor: str


class QuotaAnswer(Frozen):
    quotas: tuple[Quota, ...]


class PositionsAsked(Frozen):
    """`gatekeeper.positions`: where waiting jobs stand in the line of their tenant's deployment."""

    jobs: tuple[str, ...]


class PositionsAnswer(Frozen):
    """1 is next; a job that does not wait is left out. `gates` are the gates as of now."""

    positions: dict[str, int]
    gates: dict[str, tuple[Gate, ...]] = Field(default_factory=dict)


class LogsAsked(Frozen):
    """`watcher.logs`: bytes of an attempt's stream from `offset` on, at most `limit_bytes`."""

    tenant: str
    job: str
    attempt: int
    stream: Literal["stdout", "stderr"] = "stdout"
    offset: int = 0
    limit_bytes: int = 262_144


class LogsAnswer(Frozen):
    """`data` in base64; `size_bytes` is the file's size now. `found` is false where there is no such file (yet)."""

    found: bool
    data: str
    next_offset: int
    size_bytes: int


class EndpointAsked(Frozen):
    """`watcher.endpoint`: where the command of a workstation's attempt listens."""

    tenant: str
    job: str
    attempt: int


class EndpointAnswer(Frozen):
    """A loopback port of the machine that the command is on, and the secret that guards it; null where there is none
    (yet). Neither stands in any event, table or log."""

    port: int | None = None
    secret: str | None = Field(default=None, repr=False)


# A name that ends like a drive (`A:`, `data|`) cannot be renamed by what turns names of a local store into URLs.
_NOT_STORABLE: Final = re.compile(r"[%#\x00-\x1f\x7f]|(?<=[A-Za-z])[:|]\Z")
_LONGEST_KEY_BYTES: Final = 800
_LONGEST_PART_BYTES: Final = 200


def output_key(path: str) -> str:
    """The name of an output below its prefix: different for every path, and the path itself where that is an ordinary
    one. Control characters, `%` and `#` (which some stores refuse or read otherwise) become %XX; a name that is too
    long for some store becomes `%~` and the digest of the path."""
    key = _NOT_STORABLE.sub(lambda found: f"%{ord(found[0]):02X}", path)
    parts = [len(part.encode()) for part in key.split("/")]
    if max(parts) > _LONGEST_PART_BYTES or sum(parts) > _LONGEST_KEY_BYTES:
        return "%~" + hashlib.sha256(path.encode()).hexdigest()
    return key


class OutputsAsked(Frozen):
    """`stager.outputs`: the newest verified outputs of a job."""

    tenant: str
    job: str


class OutputFile(Frozen):
    """One line of a manifest. `kind` tells an (empty) folder from a file."""

    path: str
    size_bytes: int
    sha256: str
    mode: int
    kind: Literal["file", "directory"] = "file"
    modified_ns: int | None = None
    """Nanoseconds since 1970; None where it is not known (an older stager's), or is no time of our centuries."""
    hard_link_of: str | None = None
    """A file before it in the manifest, of which it was another name; it has come back all the same."""

    @property
    def key(self) -> str:
        """Where the file's bytes lie below the manifest's prefix: its path, if every store can hold that name."""
        return output_key(self.path)


class OutputFolder(Frozen):
    """A folder in which something of `files` or `links` lies."""

    path: str
    mode: int
    modified_ns: int | None = None


class OutputLink(Frozen):
    """A link whose content came back: it says `target`, which leads to `real`. A `bare` one came back as itself alone:
    it leads to nothing, or to a folder that it lies in."""

    path: str
    target: str
    real: str
    bare: bool = False


class Manifest(Frozen):
    """What came back: `prefix` is where the files lie in the blob store, each under prefix + its `key`."""

    version: Literal[1] = 1
    job: str
    attempt: int
    prefix: str
    files: tuple[OutputFile, ...]
    problems: tuple[str, ...] = ()
    """What was named by the output patterns and did not come back, with the reason."""
    lost: tuple[str, ...] = ()
    """Paths of content that did not come back, bytes that are not UTF-8 as `\\xNN`. A folder stands for all in it, and
    an empty path for everything that is not among `files`."""
    links: tuple[OutputLink, ...] = ()
    """Files and folders that were links in the job's directory, for its next attempt. Not more than some thousands."""
    folders: tuple[OutputFolder, ...] = ()
    """How its folders were, for its next attempt. Those with nothing in them are among `files`."""


class OutputsAnswer(Frozen):
    """The manifest; where it is too large for a message only `key`, its name in the blob store."""

    manifest: Manifest | None
    key: str | None = None


class UsageAsked(Frozen):
    """`metering.usage`: of a tenant, grouped by job or by user; of every tenant where it is None (admins only)."""

    tenant: str | None
    job: str | None = None
    group_by: Literal["tenant", "user", "job"] = "tenant"
    limit: int = 1000


class UsageRow(Frozen):
    """GPU time in integer milliseconds; `estimated` where an end was not seen."""

    tenant: str
    user: str | None = None
    job: str | None = None
    segments: int
    gpu_milliseconds: int
    not_billable_gpu_milliseconds: int = 0
    estimated: bool = False


class UsageRest(Frozen):
    """Sums over the groups that had no place among the rows."""

    groups: int
    segments: int
    gpu_milliseconds: int
    not_billable_gpu_milliseconds: int


class UsageAnswer(Frozen):
    """The most first. With `rest` the rows add up to the same, however they are grouped."""

    rows: tuple[UsageRow, ...]
    rest: UsageRest | None = None


class Capacity(Frozen):
    """`clusters.v1.<cluster>.capacity[.<coretype>]`: what is allocatable less foreign use, without ours (reservations).

    `total_gpus` is allocatable whoever uses it (the most that one job could ever get); None: the same as `gpus`.
    """

    version: Literal[1] = 1
    cluster: str
    coretype: str
    region: str | None = None
    gpus: int
    slots: int
    total_gpus: int | None = None
    virtual: bool = False
    reachable: bool = True
    at: AwareDatetime
