"""docker-compose.yml and the Dockerfile say what the code understands, and what is there."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from infra.containers.secrets import OWNERS
from infra.containers.settings import SecretsSettings, StoreSettings
from services.api.settings import ApiSettings
from services.gatekeeper.settings import GatekeeperSettings
from services.launcher.settings import LauncherSettings
from services.metering.settings import MeteringSettings
from services.stager.settings import StagerSettings
from services.watcher.settings import WatcherSettings
from shared.contracts.subjects import SERVICES
from shared.runtime.settings import PREFIX, BrokerSettings, DatabaseSettings, Settings
from tests.compose.composed import FILE, ROOT, Container, compose, containers, in_order


class RestoredSettings(DatabaseSettings, BrokerSettings):
    """What `infra.postgres.restored` reads."""


SETTINGS: dict[str, type[Settings]] = {
    "secrets": SecretsSettings,
    "databases": StoreSettings,
    "topology": BrokerSettings,
    "restored": RestoredSettings,
    "api": ApiSettings,
    "gatekeeper": GatekeeperSettings,
    "stager": StagerSettings,
    "launcher": LauncherSettings,
    "watcher": WatcherSettings,
    "metering": MeteringSettings,
}
SHARES = {"databases": "admin", "topology": "admin", "restored": "admin", "token": "people"}
"""Whose secrets a container sees that has none by its own name."""
WITHOUT = {"runner", "token", "postgres", "nats"}
"""What reads no settings of ours."""


def by_name(name: str) -> Container:
    return next(container for container in containers() if container.name == name)


def test_the_file_is_as_the_compose_specification_says() -> None:
    program = Path(sys.executable).with_name("check-jsonschema")
    checked = subprocess.run(
        [program, "--builtin-schema", "vendor.compose-spec", FILE], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_service_has_a_container() -> None:
    modules = {container.module for container in containers()}
    assert {f"services.{service}" for service in SERVICES} <= modules


def test_every_command_is_there() -> None:
    for container in containers():
        if container.module is not None:
            assert importlib.util.find_spec(container.module) is not None, container.command
        assert container.is_ours or container.what["image"].partition(":")[0] in ("postgres", "nats")


def test_every_container_is_checked_for_its_settings() -> None:
    assert {container.name for container in containers()} == SETTINGS.keys() | WITHOUT


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_is_known_and_every_one_that_is_needed_is_given(name: str) -> None:
    fields = SETTINGS[name].model_fields
    given = by_name(name).environment
    assert all(variable.startswith(PREFIX) and isinstance(value, str) for variable, value in given.items())
    named = {variable.removeprefix(PREFIX).removesuffix("_FILE").lower() for variable in given}
    assert len(named) == len(given), "none is given twice"
    assert named <= fields.keys()
    needed = {field for field, info in fields.items() if info.is_required()}
    assert needed <= named


def test_what_slurm_clusters_need_is_told_where_the_settings_stand() -> None:
    for variable in ("clusters", "deployment"):
        assert {name for name in SERVICES if variable in SETTINGS[name].model_fields} == {"launcher", "watcher"}
        assert f"{PREFIX}{variable.upper()}" in FILE.read_text()


def test_secrets_come_from_files_only() -> None:
    for name, settings in SETTINGS.items():
        secret = {field for field, info in settings.model_fields.items() if "Secret" in repr(info.annotation)}
        for variable in by_name(name).environment:
            field = variable.removeprefix(PREFIX)
            assert field.lower() not in secret, f"{name} is given {variable} openly"


def test_a_container_sees_no_secrets_but_its_own() -> None:
    for container in containers():
        seen = {volume for volume in container.volumes.values() if volume.startswith("secrets-")}
        own = SHARES.get(container.name, container.name)
        assert seen <= {f"secrets-{own}"} or container.name == "secrets"
    assert {f"secrets-{name}" for name in OWNERS} == set(by_name("secrets").volumes.values())


def test_secrets_belong_to_the_user_of_their_container() -> None:
    for container in containers():
        owner = OWNERS.get(SHARES.get(container.name, container.name))
        if container.is_ours and owner is not None:
            assert container.what["user"] == f"{owner}:{owner}", container.name


def test_every_volume_is_declared_and_used() -> None:
    assert {volume for one in containers() for volume in one.volumes.values()} == set(compose()["volumes"])


def test_only_loopback_is_published() -> None:
    ports = [port for container in containers() for port in container.what.get("ports", ())]
    assert ports == ["127.0.0.1:8420:8420"]


def test_whatever_runs_on_is_started_again_and_what_can_be_asked_is() -> None:
    once = {"secrets", "databases", "token", "restored"}
    for container in containers():
        assert (container.what.get("restart") == "unless-stopped") == (container.name not in once)
        assert ("healthcheck" in container.what) == (container.name not in once | {"topology"})


def test_containers_wait_for_what_they_need_and_not_in_a_circle() -> None:
    names = [container.name for container in in_order()]
    assert names[0] == "secrets"
    for container in containers():
        for needed, condition in container.needs.items():
            assert (condition == "service_healthy") == ("healthcheck" in by_name(needed).what)


def test_workstations_are_refused_unless_the_api_shares_the_network_of_jobs() -> None:
    api = by_name("api")
    assert (api.environment["TIDEGATE_WORKSTATIONS"] == "false") != (api.what.get("network_mode") == "service:runner")


def test_services_can_be_scaled() -> None:
    """No container has a name, a host name or a replica's name of its own; only `api` has a port on the host."""
    for container in containers():
        assert not {"container_name", "hostname"} & container.what.keys()
        assert "TIDEGATE_REPLICA" not in container.environment


def test_the_dockerfile_copies_what_is_there_and_what_the_build_may_see() -> None:
    text = (ROOT / "Dockerfile").read_text()
    seen = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [line.split()[1:-1] for line in text.splitlines() if line.startswith("COPY") and "--from" not in line]
    sources = {source for sources in copied for source in sources}
    assert sources == seen
    assert all((ROOT / source).exists() for source in sources)


def test_the_image_is_installed_from_the_lock_file() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert re.search(r"^RUN .*uv sync --locked --no-default-groups", text, re.MULTILINE)
    assert re.search(r"pip install .*\buv==\d+\.\d+\.\d+$", text, re.MULTILINE), "with one version of uv"
    [command] = re.findall(r'^CMD \["python", "-m", "(.+)"\]$', text, re.MULTILINE)
    assert importlib.util.find_spec(command) is not None
    ours = [one.what for one in containers() if one.is_ours]
    assert [what["build"] for what in ours if "build" in what] == ["."], "two builds of one name at once fail"
    assert all(what.get("pull_policy") == "never" for what in ours if "build" not in what), "no registry has it"
    bases = re.findall(r"^FROM python:(\S+?)-", text, re.MULTILINE)
    assert set(bases) == {"3.11"}
