"""Settings of how many connections strangers may hold; docs/how-to/operate.md explains the defaults."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings

from adapters.http.core.callers import Network, parse_networks
from app.config.checked_setting_types import Networks

Count = Annotated[int, Field(ge=8, le=1_000_000)]


class ConnectionLimitSettings(BaseSettings):
    """Without a value, a limit follows from how many files the process may open (`app.runtime.start`)."""

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

    def unlimited_networks(self, trusted_proxies: str) -> tuple[Network, ...]:
        return parse_networks(self.unlimited_addresses) + parse_networks(trusted_proxies)
