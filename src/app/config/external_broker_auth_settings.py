"""Settings of the questions that external brokers may ask about devices (docs/how-to/other-brokers.md)."""

from __future__ import annotations

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings

from app.config.checked_setting_types import Networks


class ExternalBrokerAuthSettings(BaseSettings):
    broker_auth_secret: SecretStr | None = Field(
        default=None, min_length=16, description="An external broker that shows it may ask about logins and topics of devices."
    )
    broker_auth_networks: Networks = Field(
        default="", description="Addresses from which a broker may ask without it, comma-separated: 127.0.0.1,10.1.0.0/24."
    )

    @property
    def answers_brokers(self) -> bool:
        return self.broker_auth_secret is not None or bool(self.broker_auth_networks.strip())
