"""What the broker inside the process is started with: addresses, limits, certificates and stored sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class BrokerListenAddress:
    """One address to listen on. Port 0 takes any free port."""

    transport: Literal["tcp", "ws"]
    host: str
    port: int
    tls: bool = False


@dataclass(frozen=True, slots=True)
class UnauthenticatedConnectionLimits:
    """Limits on sockets whose CONNECT has not been accepted yet, and bans; None leaves the broker's default. `trusted_networks`
    are address and prefix length of networks that are neither limited alone nor banned."""

    max_pending: int | None = None
    max_pending_per_address: int | None = None
    ban_after: int | None = None
    max_ban_s: float | None = None
    trusted_networks: Sequence[tuple[IPv4Address | IPv6Address, int]] | None = None


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """Limits of the broker; None keeps its default (rust/broker/src/limits.rs explains them)."""

    threads: int | None = None
    max_connections: int | None = None
    max_connections_per_device: int | None = None
    connect_timeout_s: float | None = None
    max_payload: int | None = None
    max_inflight: int | None = None
    inbound_bytes: int | None = None
    qos0_timeout_s: float | None = None
    outbound_queue: int | None = None
    session_expiry_s: int | None = None
    rate_per_second: float | None = None
    rate_burst: float | None = None
    pending: UnauthenticatedConnectionLimits | None = None


@dataclass(frozen=True, slots=True)
class EmbeddedBrokerSettings:
    """Where to listen; certificate and key are PEM files and needed where a listener has TLS. With `client_ca` (PEM), a client of
    these listeners must show a certificate of that authority, whose common name or DNS name is its device id."""

    listeners: tuple[BrokerListenAddress, ...]
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    limits: BrokerLimits = field(default_factory=BrokerLimits)
