"""The options of a simulation: how many devices, how they connect, what they send, and which faults they show."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from domain.devices.channels import MAX_CHANNEL, MAX_CHANNEL_NAME, ChannelKind
from domain.devices.model import FirmwareProfile

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
_SECONDS_PER_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, None: 1.0}
MIN_DURATION_S = 0.1
MAX_DURATION_S = 7 * 24 * 3_600.0
DEFAULT_TLS_PORT = 8883
"""The IANA port of MQTT over TLS. The service's credentials name only the ports without TLS."""
FAULT_HELP = "silent, slow, duplicate, late (share of the devices, such as 5%), reconnect, dirty, storm (interval, such as 30s)"


class SimulationError(Exception):
    """The message says what failed, and what to do."""


class InvalidFaultError(ValueError):
    """The message names the wrong part and the allowed values."""


@dataclass(frozen=True, slots=True)
class FaultInjectionOptions:
    """Shares of the devices, 0 to 1, and intervals in seconds; None means never."""

    silent_share: float = 0.0
    duplicating_share: float = 0.0
    late_share: float = 0.0
    slow_share: float = 0.0
    slow_delay_s: float = 2.0
    reconnect_every_s: float | None = None
    abrupt_disconnect_every_s: float | None = None
    reconnect_all_every_s: float | None = None

    @classmethod
    def parse(cls, text: str) -> FaultInjectionOptions:
        """As the command line states them: `silent=5%,slow=10%:3s,duplicate=5%,late=1%,reconnect=30s,dirty=2m`. Raises
        InvalidFaultError."""
        options: dict[str, float] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, _, value = part.partition("=")
            for option, amount in _parse_fault(name.strip(), value.strip()).items():
                if option in options:
                    raise InvalidFaultError(f"{name.strip()} is given twice")
                options[option] = amount
        return cls(**options)


class InvalidChannelsError(ValueError):
    """The message names the wrong part and the allowed values."""


def parse_channels(text: str) -> tuple[tuple[ChannelKind, str], ...]:
    """Kind and name (empty without one) of each channel, from `RELAY:Pump,LEVEL:Light,INPUT`. Raises InvalidChannelsError."""
    channels = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        kind, _, name = part.partition(":")
        if kind not in [*map(str, ChannelKind)] or len(name) > MAX_CHANNEL_NAME:
            raise InvalidChannelsError(f"{part!r} is not a channel; write one of {', '.join(ChannelKind)}, or RELAY:Pump")
        channels.append((ChannelKind(kind), name.strip()))
    if len(channels) > MAX_CHANNEL:
        raise InvalidChannelsError(f"a device has at most {MAX_CHANNEL} channels")
    return tuple(channels)


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
    """`messages_per_second` counts the telemetry of all devices together; with 0 they send as fast as the broker acknowledges.
    `channels`: kind and name of each, of native devices; empty: one relay. `press_every_s`: about how often each device presses
    one of its inputs."""

    credentials: SimulatorApiCredentials = field(default_factory=SimulatorApiCredentials)
    connection: MqttConnectionOptions = field(default_factory=MqttConnectionOptions)
    device_count: int = 10
    device_ids: tuple[str, ...] = ()
    logins_file: Path | None = None
    write_logins_file: Path | None = None
    profile: FirmwareProfile = FirmwareProfile.NATIVE
    channels: tuple[tuple[ChannelKind, str], ...] = ()
    press_every_s: float | None = None
    messages_per_second: float = 5.0
    qos: int = 1
    duration_s: float | None = None
    commands_per_second: float = 0.0
    remove_devices: bool = False
    faults: FaultInjectionOptions = field(default_factory=FaultInjectionOptions)


def _parse_fault(name: str, value: str) -> dict[str, float]:
    shares = {"silent": "silent_share", "duplicate": "duplicating_share", "late": "late_share"}
    times = {"reconnect": "reconnect_every_s", "dirty": "abrupt_disconnect_every_s", "storm": "reconnect_all_every_s"}
    if name in shares:
        return {shares[name]: _parse_share(name, value)}
    if name in times:
        return {times[name]: _parse_duration_s(name, value)}
    if name == "slow":
        share, colon, pause = value.partition(":")
        return {"slow_share": _parse_share(name, share)} | ({"slow_delay_s": _parse_duration_s(name, pause)} if colon else {})
    raise InvalidFaultError(f"{name!r} is not a fault; use {FAULT_HELP}")


def _parse_share(name: str, value: str) -> float:
    number = value.removesuffix("%")
    try:
        share = float(number) / (100 if value.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise InvalidFaultError(f"{name}={value} is not a share of the devices; write {name}=5% or {name}=0.05")
    return share


def _parse_duration_s(name: str, value: str) -> float:
    match = _DURATION.fullmatch(value)
    seconds = float(match[1]) * _SECONDS_PER_UNIT[match[2]] if match else 0.0
    if not MIN_DURATION_S <= seconds <= MAX_DURATION_S:
        raise InvalidFaultError(
            f"{name}={value} is not a time between {MIN_DURATION_S} s and a week; write {name}=30s or {name}=2m"
        )
    return seconds
