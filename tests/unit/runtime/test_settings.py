"""Settings come from variables or files; a wrong one is named, and no secret is shown."""

from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel, Field, SecretStr

from shared.runtime.errors import SettingsError
from shared.runtime.settings import ServiceSettings

GOOD = {
    "TIDEGATE_DATABASE_URL": "postgresql://api:hidden@/tidegate",
    "TIDEGATE_NATS_URL": "nats://127.0.0.1:4222",
    "TIDEGATE_NATS_USER": "api",
    "TIDEGATE_NATS_PASSWORD": "hush",
}


class Token(BaseModel):
    """A nested model with a secret."""

    token: SecretStr
    tenant: str


class ApiSettings(ServiceSettings):
    """A service's own settings."""

    http_port: Annotated[int, Field(ge=1, le=65535)] = 8080
    single_tenant: bool = False
    bootstrap_tokens: tuple[Token, ...] = ()
    local_root: Path = Path("/var/lib")


def test_reads_variables_and_keeps_defaults() -> None:
    settings = ApiSettings.load(
        {
            **GOOD,
            "TIDEGATE_HTTP_PORT": "9000",
            "TIDEGATE_SINGLE_TENANT": "true",
            "TIDEGATE_BOOTSTRAP_TOKENS": '[{"token": "t", "tenant": "acme"}]',
        }
    )
    assert (settings.http_port, settings.single_tenant, settings.health_port) == (9000, True, 0)
    assert settings.bootstrap_tokens[0].token.get_secret_value() == "t"
    assert settings.local_root == Path("/var/lib")


def test_reads_a_value_from_the_file_that_the_variable_names(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("from file\n")
    given = {name: value for name, value in GOOD.items() if name != "TIDEGATE_NATS_PASSWORD"}
    settings = ServiceSettings.load({**given, "TIDEGATE_NATS_PASSWORD_FILE": str(secret)})
    assert settings.nats_password.get_secret_value() == "from file"


def test_names_every_missing_variable_and_what_to_do() -> None:
    with pytest.raises(SettingsError) as refused:
        ServiceSettings.load({})
    lines = str(refused.value).splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "TIDEGATE_NATS_URL",
        "TIDEGATE_NATS_USER",
        "TIDEGATE_NATS_PASSWORD",
        "TIDEGATE_DATABASE_URL",
    ]
    assert lines[0].endswith("not set; set it, or TIDEGATE_NATS_URL_FILE to the path of a file that holds it")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("TIDEGATE_HEALTH_PORT", "70000", "TIDEGATE_HEALTH_PORT: '70000' is not right: input should be less than"),
        ("TIDEGATE_HEALTH_PORT", "high", "TIDEGATE_HEALTH_PORT: 'high' is not right: input should be a valid integer"),
        ("TIDEGATE_LOG_FORMAT", "xml", "TIDEGATE_LOG_FORMAT: 'xml' is not right: input should be 'text' or 'json'"),
        (
            "TIDEGATE_SINGLE_TENANT",
            "perhaps",
            "TIDEGATE_SINGLE_TENANT: 'perhaps' is not right: input should be a valid",
        ),
        ("TIDEGATE_BOOTSTRAP_TOKENS", "secret", "TIDEGATE_BOOTSTRAP_TOKENS: the value given (not shown) is not right"),
        (
            "TIDEGATE_BOOTSTRAP_TOKENS",
            '[{"token": "secret"}]',
            "TIDEGATE_BOOTSTRAP_TOKENS: the value given (not shown) is not right (at 0.tenant): field required",
        ),
        (
            "TIDEGATE_NATS_PASSWORD_FILE",
            "/nowhere",
            "TIDEGATE_NATS_PASSWORD: TIDEGATE_NATS_PASSWORD and TIDEGATE_NATS_PASSWORD_FILE are both set; keep one",
        ),
        ("TIDEGATE_HEALTH_PORT_FILE", "/nowhere", "TIDEGATE_HEALTH_PORT_FILE: '/nowhere' cannot be read"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_right(name: str, value: str, said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        ApiSettings.load({**GOOD, name: value})
    assert str(refused.value).startswith(said)
    assert "secret" not in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_the_content_of_a_file_is_not_shown(tmp_path: Path) -> None:
    port = tmp_path / "port"
    port.write_text("top-secret")
    with pytest.raises(SettingsError) as refused:
        ServiceSettings.load({**GOOD, "TIDEGATE_HEALTH_PORT_FILE": str(port)})
    assert "top-secret" not in str(refused.value)


def test_settings_hide_their_secrets_and_do_not_change() -> None:
    settings = ServiceSettings.load(GOOD)
    assert "hush" not in repr(settings)
    assert "hidden" not in repr(settings)
    assert settings.secrets() == ["hush", "postgresql://api:hidden@/tidegate"]
    with pytest.raises(ValueError, match="frozen"):
        settings.nats_user = "somebody"  # type: ignore[misc] # that is the fault
