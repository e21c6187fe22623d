"""Settings of the questions that external brokers may ask about devices (docs/how-to/other-brokers.md)."""

from __future__ import annotations

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings

from adapters.http.core.trusted_proxies import parse_networks


class BrokerAuthSettings(BaseSettings):
    broker_auth_secret: SecretStr | None = Field(
        default=None, min_length=16, description="An external broker that shows it may ask about logins and topics of devices."
    )
    broker_auth_networks: str = Field(
        default="", description="Addresses from which a broker may ask without it, comma-separated: 127.0.0.1,10.1.0.0/24."
    )

    @field_validator("broker_auth_networks")
    @classmethod
    def _check_broker_auth_networks(cls, value: str) -> str:
        parse_networks(value)
        return value

    @property
    def answers_brokers(self) -> bool:
        return self.broker_auth_secret is not None or bool(self.broker_auth_networks.strip())
