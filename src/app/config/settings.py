"""The settings of the service: environment variables `LATCHBOARD_*`, then `.env`, then `latchboard.toml`; the first value wins.

All settings are validated once, at the start. A wrong value stops the start with the name of the variable, its value and what is
allowed, so that no pump runs with a setting that was silently ignored.

Where each setting comes from.

Variables that are no settings, for example because of a typing error, with a suggestion.

An unknown name in `latchboard.toml` is an error, because the file is only ours. In the environment and in `.env` it is a warning:
other programs write there too (Kubernetes sets LATCHBOARD_SERVICE_HOST).
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from dotenv import dotenv_values
from pydantic import BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from app.config.checks import Networks, PublicUrl, check_mqtt_url, checked, is_ip_address, reachable_address
from app.config.sections import (
    ClusterSettings,
    ExternalBrokerAuthSettings,
    OidcSettings,
    TelegramServerSettings,
    TelemetryStorageSettings,
    WebhookDestinationSettings,
    WorkerProcessSettings,
)
from domain.accounts.policy import check_email, check_password
from domain.kernel.errors import ValidationFailed
from domain.sign_in.policy import RolesRequiringSecondFactor

PREFIX = "LATCHBOARD_"
ENVIRONMENT, DOTENV, TOML = "environment", ".env", "latchboard.toml"


def variables_by_source(environ: Mapping[str, str] = os.environ) -> dict[str, set[str]]:
    """Source → variables set there, in capitals. An earlier source has precedence. Raises OSError, ValueError."""
    toml = Path(TOML)
    return {
        ENVIRONMENT: {name.upper() for name in environ},
        DOTENV: {name.upper() for name in dotenv_values(DOTENV)} if Path(DOTENV).is_file() else set(),
        TOML: {PREFIX + name.upper() for name in tomllib.loads(toml.read_text(encoding="utf-8"))} if toml.is_file() else set(),
    }


def source_of(name: str, by_source: Mapping[str, Collection[str]]) -> str:
    return next((source for source, names in by_source.items() if name in names), "default")


COMMAND_VARIABLES = frozenset({f"LATCHBOARD_{name}" for name in ("API_KEY", "NEW_PASSWORD", "PASSWORD", "TOKEN", "URL")})
"""Variables that single commands read; they are not settings."""


def unknown_variable_messages(names: Iterable[str], known: Collection[str]) -> list[str]:
    """One message for each name with our prefix that is not a setting, with the most similar setting if there is one."""
    unknown = sorted(name for name in names if name.startswith(PREFIX) and name not in known and name not in COMMAND_VARIABLES)
    return [f"{name} is not a setting{_suggestion(name, known)}" for name in unknown]


def _suggestion(name: str, known: Collection[str]) -> str:
    similar = difflib.get_close_matches(name.removeprefix(PREFIX), [one.removeprefix(PREFIX) for one in known], n=1, cutoff=0.7)
    return f"; did you mean {PREFIX}{similar[0]}?" if similar else ""


_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}")
_URL_SECRET = re.compile(r"(://[^:/@]*:)[^@]*(@)")

Port = Annotated[int, Field(ge=0, le=65_535)]
"""0 selects any free port; the banner and the log show which."""


def _uppercase(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


def _check_broker(value: str) -> None:
    if value not in ("embedded", "none"):
        check_mqtt_url(value, "must be `embedded`, `none`, or")


def _check_homeassistant(value: str) -> None:
    check_mqtt_url(value, "must be")


def _check_host(value: str) -> None:
    """The name appears in configurations of five languages, so only characters of host names and addresses are allowed."""
    if not _HOST.fullmatch(value) and not is_ip_address(value):
        raise ValueError("must be a host name or an address such as mqtt.example.com: no scheme, port or brackets")


def _check_database_url(value: str) -> None:
    if not value.startswith(("sqlite+aiosqlite:///", "postgresql+asyncpg://")):
        raise ValueError("must begin with sqlite+aiosqlite:/// or postgresql+asyncpg://")


def _domain_rule(check: Callable[[str], str]) -> Callable[[str], None]:
    """A rule of the domain as the check of a setting."""

    def check_setting(value: str) -> None:
        try:
            check(value)
        except ValidationFailed as error:
            raise ValueError(error.details[0].message.rstrip(".")) from None

    return check_setting


class SettingsError(Exception):
    """One line per wrong setting. The command line prints them and exits with 2."""


class Settings(
    ExternalBrokerAuthSettings,
    TelegramServerSettings,
    ClusterSettings,
    OidcSettings,
    TelemetryStorageSettings,
    WebhookDestinationSettings,
    WorkerProcessSettings,
):
    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=DOTENV,
        env_file_encoding="utf-8",
        toml_file=TOML,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=False,
    )

    data_dir: Path = Field(
        default=Path("data"), description="Directory for database, keys and first login; created with mode 0700."
    )
    http_host: str = Field(default="127.0.0.1", description="Address of the API, the feed and the dashboard.")
    http_port: Port = 8080
    public_url: PublicUrl | None = Field(
        default=None, description="Where people reach the dashboard, https://latchboard.example.com: links, passkeys."
    )
    require_second_factor: RolesRequiringSecondFactor = Field(
        RolesRequiringSecondFactor.NOBODY, description="nobody, admins or all"
    )
    mqtt_host: str = Field(default="127.0.0.1", description="Address of the embedded broker.")
    mqtt_port: Port = 1883
    mqtt_ws_port: Port = 8083
    mqtt_tls_port: Port | None = Field(default=None, description="MQTT over TLS; needs certificate and key.")
    mqtt_tls_certificate: Path | None = None
    mqtt_tls_key: Path | None = None
    mqtt_client_ca: Path | None = Field(default=None, description="Authority whose certificates devices must show with TLS.")
    mqtt_public_host: Annotated[str, checked(_check_host)] | None = Field(
        default=None, description="Host in device credentials; default: this machine's address."
    )
    broker: Annotated[str, checked(_check_broker)] = Field(
        default="embedded", description="`embedded`, mqtt://user:password@host:1883, or `none`."
    )
    mosquitto_password_file: Path | None = Field(default=None, description="External Mosquitto: file for device credentials.")
    mosquitto_acl_file: Path | None = None
    mosquitto_pid_file: Path | None = None
    database_url: Annotated[SecretStr, checked(_check_database_url)] | None = Field(
        default=None, description="postgresql+asyncpg://…; default: SQLite in the data directory."
    )
    engine: Literal["native", "reference"] = "native"
    owner_email: Annotated[str, checked(_domain_rule(check_email))] | None = Field(
        default=None, description="Owner of the first account in an empty database."
    )
    owner_password: Annotated[SecretStr, checked(_domain_rule(check_password))] | None = None
    secret_keys: SecretStr | None = Field(
        default=None, description="Key ring, newest key first; default: a file in the data directory."
    )
    smtp_url: SecretStr | None = Field(default=None, description="smtp://user:password@host:587")
    smtp_from: str | None = None
    homeassistant: Annotated[SecretStr, checked(_check_homeassistant)] | None = Field(
        default=None, description="Broker of Home Assistant, mqtt://user:password@host:1883."
    )
    homeassistant_key: SecretStr | None = Field(default=None, description="API key that Home Assistant acts with.")
    homeassistant_prefix: str = Field(default="homeassistant", pattern=r"^[A-Za-z0-9_-]{1,32}(/[A-Za-z0-9_-]{1,32}){0,3}$")
    cors_origins: str = Field(default="", description="Origins allowed in browsers, comma-separated; default: none.")
    trusted_proxies: Networks = Field(
        default="", description="Addresses or networks of trusted reverse proxies, comma-separated."
    )
    forwarded_header: Literal["X-Forwarded-For", "Forwarded"] = Field(
        default="X-Forwarded-For", description="The header that these proxies write."
    )
    tls_at_proxy: bool = Field(
        default=False, description="A reverse proxy provides TLS for HTTP: send HSTS, and the dashboard's cookie over TLS only."
    )
    ingest_limit: float = Field(default=50.0, ge=0, le=1_000_000, description="Messages per second and device; 0: no limit.")
    events_days: int = Field(default=365, ge=1, le=3_650)
    deliveries_days: int = Field(default=7, ge=1, le=3_650, description="Days to keep webhook deliveries and their attempts.")
    disk_warning_percent: float = Field(
        default=5.0, ge=0, le=100, description="Warn below this share of free disk space or below the MiB, whichever is less."
    )
    disk_warning_mib: int = Field(default=512, ge=0, description="0 in either setting turns the warning off.")
    log_format: Literal["console", "json"] | None = Field(
        default=None, description="Default: console on a terminal, json elsewhere."
    )
    log_level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(_uppercase)] = "INFO"

    @model_validator(mode="after")
    def _check_consistency(self) -> Settings:
        if self.mqtt_tls_port is not None and (self.mqtt_tls_certificate is None or self.mqtt_tls_key is None):
            raise ValueError("LATCHBOARD_MQTT_TLS_PORT needs LATCHBOARD_MQTT_TLS_CERTIFICATE and LATCHBOARD_MQTT_TLS_KEY (PEM)")
        if self.mqtt_client_ca is not None and self.mqtt_tls_port is None:
            raise ValueError("LATCHBOARD_MQTT_CLIENT_CA needs LATCHBOARD_MQTT_TLS_PORT: devices show certificates in TLS only")
        if not self.has_broker and not self.effective_database_url.startswith("postgresql"):
            raise ValueError(
                "LATCHBOARD_BROKER=none needs the PostgreSQL database of another instance; set LATCHBOARD_DATABASE_URL"
            )
        files = (self.mosquitto_password_file, self.mosquitto_acl_file, self.mosquitto_pid_file)
        self.check_cluster(
            database_url=self.effective_database_url, broker=self.broker, engine=self.engine, mosquitto_files=any(files)
        )
        self.check_workers(database_url=self.effective_database_url, in_cluster=self.cluster is not None)
        if (self.homeassistant is None) != (self.homeassistant_key is None):
            raise ValueError("set both LATCHBOARD_HOMEASSISTANT and LATCHBOARD_HOMEASSISTANT_KEY, or neither")
        self.check_oidc()
        if (self.owner_email is None) != (self.owner_password is None):
            raise ValueError("set both LATCHBOARD_OWNER_EMAIL and LATCHBOARD_OWNER_PASSWORD, or neither")
        self.check_days()
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, dotenv_settings, TomlConfigSettingsSource(settings_cls)

    @property
    def has_broker(self) -> bool:
        """False for an instance that serves no devices."""
        return self.broker != "none"

    @property
    def effective_mqtt_public_host(self) -> str:
        """The host that device credentials contain, with its default: never the bare host name, which a device cannot resolve."""
        return self.mqtt_public_host or reachable_address(self.mqtt_host)

    @property
    def effective_public_url(self) -> str:
        """Where people reach the dashboard, with its default."""
        host = self.http_host if self.http_host not in ("127.0.0.1", "::1", "0.0.0.0", "::") else "localhost"  # noqa: S104
        return self.public_url or f"http://{host}:{self.http_port}"

    @property
    def effective_database_url(self) -> str:
        """The URL of the database, with its default."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite+aiosqlite:///{self.data_dir / 'latchboard.db'}"

    def masked_values(self) -> dict[str, str]:
        """Variable name → value with secrets masked, as `latchboard config` prints them."""
        shown: dict[str, str] = {}
        host, database = self.effective_mqtt_public_host, SecretStr(self.effective_database_url)
        effective: dict[str, Any] = {"database_url": database, "mqtt_public_host": host}
        for name in type(self).model_fields:
            value = effective.get(name, getattr(self, name))
            if isinstance(value, SecretStr):
                hidden = _URL_SECRET.sub(r"\1***\2", value.get_secret_value())
                value = hidden if "://" in hidden else "***"
            text = "" if value is None else str(value)
            shown[PREFIX + name.upper()] = _URL_SECRET.sub(r"\1***\2", text)
        return shown


def load_settings(**overrides: Any) -> Settings:
    """Raises SettingsError, which names each wrong setting, its value and what is allowed."""
    try:
        faults = [
            f"{TOML}: {message}" for message in unknown_variable_messages(variables_by_source({})[TOML], _known_variables())
        ]
        settings = Settings(**overrides)
    except ValidationError as error:
        faults += [_format_error(item) for item in error.errors(include_url=False)]
    except (OSError, ValueError) as error:
        raise SettingsError(f"The settings could not be read: {error}") from None
    if faults:
        raise SettingsError("\n".join(faults))
    return settings


def unknown_variable_warnings(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Messages about `LATCHBOARD_*` variables in the environment and in `.env` that are not settings."""
    by_source = variables_by_source(environ)
    return unknown_variable_messages(by_source[ENVIRONMENT] | by_source[DOTENV], _known_variables())


def setting_sources() -> dict[str, str]:
    """Variable name → the source of its value."""
    by_source = variables_by_source()
    return {name: source_of(name, by_source) for name in sorted(_known_variables())}


def _known_variables() -> set[str]:
    return {PREFIX + name.upper() for name in Settings.model_fields}


def _format_error(item: Any) -> str:
    message = str(item["msg"]).removeprefix("Value error, ")
    if not item["loc"]:
        return message
    name = PREFIX + str(item["loc"][0]).upper()
    field = Settings.model_fields.get(str(item["loc"][0]))
    given = item["input"]
    shown = "***" if field is not None and "Secret" in str(field.annotation) else repr(given)
    return f"{name} = {shown}: {message[0].lower()}{message[1:]}"
