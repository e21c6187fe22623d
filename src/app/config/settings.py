"""The settings of the service: environment variables `LATCHBOARD_*`, then `.env`, then `latchboard.toml`; the first value wins.

All settings are validated once, at the start. A wrong value stops the start with the name of the variable, its value and what is
allowed, so that no pump runs with a setting that was silently ignored. `checks.py` checks single values; here follows the list of
all settings, what must hold between them, and how they are read.

An unknown name in `latchboard.toml` is an error, because the file is only ours. In the environment and in `.env` it is a warning:
other programs write there too (Kubernetes sets LATCHBOARD_SERVICE_HOST).
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import tomllib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from dotenv import dotenv_values
from pydantic import BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from adapters.http.core.callers import Network, parse_networks
from app.config.checks import (
    Networks,
    PublicUrl,
    check_broker,
    check_clickhouse_url,
    check_database_url,
    check_homeassistant,
    check_host,
    check_issuer,
    check_low_ports,
    check_monitors,
    check_scopes,
    check_servers,
    checked,
    domain_rule,
    parse_role_map,
    reachable_address,
    split_servers,
    uppercase,
)
from domain.accounts.policy import check_email, check_password
from domain.kernel.caller import Role
from domain.oidc.policy import OidcFactorTrust
from domain.partitions.model import MAX_PARTITIONS
from domain.sign_in.policy import RolesRequiringSecondFactor

PREFIX = "LATCHBOARD_"
ENVIRONMENT, DOTENV, TOML = "environment", ".env", "latchboard.toml"
COMMAND_SECRETS = frozenset(
    {f"{PREFIX}{name}" for name in ("API_KEY", "AUDIT_STREAM_SECRET", "NEW_PASSWORD", "PASSWORD", "TOKEN")}
)
"""Variables that single commands read; they are not settings."""
FILE_SUFFIX = "_FILE"
MAX_SECRET_BYTES = 65_536
MAX_WORKERS = 64
_URL_SECRET = re.compile(r"(://[^:/@]*:)[^@]*(@)")

Port = Annotated[int, Field(ge=0, le=65_535)]
"""0 selects any free port; the banner and the log show which."""
Count = Annotated[int, Field(ge=8, le=1_000_000)]


class SettingsError(Exception):
    """One line per wrong setting. The command line prints them and exits with 2."""


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=DOTENV,
        env_file_encoding="utf-8",
        toml_file=TOML,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=False,
    )

    # How many connections strangers may hold. Without a value, a limit follows from how many files the process may open
    # (`app.runtime.start`); docs/how-to/operate.md explains the defaults.
    http_connections: Count | None = Field(default=None, description="Open HTTP connections, live feed included.")
    http_connections_per_address: Count | None = Field(default=None, description="Of these, of one client address.")
    feed_pending: Count = Field(default=500, description="Feed connections that have not sent credentials yet.")
    feed_pending_per_address: Count = Field(default=50, description="Of these, of one client address.")
    mqtt_connections: Count | None = Field(default=None, description="Open MQTT connections.")
    mqtt_pending: Count | None = Field(default=None, description="Of these, before their CONNECT is accepted.")
    mqtt_pending_per_address: Count | None = Field(default=None, description="Of these, of one client address.")
    ban_after: int = Field(
        default=50, ge=0, le=1_000_000, description="Failed connections in a row before an address is banned; 0: never."
    )
    ban_max_seconds: int = Field(default=600, ge=1, le=86_400, description="The longest ban; the first one lasts a second.")
    unlimited_addresses: Networks = Field(
        default="127.0.0.0/8, ::1",
        description="Addresses without limits of their own and without bans, comma-separated; trusted proxies are added.",
    )

    # Several worker processes on one machine (docs/how-to/operate.md, "Worker processes")
    workers: int = Field(
        default=1, ge=1, le=MAX_WORKERS, description="Processes that share the HTTP port; more than 1 needs PostgreSQL."
    )
    worker_port: int | None = Field(
        default=None,
        ge=1,
        le=65_535 - MAX_WORKERS,
        description="Worker 1 alone answers here too, worker 2 on the next port: for metrics.",
    )

    # Where webhooks may deliver (docs/reference/webhooks.md)
    webhook_allow_private: bool = Field(
        default=False, description="Allow http and private addresses for webhooks; for development only."
    )
    webhook_networks: Networks = Field(
        default="", description="Networks of receivers beside public addresses, by http too, comma-separated: 192.168.1.0/24."
    )
    webhook_low_ports: Annotated[str, checked(check_low_ports)] = Field(
        default="", description="Webhook ports below 1024 besides 80 and 443, comma-separated."
    )
    webhook_ca_file: Path | None = Field(default=None, description="More trusted certificates for webhooks (PEM).")

    # Where telemetry is kept, and for how long (docs/how-to/clickhouse.md)
    clock_hold_s: int = Field(
        default=3_600,
        ge=0,
        le=86_400,
        description="Seconds that a step of the clock must hold to be believed without time synchronisation; 0: at once.",
    )
    readings_days: int = Field(default=30, ge=1, le=3_650, description="Days to keep raw telemetry.")
    rollups_days: int = Field(default=365, ge=1, le=3_650, description="Days to keep hourly roll-ups of telemetry.")
    clickhouse_url: Annotated[SecretStr, checked(check_clickhouse_url)] | None = Field(
        default=None,
        description="https://user:password@host:8443/database: ClickHouse, which gets the raw telemetry that is older.",
    )
    clickhouse_days: int = Field(default=365, ge=1, le=3_650, description="Days to keep raw telemetry in ClickHouse.")

    # Sign-in with OpenID Connect (docs/how-to/openid-connect.md)
    oidc_issuer: Annotated[str, checked(check_issuer)] | None = Field(
        default=None, description="The provider's issuer, https://sso.example.com/realms/plant"
    )
    oidc_client_id: str | None = None
    oidc_client_secret: SecretStr | None = Field(default=None, description="None for a public client.")
    oidc_name: str | None = Field(default=None, max_length=40, description="On the button; default: the issuer's host.")
    oidc_scopes: Annotated[str, checked(check_scopes)] = Field(
        default="openid profile email", pattern=r"^[\x21\x23-\x5B\x5D-\x7E ]{1,500}$"
    )
    oidc_role_claim: str = Field(default="", max_length=200, description="Claim with groups or roles, such as groups.")
    oidc_role_map: Annotated[str, checked(parse_role_map)] = Field(
        default="", description="value=Role, comma-separated: plant-admins=Admin, plant=Member"
    )
    oidc_default_role: Role | None = Field(default=None, description="Without a mapped value; default: the sign-in is refused.")
    oidc_auto_create: bool = Field(default=False, description="Add unknown people of the provider as members.")
    oidc_account: str | None = Field(default=None, description="Their account, acc_…; default: the only one.")
    oidc_trust_email: bool = Field(default=False, description="Also of a provider that sends no email_verified.")
    oidc_second_factor: OidcFactorTrust = Field(
        OidcFactorTrust.NEVER, description="When the provider's sign-in stands for the second factor: never, always or claimed."
    )
    oidc_acr_values: str = Field(default="", max_length=500, description="Asked of the provider, and accepted when claimed.")
    oidc_session_hours: int = Field(default=24, ge=1, le=720, description="Until the provider must confirm the user again.")
    oidc_sign_out: bool = Field(default=False, description="Sign out of the provider too.")
    oidc_ca_file: Path | None = Field(default=None, description="More trusted certificates for the provider (PEM).")

    # A cluster: several instances that share the devices (docs/how-to/cluster.md)
    cluster: Annotated[SecretStr, checked(check_servers)] | None = Field(
        default=None, description="Nodes of NATS, nats://a:4222,b:4222,c:4222: share the devices with other instances."
    )
    cluster_partitions: int = Field(
        default=16, ge=1, le=MAX_PARTITIONS, description="Parts of the fleet; fixed by the cluster's first start."
    )
    cluster_monitor: Annotated[str, checked(check_monitors)] = Field(
        default="",
        description="Monitoring addresses of all NATS nodes, http://a:8222,http://b:8222,…, for the check of the start.",
    )
    cluster_log_mib: int = Field(
        default=1_024, ge=1, le=1_048_576, description="Bound of each partition's log, which begins at 32 MiB and grows."
    )
    cluster_unsafe: bool = Field(
        default=False, description="Start although the log may lose confirmed messages; for development only."
    )

    # Notifications by Telegram (docs/how-to/notifications.md)
    telegram_url: PublicUrl = Field(
        default="https://api.telegram.org", description="Server of the Telegram Bot API, or of another one that speaks it."
    )

    # What an external broker may ask about devices (docs/how-to/other-brokers.md)
    broker_auth_secret: SecretStr | None = Field(
        default=None, min_length=16, description="An external broker that shows it may ask about logins and topics of devices."
    )
    broker_auth_networks: Networks = Field(
        default="", description="Addresses from which a broker may ask without it, comma-separated: 127.0.0.1,10.1.0.0/24."
    )

    # The installation, and where people reach it
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

    # The broker, embedded or external, and where devices reach it
    mqtt_host: str = Field(default="127.0.0.1", description="Address of the embedded broker.")
    mqtt_port: Port = 1883
    mqtt_ws_port: Port = 8083
    mqtt_tls_port: Port | None = Field(default=None, description="MQTT over TLS; needs certificate and key.")
    mqtt_tls_certificate: Path | None = None
    mqtt_tls_key: Path | None = None
    mqtt_client_ca: Path | None = Field(default=None, description="Authority whose certificates devices must show with TLS.")
    mqtt_public_host: Annotated[str, checked(check_host)] | None = Field(
        default=None, description="Host in device credentials; default: this machine's address."
    )
    broker: Annotated[str, checked(check_broker)] = Field(
        default="embedded", description="`embedded`, mqtt://user:password@host:1883, or `none`."
    )
    mosquitto_password_file: Path | None = Field(default=None, description="External Mosquitto: file for device credentials.")
    mosquitto_acl_file: Path | None = None
    mosquitto_pid_file: Path | None = None

    # Database, engine, first account, keys
    database_url: Annotated[SecretStr, checked(check_database_url)] | None = Field(
        default=None, description="postgresql+asyncpg://…; default: SQLite in the data directory."
    )
    engine: Literal["native", "reference"] = "native"
    owner_email: Annotated[str, checked(domain_rule(check_email))] | None = Field(
        default=None, description="Owner of the first account in an empty database."
    )
    owner_password: Annotated[SecretStr, checked(domain_rule(check_password))] | None = None
    secret_keys: SecretStr | None = Field(
        default=None, description="Key ring, newest key first; default: a file in the data directory."
    )

    # Mail
    smtp_url: SecretStr | None = Field(default=None, description="smtp://user:password@host:587")
    smtp_from: str | None = None

    # Home Assistant (docs/how-to/home-assistant.md)
    homeassistant: Annotated[SecretStr, checked(check_homeassistant)] | None = Field(
        default=None, description="Broker of Home Assistant, mqtt://user:password@host:1883."
    )
    homeassistant_key: SecretStr | None = Field(default=None, description="API key that Home Assistant acts with.")
    homeassistant_prefix: str = Field(default="homeassistant", pattern=r"^[A-Za-z0-9_-]{1,32}(/[A-Za-z0-9_-]{1,32}){0,3}$")

    # Browsers and reverse proxies
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

    hsts_subdomains: bool = Field(
        default=False, description="HSTS holds for all subdomains too: every service there must be reachable over TLS."
    )
    session_days: int = Field(
        default=90, ge=1, le=365, description="After so many days a person signs in again, however often a session was used."
    )

    # What is accepted and kept, and when the disk is full
    ingest_limit: float = Field(default=50.0, ge=0, le=1_000_000, description="Messages per second and device; 0: no limit.")
    events_days: int = Field(default=365, ge=1, le=3_650)
    deliveries_days: int = Field(default=7, ge=1, le=3_650, description="Days to keep webhook deliveries and their attempts.")
    disk_warning_percent: float = Field(
        default=5.0, ge=0, le=100, description="Warn below this share of free disk space or below the MiB, whichever is less."
    )
    disk_warning_mib: int = Field(default=512, ge=0, description="0 in either setting turns the warning off.")

    # The log
    log_format: Literal["console", "json"] | None = Field(
        default=None, description="Default: console on a terminal, json elsewhere."
    )
    log_level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(uppercase)] = "INFO"

    @model_validator(mode="after")
    def _check_consistency(self) -> Settings:
        for check in (
            check_tls,
            check_without_broker,
            check_cluster,
            check_workers,
            check_given_together,
            check_oidc_auto_create,
            check_days,
        ):
            check(self)
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
    def has_postgres(self) -> bool:
        return self.effective_database_url.startswith("postgresql")

    @property
    def effective_database_url(self) -> str:
        """The URL of the database, with its default."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite+aiosqlite:///{self.data_dir / 'latchboard.db'}"

    @property
    def answers_brokers(self) -> bool:
        """Whether external brokers may ask about devices."""
        return self.broker_auth_secret is not None or bool(self.broker_auth_networks.strip())

    @property
    def unlimited_networks(self) -> tuple[Network, ...]:
        return parse_networks(self.unlimited_addresses) + parse_networks(self.trusted_proxies)

    @property
    def allowed_webhook_networks(self) -> tuple[Network, ...]:
        return parse_networks(self.webhook_networks)

    @property
    def allowed_low_ports(self) -> frozenset[int]:
        return frozenset(int(port) for port in self.webhook_low_ports.split(",") if port.strip())

    @property
    def cluster_servers(self) -> list[str]:
        return [] if self.cluster is None else split_servers(self.cluster.get_secret_value())

    @property
    def cluster_monitors(self) -> list[str]:
        return [address.strip().rstrip("/") for address in self.cluster_monitor.split(",") if address.strip()]

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


GIVEN_TOGETHER = (
    ("homeassistant", "homeassistant_key"),
    ("oidc_issuer", "oidc_client_id"),
    ("oidc_role_claim", "oidc_role_map"),
    ("owner_email", "owner_password"),
)


# What must hold between settings. Each raises ValueError, which says what to change.


def check_tls(settings: Settings) -> None:
    if settings.mqtt_tls_port is not None and (settings.mqtt_tls_certificate is None or settings.mqtt_tls_key is None):
        raise ValueError("LATCHBOARD_MQTT_TLS_PORT needs LATCHBOARD_MQTT_TLS_CERTIFICATE and LATCHBOARD_MQTT_TLS_KEY (PEM)")
    if settings.mqtt_client_ca is not None and settings.mqtt_tls_port is None:
        raise ValueError("LATCHBOARD_MQTT_CLIENT_CA needs LATCHBOARD_MQTT_TLS_PORT: devices show certificates in TLS only")


def check_without_broker(settings: Settings) -> None:
    if not settings.has_broker and not settings.has_postgres:
        raise ValueError("LATCHBOARD_BROKER=none needs the PostgreSQL database of another instance; set LATCHBOARD_DATABASE_URL")


def check_cluster(settings: Settings) -> None:
    if settings.cluster is None:
        return
    if not settings.has_postgres:
        raise ValueError("LATCHBOARD_CLUSTER needs PostgreSQL; set LATCHBOARD_DATABASE_URL")
    if not settings.has_broker or settings.engine != "native":
        raise ValueError("LATCHBOARD_CLUSTER needs a broker and the native engine; unset LATCHBOARD_BROKER and _ENGINE")
    if any((settings.mosquitto_password_file, settings.mosquitto_acl_file, settings.mosquitto_pid_file)):
        raise ValueError(
            "LATCHBOARD_CLUSTER cannot write the files of Mosquitto; unset LATCHBOARD_MOSQUITTO_*, and let the broker ask "
            "over HTTP (docs/how-to/other-brokers.md)"
        )


def check_workers(settings: Settings) -> None:
    if settings.workers == 1:
        return
    if not settings.has_postgres:
        raise ValueError(
            f"{settings.workers} workers need PostgreSQL: only one process may write to an SQLite file. Set "
            "LATCHBOARD_DATABASE_URL (`latchboard move-to` moves this installation), or leave LATCHBOARD_WORKERS at 1"
        )
    if settings.cluster is not None:
        raise ValueError(
            "LATCHBOARD_WORKERS and LATCHBOARD_CLUSTER exclude each other: an instance of a cluster has MQTT ports of its "
            "own. Start one instance per core instead, or unset LATCHBOARD_CLUSTER"
        )
    if sys.platform != "linux":
        raise ValueError(
            "more than one worker needs Linux, which spreads connections over processes. Leave LATCHBOARD_WORKERS at 1"
        )


def check_given_together(settings: Settings) -> None:
    given = settings.model_dump(exclude_defaults=True)
    for first, second in GIVEN_TOGETHER:
        if (first in given) != (second in given):
            raise ValueError(f"set both {PREFIX}{first.upper()} and {PREFIX}{second.upper()}, or neither")


def check_oidc_auto_create(settings: Settings) -> None:
    if settings.oidc_auto_create and not settings.oidc_role_claim and settings.oidc_default_role is None:
        raise ValueError("LATCHBOARD_OIDC_AUTO_CREATE needs LATCHBOARD_OIDC_DEFAULT_ROLE or LATCHBOARD_OIDC_ROLE_CLAIM")


def check_days(settings: Settings) -> None:
    if settings.rollups_days < settings.readings_days:
        raise ValueError("LATCHBOARD_ROLLUPS_DAYS must be at least LATCHBOARD_READINGS_DAYS; raise it or lower the other")
    if settings.clickhouse_url is not None and not settings.readings_days < settings.clickhouse_days <= settings.rollups_days:
        raise ValueError(
            "LATCHBOARD_CLICKHOUSE_DAYS must be more than LATCHBOARD_READINGS_DAYS and at most LATCHBOARD_ROLLUPS_DAYS; "
            "change one of them"
        )


# How they are read.


def load_settings(**overrides: Any) -> Settings:
    """Raises SettingsError, which names each wrong setting, its value and what is allowed."""
    try:
        faults = [
            f"{TOML}: {message}" for message in unknown_variable_messages(variables_by_source({})[TOML], _known_variables())
        ]
        settings = Settings(**(_read_secret_files() | overrides))
    except ValidationError as error:
        faults += [_format_error(item) for item in error.errors(include_url=False)]
    except (OSError, ValueError) as error:
        raise SettingsError(f"The settings could not be read: {error}") from None
    if faults:
        raise SettingsError("\n".join(faults))
    return settings


def read_secret(name: str, environ: Mapping[str, str | None] = os.environ) -> str | None:
    """The variable `name`, or what is in the file that `<name>_FILE` names, without the line end after it; None: neither is set.
    Raises ValueError."""
    value, path = environ.get(name), environ.get(name + FILE_SUFFIX)
    if not path:
        return value
    if value:
        raise ValueError(f"{name} and {name}{FILE_SUFFIX} are both set. Keep one of them.")
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_SECRET_BYTES + 1)
        text = content.decode()
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "it is not text"
        raise ValueError(f"{name}{FILE_SUFFIX} = {path}: the file cannot be read: {reason}.") from None
    if len(content) > MAX_SECRET_BYTES:
        raise ValueError(f"{name}{FILE_SUFFIX} = {path}: the file is larger than {MAX_SECRET_BYTES:,} bytes; it is no secret.")
    return text.removesuffix("\n").removesuffix("\r")


def _read_secret_files() -> dict[str, str]:
    """Of the settings whose file is named by a variable in the environment or in `.env`. Raises ValueError."""
    environ = {**(dotenv_values(DOTENV) if Path(DOTENV).is_file() else {}), **os.environ}
    named = [name for name in _secret_settings() if environ.get(f"{PREFIX}{name.upper()}{FILE_SUFFIX}")]
    found = {name: read_secret(PREFIX + name.upper(), environ) for name in named}
    return {name: value for name, value in found.items() if value is not None}


def _secret_settings() -> list[str]:
    return [name for name, field in Settings.model_fields.items() if "Secret" in str(field.annotation)]


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
    shown = "***" if str(item["loc"][0]) in _secret_settings() else repr(item["input"])
    return f"{name} = {shown}: {message[0].lower()}{message[1:]}"


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


def unknown_variable_messages(names: Iterable[str], known: Collection[str]) -> list[str]:
    """One message for each name with our prefix that is not a setting, with the most similar setting if there is one."""
    secrets = COMMAND_SECRETS | {PREFIX + name.upper() for name in _secret_settings()}
    others = {*COMMAND_SECRETS, f"{PREFIX}URL", *(name + FILE_SUFFIX for name in secrets)}
    unknown = sorted(name for name in names if name.startswith(PREFIX) and name not in known and name not in others)
    return [f"{name} is not a setting{_suggestion(name, known)}" for name in unknown]


def _suggestion(name: str, known: Collection[str]) -> str:
    similar = difflib.get_close_matches(name.removeprefix(PREFIX), [one.removeprefix(PREFIX) for one in known], n=1, cutoff=0.7)
    return f"; did you mean {PREFIX}{similar[0]}?" if similar else ""
