"""Makes the database, and per service a schema, its owner and its login role: run with a superuser's login.

The owner runs migrations only. The login role reads and writes rows of its own schema, and cannot look into another.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Final

import asyncpg

from shared.contracts.subjects import SERVICES

DATABASE: Final = "tidegate"
STATEMENT_TIMEOUT: Final = "20s"
IDLE_IN_TRANSACTION_TIMEOUT: Final = "10s"
LOCK_TIMEOUT: Final = "10s"
_ONE_AT_A_TIME: Final = "SELECT pg_advisory_lock(hashtextextended('tidegate.provision', 0))"


def owner_role(service: str) -> str:
    """The role that owns the service's tables; `python -m shared.runtime.migrate` logs in as it."""
    return f"{service}_owner"


def roles() -> tuple[str, ...]:
    """Every login role that needs a password: each service's own and its owner."""
    return tuple(role for service in SERVICES for role in (service, owner_role(service)))


async def provision(superuser_dsn: str, passwords: Mapping[str, str], *, database: str = DATABASE) -> None:
    """Create what is missing, and set passwords and grants as they are to be. Safe to run again and at any time.

    `passwords` holds one (of ASCII characters) per role of `roles()`; the server gets SCRAM verifiers of them only.
    """
    if missing := [role for role in roles() if not passwords.get(role)]:
        raise ValueError(f"passwords are missing for {', '.join(missing)}; roles() lists all that are needed")
    connection = await asyncpg.connect(superuser_dsn)
    try:
        await connection.execute(_ONE_AT_A_TIME)
        for role in roles():
            await _role(connection, role, passwords[role])
        if not await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", database):
            await connection.execute(f"CREATE DATABASE {_name(database)}")
        await connection.execute(f"REVOKE ALL ON DATABASE {_name(database)} FROM PUBLIC")
        for role in roles():
            await connection.execute(f"GRANT CONNECT ON DATABASE {_name(database)} TO {_name(role)}")
        await connection.execute("REVOKE CONNECT ON DATABASE postgres, template1 FROM PUBLIC")
        inside = await asyncpg.connect(superuser_dsn, database=database)
        try:
            await inside.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
            for service in SERVICES:
                await _schema(inside, service)
        finally:
            await inside.close()
    finally:
        await connection.close()


async def _role(connection: asyncpg.Connection, role: str, password: str) -> None:
    if not await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", role):
        await connection.execute(f"CREATE ROLE {_name(role)}")
    verifier = _scram_verifier(password)
    await connection.execute(
        f"ALTER ROLE {_name(role)} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD '{verifier}'"
    )


async def _schema(connection: asyncpg.Connection, service: str) -> None:
    schema, login, owner = _name(service), _name(service), _name(owner_role(service))
    await connection.execute(
        f"""
        CREATE SCHEMA IF NOT EXISTS {schema} AUTHORIZATION {owner};
        REVOKE ALL ON SCHEMA {schema} FROM PUBLIC;
        GRANT USAGE ON SCHEMA {schema} TO {login};
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {login};
        GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO {login};
        ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA {schema}
            GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {login};
        ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA {schema} GRANT USAGE, SELECT ON SEQUENCES TO {login};
        ALTER DEFAULT PRIVILEGES FOR ROLE {owner} REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
        ALTER ROLE {login} SET search_path = {schema};
        ALTER ROLE {owner} SET search_path = {schema};
        ALTER ROLE {login} SET statement_timeout = '{STATEMENT_TIMEOUT}';
        ALTER ROLE {login} SET lock_timeout = '{LOCK_TIMEOUT}';
        ALTER ROLE {login} SET idle_in_transaction_session_timeout = '{IDLE_IN_TRANSACTION_TIMEOUT}';
        """
    )


def _name(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'


def _scram_verifier(password: str) -> str:
    """What the server is to keep (RFC 5803), made here so that no statement, nor a log of it, holds the password."""
    salt, rounds = secrets.token_bytes(16), 4096
    salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, rounds)
    client = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    salt_text, client_text, server_text = (base64.b64encode(part).decode() for part in (salt, client, server))
    return f"SCRAM-SHA-256${rounds}:{salt_text}${client_text}:{server_text}"
