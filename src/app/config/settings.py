"""What an operator may choose: environment `LATCHBOARD_*`, then `.env`, then `latchboard.toml`; the first that says wins.

Everything is checked once, at the start. A wrong value stops it with the variable's name, the value and what is allowed, so that
nobody runs a pump with a setting that was silently ignored.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from adapters.http.core.proxies import parse_networks
from app.config.sources import DOTENV, ENVIRONMENT, PREFIX, TOML, source_of, unknown_variable_messages, variables_by_source
from domain.accounts.policy import check_email, check_password
from domain.kernel.errors import ValidationFailed

_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}")
_URL_SECRET = re.compile(r"(://[^:/@]*:)[^@]*(@)")

Port = Annotated[int, Field(ge=0, le=65_535)]
"""0 takes any free port; the banner and the log say which."""


class SettingsError(Exception):
    """One line per wrong setting; the command line prints it and exits with 2."""


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

    data_dir: Path = Field(default=Path("data"), description="Database, keys, first-start file; created with mode 0700.")
    http_host: str = Field(default="127.0.0.1", description="REST, feed, dashboard.")
    http_port: Port = 8080
    mqtt_host: str = Field(default="127.0.0.1", description="The embedded broker.")
    mqtt_port: Port = 1883
    mqtt_ws_port: Port = 8083
    mqtt_tls_port: Port | None = Field(default=None, description="Off without; needs certificate and key.")
    mqtt_tls_certificate: Path | None = None
    mqtt_tls_key: Path | None = None
    mqtt_public_host: str = Field(default_factory=socket.gethostname, description="What credentials and config blocks name.")
    broker: str = Field(default="embedded", description="`embedded`, mqtt://user:password@host:1883, or `none`.")
    mosquitto_password_file: Path | None = Field(default=None, description="External broker: where device logins are written.")
    mosquitto_acl_file: Path | None = None
    mosquitto_pid_file: Path | None = None
    database_url: SecretStr | None = Field(default=None, description="SQLite in the data directory, or postgresql+asyncpg://…")
    engine: Literal["native", "reference"] = "native"
    owner_email: str | None = Field(default=None, description="Owner of the account that an empty database gets.")
    owner_password: SecretStr | None = None
    secret_keys: SecretStr | None = Field(default=None, description="Key ring, newest first; made and kept without.")
    smtp_url: SecretStr | None = Field(default=None, description="smtp://user:password@host:587")
    smtp_from: str | None = None
    webhook_allow_private: bool = Field(default=False, description="http and private addresses for webhooks: development only.")
    webhook_low_ports: str = Field(default="", description="Ports below 1024 beside 80 and 443 for webhooks, comma-separated.")
    webhook_ca_file: Path | None = Field(default=None, description="Certificates (PEM) believed beside the system's.")
    homeassistant: SecretStr | None = Field(default=None, description="Home Assistant's broker, mqtt://user:password@host:1883.")
    homeassistant_key: SecretStr | None = Field(default=None, description="The API key that Home Assistant acts as.")
    homeassistant_prefix: str = Field(default="homeassistant", pattern=r"^[A-Za-z0-9_-]{1,32}(/[A-Za-z0-9_-]{1,32}){0,3}$")
    cors_origins: str = Field(default="", description="Origins that browsers may call from, comma-separated; none by default.")
    trusted_proxies: str = Field(
        default="", description="Addresses or networks, comma-separated, whose word on where a request comes from is taken."
    )
    forwarded_header: Literal["X-Forwarded-For", "Forwarded"] = Field(
        default="X-Forwarded-For", description="The one header that these proxies write."
    )
    ingest_limit: float = Field(default=50.0, ge=0, le=1_000_000, description="Messages a second and device; 0 is no limit.")
    readings_days: int = Field(default=30, ge=1, le=3_650, description="How long raw telemetry is kept.")
    rollups_days: int = Field(default=365, ge=1, le=3_650, description="How long hourly roll-ups of telemetry are kept.")
    events_days: int = Field(default=365, ge=1, le=3_650)
    log_format: Literal["console", "json"] | None = Field(default=None, description="console on a terminal, else json.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"

    @field_validator("log_level", mode="before")
    @classmethod
    def _uppercase(cls, value: Any) -> Any:
        return value.upper() if isinstance(value, str) else value

    @field_validator("broker")
    @classmethod
    def _check_broker(cls, value: str) -> str:
        if value not in ("embedded", "none"):
            _check_mqtt_url(value, "is `embedded`, `none`, or")
        return value

    @field_validator("mqtt_public_host")
    @classmethod
    def _check_host(cls, value: str) -> str:
        """It stands in configurations of five languages: what is no part of a name or an address has no business there."""
        if not _HOST.fullmatch(value) and not _is_ip_address(value):
            raise ValueError("is a host name or an address by itself, such as mqtt.example.com: no scheme, port or brackets")
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _check_networks(cls, value: str) -> str:
        parse_networks(value)
        return value

    @field_validator("webhook_low_ports")
    @classmethod
    def _check_low_ports(cls, value: str) -> str:
        for port in filter(None, (part.strip() for part in value.split(","))):
            if not port.isdigit() or not 0 < int(port) < 1_024:
                raise ValueError("is a list of ports from 1 to 1023, such as 81,591")
        return value

    @field_validator("owner_email")
    @classmethod
    def _check_email(cls, value: str | None) -> str | None:
        if value is not None:
            _apply_domain_rule(check_email, value)
        return value

    @field_validator("owner_password")
    @classmethod
    def _check_owner_password(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            _apply_domain_rule(check_password, value.get_secret_value())
        return value

    @field_validator("homeassistant")
    @classmethod
    def _check_homeassistant_url(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None:
            return None
        _check_mqtt_url(value.get_secret_value(), "is")
        return value

    @field_validator("database_url")
    @classmethod
    def _check_database_url(cls, value: SecretStr | None) -> SecretStr | None:
        known = ("sqlite+aiosqlite:///", "postgresql+asyncpg://")
        if value is not None and not value.get_secret_value().startswith(known):
            raise ValueError("begins with sqlite+aiosqlite:/// or postgresql+asyncpg://")
        return value

    @model_validator(mode="after")
    def _check_consistency(self) -> Settings:
        if self.mqtt_tls_port is not None and (self.mqtt_tls_certificate is None or self.mqtt_tls_key is None):
            raise ValueError("LATCHBOARD_MQTT_TLS_PORT needs LATCHBOARD_MQTT_TLS_CERTIFICATE and LATCHBOARD_MQTT_TLS_KEY (PEM)")
        if not self.has_broker and not self.effective_database_url.startswith("postgresql"):
            raise ValueError("LATCHBOARD_BROKER=none needs the PostgreSQL of another instance; set LATCHBOARD_DATABASE_URL")
        if (self.homeassistant is None) != (self.homeassistant_key is None):
            raise ValueError("LATCHBOARD_HOMEASSISTANT and LATCHBOARD_HOMEASSISTANT_KEY go together; set both or neither")
        if (self.owner_email is None) != (self.owner_password is None):
            raise ValueError("LATCHBOARD_OWNER_EMAIL and LATCHBOARD_OWNER_PASSWORD go together; set both or neither")
        if self.rollups_days < self.readings_days:
            raise ValueError("LATCHBOARD_ROLLUPS_DAYS must be at least LATCHBOARD_READINGS_DAYS; raise it or lower the other")
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
        """False for an instance beside the one that devices talk to."""
        return self.broker != "none"

    @property
    def effective_database_url(self) -> str:
        """The database's URL, also where none is set."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite+aiosqlite:///{self.data_dir / 'latchboard.db'}"

    def masked(self) -> dict[str, str]:
        """By variable name, secrets hidden, as `latchboard config` shows them."""
        shown: dict[str, str] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if name == "database_url":
                value = SecretStr(self.effective_database_url)
            if isinstance(value, SecretStr):
                hidden = _URL_SECRET.sub(r"\1***\2", value.get_secret_value())
                value = hidden if "://" in hidden else "***"
            text = "" if value is None else str(value)
            shown[PREFIX + name.upper()] = _URL_SECRET.sub(r"\1***\2", text)
        return shown


def load_settings(**chosen: Any) -> Settings:
    """Raises SettingsError that names each wrong setting, its value and what is allowed."""
    try:
        strange = [f"{TOML}: {said}" for said in unknown_variable_messages(variables_by_source({})[TOML], _known_variables())]
        made = Settings(**chosen)
    except ValidationError as error:
        strange += [_format_error(item) for item in error.errors(include_url=False)]
    except (OSError, ValueError) as error:
        raise SettingsError(f"The settings could not be read: {error}") from None
    if strange:
        raise SettingsError("\n".join(strange))
    return made


def unknown_variable_warnings(environ: Mapping[str, str] = os.environ) -> list[str]:
    """What is said of `LATCHBOARD_*` in the environment and in `.env` that means nothing: a typo would otherwise be ignored."""
    said = variables_by_source(environ)
    return unknown_variable_messages(said[ENVIRONMENT] | said[DOTENV], _known_variables())


def setting_sources() -> dict[str, str]:
    """By variable name, where its value comes from."""
    said = variables_by_source()
    return {name: source_of(name, said) for name in sorted(_known_variables())}


def _known_variables() -> set[str]:
    return {PREFIX + name.upper() for name in Settings.model_fields}


def _check_mqtt_url(value: str, allowed: str) -> None:
    fault = f"{allowed} a URL such as mqtt://user:password@host:1883; write @ : / % # in the password percent-encoded"
    try:
        place = urlsplit(value)
        if place.scheme not in ("mqtt", "mqtts") or not place.hostname or place.port == 0 or place.path.strip("/"):
            raise ValueError(fault)
    except ValueError:
        raise ValueError(fault) from None


def _is_ip_address(text: str) -> bool:
    try:
        return bool(ipaddress.ip_address(text)) and "%" not in text  # a zone is of one machine, and may hold any sign
    except ValueError:
        return False


def _apply_domain_rule(check: Callable[[str], str], value: str) -> None:
    """The domain's own rule, in the words of a setting."""
    try:
        check(value)
    except ValidationFailed as error:
        raise ValueError(error.details[0].message.rstrip(".")) from None


def _format_error(item: Any) -> str:
    message = str(item["msg"]).removeprefix("Value error, ")
    if not item["loc"]:
        return message
    name = PREFIX + str(item["loc"][0]).upper()
    field = Settings.model_fields.get(str(item["loc"][0]))
    given = item["input"]
    shown = "***" if field is not None and "Secret" in str(field.annotation) else repr(given)
    return f"{name} = {shown}: {message[0].lower()}{message[1:]}"
