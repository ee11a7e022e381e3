"""Whatever the tree: packed, staged in and copied back, it is the same, byte for byte."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.stager import workdir
from services.stager.blobs import Blobs
from services.stager.copying import Copying
from services.stager.copying import Limits as OutputLimits
from services.stager.domain import Stage
from services.stager.leases import Claim
from services.stager.listing import Limits
from services.stager.marks import Mark
from services.stager.staging import Staging, Valid
from shared.client.snapshot import pack
from shared.contracts.queries import Manifest
from shared.contracts.spec import JobSpec
from tests.unit.stager.archives import read_back

PART = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=20).filter(
    lambda part: part not in (".", "..", ".git", ".gitignore", ".tidegateignore") and len(part.encode()) < 256
)
PATH = st.lists(PART, min_size=1, max_size=4).map("/".join)
MODE = st.sampled_from([0o600, 0o644, 0o755, 0o4755])
TREES = st.dictionaries(PATH, st.tuples(st.binary(max_size=3000), MODE), max_size=10)


def write(root: Path, files: dict[str, tuple[bytes, int]]) -> dict[bytes, tuple[bytes, int]]:
    """Write what of the tree can be at once (one name may be a file here and a folder there)."""
    made: dict[bytes, tuple[bytes, int]] = {}
    for name, (content, mode) in files.items():
        path = root / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            continue
        path.chmod(mode)
        made[os.fsencode(name)] = (content, mode & 0o777)
    return made


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(TREES)
def test_packed_staged_and_copied_back_it_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, tuple[bytes, int]]
) -> None:
    here = tmp_path_factory.mktemp("trip")
    source, root, store = here / "source", here / "local", here / "blobs"
    for folder in (source, root / "work", store / "acme/snapshots"):
        folder.mkdir(parents=True)
    wanted = write(source, files)
    with pack(source) as packed:
        (store / "acme/snapshots" / f"{packed.digest[7:]}.tar.gz").write_bytes(packed.file.read())
    spec = JobSpec(command=("true",), snapshot=packed.digest, outputs=(".",))
    claim = Claim(Stage.STAGE_IN, "j1", 1, "acme", spec.digest(), 1, 1, None, None)
    staged = Staging(Blobs(store.as_uri()), None, str(root), Limits()).run(claim, spec, lambda: None)
    assert isinstance(staged, Valid)
    assert staged.directory == workdir.relative(str(root), "acme", "j1", 1, Mark(1, 1))
    assert read_back(root / staged.directory) == {name: content for name, (content, _) in wanted.items()}

    claim = Claim(Stage.COPY_BACK, "j1", 1, "acme", spec.digest(), 2, 1, staged.directory, True)
    copying = Copying(Blobs(store.as_uri()), str(root), OutputLimits(10_000, 1 << 30))
    result = copying.run(claim, spec.outputs, lambda: None, last_try=False)
    assert result.outcome == "verified", result.message
    manifest = Manifest.model_validate_json((store / str(result.manifest)).read_bytes())
    found = {
        os.fsencode(entry.path): ((store / manifest.prefix / entry.key).read_bytes(), entry.mode)
        for entry in manifest.files
        if entry.kind == "file"
    }
    assert found == wanted
