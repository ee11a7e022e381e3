"""Settings of api: what is wrong is named, and no token is shown."""

import json

import pytest

from services.api.settings import ApiSettings
from shared.runtime.errors import SettingsError

GIVEN = {
    "TIDEGATE_DATABASE_URL": "postgresql://x",
    "TIDEGATE_NATS_URL": "nats://x",
    "TIDEGATE_NATS_USER": "api",
    "TIDEGATE_NATS_PASSWORD": "p",
    "TIDEGATE_BLOB_URL": "file:///x",
}


def _tokens(**fields: str) -> str:
    return json.dumps([{"token": "a-long-enough-token", "tenant": "acme", "user": "rin"} | fields])


def test_reads_bootstrap_tokens_and_hides_them() -> None:
    settings = ApiSettings.load({**GIVEN, "TIDEGATE_BOOTSTRAP_TOKENS": _tokens(role="admin")})
    assert settings.bootstrap_tokens[0].role == "admin"
    assert "a-long-enough-token" in settings.secrets()
    assert "a-long-enough-token" not in repr(settings)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"token": "short-secret"}, "at least 16 characters"),
        ({"tenant": "A.B"}, "no tenant's name"),
        ({"role": "root"}, "TIDEGATE_BOOTSTRAP_TOKENS"),
    ],
)
def test_names_what_is_wrong_with_a_bootstrap_token(fields: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said) as raised:
        ApiSettings.load({**GIVEN, "TIDEGATE_BOOTSTRAP_TOKENS": _tokens(**fields)})
    assert "short-secret" not in str(raised.value)
    assert "a-long-enough-token" not in str(raised.value)


def test_refuses_bootstrap_tokens_of_two_tenants_where_one_is_allowed() -> None:
    two = json.dumps(json.loads(_tokens()) + json.loads(_tokens(tenant="umbra", token="another-long-token")))
    environ = {**GIVEN, "TIDEGATE_BOOTSTRAP_TOKENS": two}
    assert len(ApiSettings.load(environ).bootstrap_tokens) == 2
    with pytest.raises(SettingsError, match="acme, umbra, and TIDEGATE_SINGLE_TENANT allows one"):
        ApiSettings.load({**environ, "TIDEGATE_SINGLE_TENANT": "true"})
