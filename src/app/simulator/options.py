"""The options of a simulation: how many devices, how they connect, what they send, and which faults they show."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from app.simulator.fault_options import FaultInjectionOptions
from domain.devices.model import FirmwareProfile

DEFAULT_TLS_PORT = 8883
"""The IANA port of MQTT over TLS. The service's credentials name only the ports without TLS."""


class SimulationError(Exception):
    """The message says what failed, and what to do."""


class MqttTransportProtocol(StrEnum):
    TCP = "tcp"
    WS = "ws"
    TLS = "tls"
    WSS = "wss"

    @property
    def is_websocket(self) -> bool:
        return self in (MqttTransportProtocol.WS, MqttTransportProtocol.WSS)

    @property
    def is_tls(self) -> bool:
        return self in (MqttTransportProtocol.TLS, MqttTransportProtocol.WSS)


class MqttVersion(StrEnum):
    V311 = "3.1.1"
    V5 = "5"

    @property
    def protocol_level(self) -> int:
        """The protocol level of the CONNECT packet."""
        return 5 if self is MqttVersion.V5 else 4


@dataclass(frozen=True, slots=True)
class DeviceLogin:
    device_id: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SimulatorApiCredentials:
    """Access to the API by token, or by email and password."""

    url: str = "http://127.0.0.1:8080"
    token: str | None = field(default=None, repr=False)
    email: str | None = None
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class MqttConnectionOptions:
    """Without `host` or `port`, devices use what the service's credentials name."""

    transport: MqttTransportProtocol = MqttTransportProtocol.TCP
    version: MqttVersion = MqttVersion.V311
    host: str | None = None
    port: int | None = None
    ca_file: Path | None = None

    def load_trusted_certificates(self) -> bytes | None:
        """The PEM certificates to trust; None without TLS. Raises SimulationError."""
        if not self.transport.is_tls:
            return None
        path = self.ca_file or ssl.get_default_verify_paths().cafile
        if path is None:
            raise SimulationError("This system has no file of trusted certificates. Name one with --ca.")
        try:
            return Path(path).read_bytes()
        except OSError as error:
            raise SimulationError(f"{path} cannot be read: {error.strerror}. Name a PEM file with --ca.") from None


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """`messages_per_second` counts the telemetry of all devices together; with 0 they send as fast as the broker acknowledges."""

    credentials: SimulatorApiCredentials = field(default_factory=SimulatorApiCredentials)
    connection: MqttConnectionOptions = field(default_factory=MqttConnectionOptions)
    device_count: int = 10
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
