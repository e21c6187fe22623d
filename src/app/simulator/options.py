"""What is asked of a fleet: how many, how they connect, what they say, what goes wrong."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from app.simulator.faults import FaultInjectionOptions
from domain.devices.model import FirmwareProfile

DEFAULT_TLS_PORT = 8883
"""Registered for MQTT over TLS; credentials name only the plain ports."""


class SimulationError(Exception):
    """What the service said, or why it could not be asked, and what to do about it."""


class MqttTransport(StrEnum):
    TCP = "tcp"
    WS = "ws"
    TLS = "tls"
    WSS = "wss"

    @property
    def is_websocket(self) -> bool:
        return self in (MqttTransport.WS, MqttTransport.WSS)

    @property
    def is_tls(self) -> bool:
        return self in (MqttTransport.TLS, MqttTransport.WSS)


class MqttVersion(StrEnum):
    V311 = "3.1.1"
    V5 = "5"

    @property
    def protocol_level(self) -> int:
        """As CONNECT says it."""
        return 5 if self is MqttVersion.V5 else 4


@dataclass(frozen=True, slots=True)
class DeviceLogin:
    device_id: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ApiCredentials:
    """How the service is asked for devices: with a token, or signed in by email and password."""

    url: str
    token: str | None = field(default=None, repr=False)
    email: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class MqttConnectionOptions:
    """`host` and `port` None: as the service's credentials say."""

    transport: MqttTransport = MqttTransport.TCP
    version: MqttVersion = MqttVersion.V311
    host: str | None = None
    port: int | None = None
    ca_file: Path | None = None

    def load_trusted_certificates(self) -> bytes | None:
        """PEM certificates to trust, where there is TLS. Raises SimulationRefused."""
        if not self.transport.is_tls:
            return None
        path = self.ca_file or ssl.get_default_verify_paths().cafile
        if path is None:
            raise SimulationError("This system has no file of trusted certificates; name one with --ca.")
        try:
            return Path(path).read_bytes()
        except OSError as error:
            raise SimulationError(f"{path} cannot be read: {error.strerror}. Name a PEM file with --ca.") from None


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """`rate`: telemetry messages a second of all devices together; 0 is as fast as they are confirmed."""

    credentials: ApiCredentials
    connection: MqttConnectionOptions
    device_count: int
    device_ids: tuple[str, ...] = ()
    logins_file: Path | None = None
    write_logins_file: Path | None = None
    profile: FirmwareProfile = FirmwareProfile.NATIVE
    messages_per_second: float = 5.0
    qos: int = 1
    duration_s: float | None = None
    commands_per_second: float = 0.0
    remove_devices: bool = False
    faults: FaultInjectionOptions = field(default_factory=FaultInjectionOptions)
