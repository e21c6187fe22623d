"""What is asked of a fleet: how many, how they connect, what they say, what goes wrong."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from app.fleet.faults import Faults

TLS_PORT = 8883
"""Registered for MQTT over TLS; credentials name only the plain ports."""


class SimulationRefused(Exception):
    """What the service said, or why it could not be asked, and what to do about it."""


class Transport(StrEnum):
    TCP = "tcp"
    WS = "ws"
    TLS = "tls"
    WSS = "wss"

    @property
    def websocket(self) -> bool:
        return self in (Transport.WS, Transport.WSS)

    @property
    def tls(self) -> bool:
        return self in (Transport.TLS, Transport.WSS)


class Version(StrEnum):
    V311 = "3.1.1"
    V5 = "5"

    @property
    def level(self) -> int:
        """As CONNECT says it."""
        return 5 if self is Version.V5 else 4


class Profile(StrEnum):
    NATIVE = "native"
    TASMOTA = "tasmota"
    ESPHOME = "esphome"
    SHELLY = "shelly"


@dataclass(frozen=True, slots=True)
class Login:
    device_id: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Access:
    """How the service is asked for devices: with a token, or signed in by email and password."""

    url: str
    token: str | None = field(default=None, repr=False)
    email: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Route:
    """`host` and `port` None: as the service's credentials say."""

    transport: Transport = Transport.TCP
    version: Version = Version.V311
    host: str | None = None
    port: int | None = None
    ca: Path | None = None

    def trust(self) -> bytes | None:
        """PEM certificates to trust, where there is TLS. Raises SimulationRefused."""
        if not self.transport.tls:
            return None
        path = self.ca or ssl.get_default_verify_paths().cafile
        if path is None:
            raise SimulationRefused("This system has no file of trusted certificates; name one with --ca.")
        try:
            return Path(path).read_bytes()
        except OSError as error:
            raise SimulationRefused(f"{path} cannot be read: {error.strerror}. Name a PEM file with --ca.") from None


@dataclass(frozen=True, slots=True)
class Order:
    """`rate`: telemetry messages a second of all devices together; 0 is as fast as they are confirmed."""

    access: Access
    route: Route
    count: int
    devices: tuple[str, ...] = ()
    logins: Path | None = None
    write_logins: Path | None = None
    profile: Profile = Profile.NATIVE
    rate: float = 5.0
    qos: int = 1
    seconds: float | None = None
    commands: float = 0.0
    remove: bool = False
    faults: Faults = field(default_factory=Faults)
