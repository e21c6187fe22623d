"""Settings of where webhooks may deliver; docs/reference/webhooks.md explains them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings

from adapters.http.core.callers import Network, parse_networks
from app.config.checked_setting_types import Networks, checked


def _check_low_ports(value: str) -> None:
    for port in filter(None, (part.strip() for part in value.split(","))):
        if not port.isdigit() or not 0 < int(port) < 1_024:
            raise ValueError("must be a list of ports from 1 to 1023, such as 81,591")


class WebhookDestinationSettings(BaseSettings):
    webhook_allow_private: bool = Field(
        default=False, description="Allow http and private addresses for webhooks; for development only."
    )
    webhook_networks: Networks = Field(
        default="", description="Networks of receivers beside public addresses, by http too, comma-separated: 192.168.1.0/24."
    )
    webhook_low_ports: Annotated[str, checked(_check_low_ports)] = Field(
        default="", description="Webhook ports below 1024 besides 80 and 443, comma-separated."
    )
    webhook_ca_file: Path | None = Field(default=None, description="More trusted certificates for webhooks (PEM).")

    def allowed_webhook_networks(self) -> tuple[Network, ...]:
        return parse_networks(self.webhook_networks)

    def allowed_low_ports(self) -> frozenset[int]:
        return frozenset(int(port) for port in self.webhook_low_ports.split(",") if port.strip())
