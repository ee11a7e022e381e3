"""The real parts that the guards protect, by the name of the service: fixtures of the services' own tests."""

from tests.integration.gatekeeper.conftest import db as db
from tests.integration.gatekeeper.conftest import world as gatekeeper
from tests.integration.launcher.conftest import backend as backend
from tests.integration.launcher.conftest import world as launchers

__all__ = ["backend", "db", "gatekeeper", "launchers"]
