"""What tests share: the real PostgreSQL and nats-server, started once and clean for each test, and a whole stack."""

import signal
from collections.abc import AsyncIterator, Iterator

import nats
import pytest
from hypothesis import HealthCheck, settings

from tests.chaos.report import pytest_terminal_summary as pytest_terminal_summary
from tests.databases import Databases, FreshDatabase, ServiceDatabase
from tests.patience import PATIENCE_SECONDS
from tests.servers import NatsServer, PostgresServer
from tests.workers import pytest_collection_modifyitems as pytest_collection_modifyitems
from tests.workers import pytest_xdist_auto_num_workers as pytest_xdist_auto_num_workers
from tests.workers import pytest_xdist_make_scheduler as pytest_xdist_make_scheduler

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("patient", patient)
settings.register_profile("steady", patient, derandomize=True)


def pytest_configure(config: pytest.Config) -> None:
    """Ordinary runs draw the same examples every time, so that a change alone decides; the long ones draw new ones.
    How long either takes is the machine's matter.

    A shell that starts a run in the background has it ignore Ctrl-C, and so would everything that the tests start.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.load_profile("patient" if config.getoption("markexpr") == "long" else "steady")


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """One PostgreSQL for the whole run. A test that kills it starts it again."""
    server = PostgresServer(tmp_path_factory.mktemp("postgres"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def databases(postgres: PostgresServer) -> Databases:
    """Makes databases from templates that the whole run shares."""
    return Databases(postgres)


@pytest.fixture
async def service_database(databases: Databases) -> AsyncIterator[FreshDatabase]:
    """`await service_database("api")`: a fresh, migrated database for a service, dropped after the test.

    `migrated=()` leaves every schema empty, `migrated=EVERY_SERVICE` fills all.
    """
    made: list[ServiceDatabase] = []

    async def fresh(service: str, *, migrated: tuple[str, ...] | None = None) -> ServiceDatabase:
        made.append(await databases.fresh(service, migrated=migrated))
        return made[-1]

    yield fresh
    for database in made:
        await databases.drop(database)


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """One nats-server for the whole run. A test that kills it starts it again."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def own_nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A nats-server of this test alone, for what loses or rolls back the store."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def nats_url(nats_server: NatsServer) -> str:
    """The address of the run's nats-server, with no stream in it. Logins: `nats_server.login("admin")`."""
    connection = await nats.connect(nats_server.url, **nats_server.login("admin"))
    try:
        streams = connection.jetstream(timeout=PATIENCE_SECONDS)
        for stream in await streams.streams_info():
            assert stream.config.name is not None
            await streams.delete_stream(stream.config.name)
    finally:
        await connection.close()
    return nats_server.url
