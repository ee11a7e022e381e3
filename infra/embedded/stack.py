"""Tidegate's own stack as data: which processes, with which settings, in which order."""

import getpass
import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from infra.embedded import replicas
from infra.embedded.binaries import find_nats, find_postgres
from infra.embedded.home import Home, write_json, write_private
from infra.embedded.nats import Nats
from infra.embedded.options import Options
from infra.embedded.ports import LOOPBACK, Ports
from infra.embedded.postgres import SUPERUSER, Postgres
from infra.embedded.processes import Process
from infra.embedded.restored import Restored
from infra.embedded.runner import RUNNER
from infra.embedded.supervisor import Stage
from shared.contracts.subjects import SERVICES

USUAL_HTTP_PORT = 8420
DEFAULT_TENANT = "default"

_ADMIN = "admin"  # as infra.nats.permissions calls it, which this module is too light to import
_FEWEST_CONNECTIONS = 200
_CONNECTIONS_OF_A_SERVICE = 12  # its pool, its leases, and one to spare

_CODE = Path(__file__).resolve().parents[2]
_KEPT_VARIABLES = ("LANG", "LC_ALL", "PATH", "HOME", "USER", "LOGNAME", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")
_KEPT_PREFIXES = (
    *("OTEL_", "TIDEGATE_LOG_", "TIDEGATE_FAILPOINTS"),
    *("TIDEGATE_RETRY_", "TIDEGATE_RETRIES_", "TIDEGATE_INFRASTRUCTURE_RETRY_"),
    *("TIDEGATE_STOP_GRACE_", "TIDEGATE_CHECKPOINT_GRACE_", "TIDEGATE_IDLE_WARNING_"),
)
"""Where logs and traces go, failpoints, and what an operator decides about retries, graces and warnings."""


@dataclass(frozen=True)
class Tokens:
    """The two tokens of a home: a user's and an administrator's, of the same person in the same tenant."""

    user: str
    admin: str


@dataclass(frozen=True)
class Stack:
    """Everything that one start of a stack decided: where its servers are, and what runs."""

    home: Home
    options: Options
    postgres: Postgres
    nats: Nats
    claims: Ports
    """Kept for as long as the stack: a port is claimed only while its claim is."""
    door: socket.socket
    """What every replica of `api` listens on; it stays open while one of them is started again."""
    tokens: Tokens

    @classmethod
    def lay_out(cls, options: Options, remembered: Mapping[str, int]) -> "Stack":
        """Choose ports, make secrets and the database's folder. The caller holds the home."""
        home = Home(options.home)
        ports = Ports(home.root, dict(remembered))
        if options.http_port is not None:
            ports.exactly("http", options.http_port)
        else:
            ports.some("http", wish=USUAL_HTTP_PORT)
        nats = Nats(find_nats(), home.nats, ports.some("nats"))
        for service in SERVICES:
            for replica in replicas.names(service, options.replicas):
                ports.some(replica)
        postgres = Postgres.at(find_postgres(), home.postgres, home.secret(f"{SUPERUSER}.postgres.password"))
        tokens = Tokens(home.secret("user.token", "tgu_"), home.secret("admin.token", "tga_"))
        return cls(home, options, postgres, nats, ports, ports.bound("http"), tokens)

    @property
    def ports(self) -> Mapping[str, int]:
        """The port of every server and service, by name."""
        return self.claims.held()

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.ports['http']}"

    @property
    def many_tenants(self) -> bool:
        """Without root the jobs of all tenants run as one user."""
        return os.geteuid() == 0 or self.options.allow_tenants

    @property
    def remark(self) -> str | None:
        """What a person should know who expects the usual."""
        busy = self.claims.passed_over.get("http")
        port = f"port {busy} is in use by another program or stack, so the API has {self.ports['http']}"
        restored = Restored.read(self.home)
        return "; ".join(filter(None, (port if busy else None, restored.remark if restored else None))) or None

    def stages(self) -> tuple[Stage, ...]:
        """PostgreSQL and the runner host; databases, then NATS; streams, then the services."""
        services = tuple(
            self._service(name, replica) for name in SERVICES for replica in replicas.names(name, self.options.replicas)
        )
        connections = str(max(_FEWEST_CONNECTIONS, _CONNECTIONS_OF_A_SERVICE * (len(services) + 2)))
        postgres = self.postgres.process(self.home.log("postgres"), max_connections=connections)
        return (
            Stage((postgres, self._runner())),
            Stage((self.nats.process(self.home.log("nats")),), (self._prepare(),)),
            Stage((self._topology("--keep"), *services), (self._topology(), *self._restored()), must_be_ready=False),
        )

    def write_endpoint(self) -> None:
        """What clients look for, written once everything answers."""
        write_json(
            self.home.endpoint,
            {
                "url": self.url,
                "console_url": None,
                "nats_url": self.nats.url,
                "token": self.tokens.user,
                "admin_token": self.tokens.admin,
            },
        )

    def write_bootstrap_tokens(self) -> None:
        """What `api` enters at its start, so that the tokens of the endpoint are known to it."""
        person = {"tenant": DEFAULT_TENANT, "user": login_name()}
        tokens = [
            person | {"token": self.tokens.user, "role": "user"},
            person | {"token": self.tokens.admin, "role": "admin"},
        ]
        write_private(self._bootstrap_tokens, json.dumps(tokens))

    @property
    def _bootstrap_tokens(self) -> Path:
        return self.home.secrets / "bootstrap-tokens.json"

    def _prepare(self) -> Process:
        return self._python(
            "prepare", "infra.embedded.prepare", str(self.home.root), str(self.postgres.socket), str(self.ports["nats"])
        )

    def _topology(self, *arguments: str) -> Process:
        """Makes streams and consumers before the services start; kept, it makes them anew when the broker lost them."""
        login = self._broker_login(_ADMIN)
        return self._python("topology", "shared.runtime.topology", *arguments, settings=login)

    def _restored(self) -> Iterator[Process]:
        """After a restore: before any service starts, it is told that the database is an older one."""
        if (restored := Restored.read(self.home)) is None:
            return
        url = self.home.secrets / f"{SUPERUSER}.database-url"
        write_private(url, self.postgres.superuser_url())
        yield self._python(
            "restored",
            "infra.postgres.restored",
            "--backup-time",
            restored.backup_time,
            settings=self._broker_login(_ADMIN) | {"TIDEGATE_DATABASE_URL_FILE": str(url)},
        )

    def _broker_login(self, user: str) -> dict[str, str]:
        self.home.secret(f"{user}.nats.password")
        return {
            "TIDEGATE_NATS_URL": self.nats.url,
            "TIDEGATE_NATS_USER": user,
            "TIDEGATE_NATS_PASSWORD_FILE": str(self.home.secrets / f"{user}.nats.password"),
        }

    def _runner(self) -> Process:
        """The runner host: jobs are its children, so it goes on when everything else stops."""
        options = self.options
        flags = {"--virtual-gpus": options.virtual_gpus, "--slots": options.slots}
        given = [word for flag, value in flags.items() if value is not None for word in (flag, str(value))]
        hidden = (word for folder in (self.home.root, self.postgres.socket) for word in ("--hide", str(folder)))
        runner = self._python(RUNNER, "shared.backends.local.host", "--root", str(self.home.local), *given, *hidden)
        return replace(runner, outlives=True)

    def _service(self, name: str, replica: str) -> Process:
        settings = self._settings(name, replica) | self._own_settings(name)
        service = self._python(replica, f"services.{name}", settings=settings)
        return replace(
            service,
            ready=f"http://{LOOPBACK}:{self.ports[replica]}/readyz",
            stop_seconds=20,
            descriptors=(self.door.fileno(),) if name == "api" else (),
        )

    def _python(self, name: str, module: str, *arguments: str, settings: Mapping[str, str] | None = None) -> Process:
        return Process(
            name=name,
            command=(sys.executable, "-m", module, *arguments),
            environment=environment() | dict(settings or {}),
            cwd=self.home.root,
            log=self.home.log(name),
        )

    def _settings(self, service: str, replica: str) -> dict[str, str]:
        """What every service is told; secrets by file, so that no process shows them in its environment."""
        secrets = self.home.secrets
        url = self.postgres.url(service, self.home.secret(f"{service}.postgres.password"))
        write_private(secrets / f"{service}.database-url", url)
        return self._broker_login(service) | {
            "TIDEGATE_DATABASE_URL_FILE": str(secrets / f"{service}.database-url"),
            "TIDEGATE_HEALTH_PORT": str(self.ports[replica]),
            "TIDEGATE_REPLICA": replica,
        }

    def _own_settings(self, service: str) -> dict[str, str]:
        blobs = {"TIDEGATE_BLOB_URL": self.home.blobs.as_uri()}
        local = {"TIDEGATE_LOCAL_ROOT": str(self.home.local)}
        match service:
            case "api":
                return blobs | {
                    "TIDEGATE_HTTP_FD": str(self.door.fileno()),
                    "TIDEGATE_BOOTSTRAP_TOKENS_FILE": str(self._bootstrap_tokens),
                    "TIDEGATE_SINGLE_TENANT": str(not self.many_tenants).lower(),
                }
            case "stager":
                return blobs | local
            case "launcher" | "watcher":
                clusters = self.options.clusters
                file = {} if clusters is None else {"TIDEGATE_CLUSTERS": str(clusters)}
                return local | file | {"TIDEGATE_DEPLOYMENT": self.home.deployment}
            case _:
                return {}


def environment() -> dict[str, str]:
    """What processes of the stack inherit: no more than they need, and where the code is."""
    kept = {
        name: value for name, value in os.environ.items() if name in _KEPT_VARIABLES or name.startswith(_KEPT_PREFIXES)
    }
    path = os.pathsep.join(filter(None, (str(_CODE), os.environ.get("PYTHONPATH"))))
    # PYTHONSAFEPATH: the working folder, a user's own, is not searched for modules.
    return kept | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}


def login_name() -> str:
    """Who starts the stack, for the record of its jobs."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no variable says it, and the uid is in no passwd file
        return f"uid-{os.getuid()}"
