"""The file of clusters says what a deployment has, or in one sentence what is wrong in it."""

from pathlib import Path

import pytest

from shared.backends.clusters import WrongClusters, read

GOOD = """
[hpc]
account = "general"
[hpc.accounts]
acme = "acme-gpu"
[hpc.coretypes.a100]
partition = "gpu"
gres = "gpu:a100"
"""


def the_file(folder: Path, text: str) -> Path:
    """A file of clusters."""
    path = folder / "clusters.toml"
    path.write_text(text)
    return path


def test_without_a_file_there_are_no_clusters() -> None:
    assert read(None) == {}


def test_each_tenant_has_its_account_or_the_cluster_s(tmp_path: Path) -> None:
    hpc = read(the_file(tmp_path, GOOD))["hpc"]
    assert (hpc.account_of("acme"), hpc.account_of("other")) == ("acme-gpu", "general")
    assert hpc.coretypes["a100"].gres == "gpu:a100"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[hpc", "cannot be read"),
        ("[local.coretypes.x]", "'local' cannot be a cluster's name"),
        ('["a.b".coretypes.x]', "'a.b' cannot be a cluster's name"),
        ("[hpc]\n", "hpc.coretypes: this is needed"),
        ("[hpc]\nparttion = 'x'\n[hpc.coretypes.x]", "hpc.parttion: there is no such setting"),
        ("[hpc]\ntime_zone = 'Mars'\n[hpc.coretypes.x]", "'Mars' is no IANA time zone"),
    ],
)
def test_what_is_wrong_in_it_is_said_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(WrongClusters, match=r"clusters\.toml") as raised:
        read(the_file(tmp_path, text))
    assert said in str(raised.value)
