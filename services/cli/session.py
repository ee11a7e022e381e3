"""Connecting to the server that the environment or the embedded stack names."""

from shared.client.client import Tidegate
from shared.client.endpoint import find_endpoint


def connect(*, admin: bool = False) -> Tidegate:
    """A client for the user, or with the admin's token."""
    return Tidegate(find_endpoint(), admin=admin)
