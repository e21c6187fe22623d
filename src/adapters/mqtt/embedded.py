"""The device link over the MQTT broker inside the process.

The broker runs on threads of its own and never calls Python. Inbound messages are taken in batches when its file descriptor is
readable; an outbound message is a short call. Telemetry stays inside the extension; only the rest becomes Python objects.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Literal

from adapters.engine import _native
from domain.devices.link import (
    InboundDeviceConnected,
    InboundDeviceDisconnected,
    InboundDeviceSubscribed,
    InboundEvent,
    InboundMessage,
    InboundMessagesDropped,
    InboundTelemetryBatch,
    PublishResult,
)
from domain.devices.messages import OutboundMessage
from domain.devices.model import RefusalReason
from domain.kernel.errors import Unavailable

_FAULT_REASONS = {
    "forbidden": "FORBIDDEN_TOPIC",
    "oversize": "TOO_LARGE",
    "queue_full": "QUEUE_FULL",
    "client_id": RefusalReason.CLIENT_ID,
    "topic_not_allowed": RefusalReason.TOPIC_NOT_ALLOWED,
    "not_offered": RefusalReason.NOT_OFFERED,
    "other_username": RefusalReason.OTHER_USERNAME,
    "protocol_error": RefusalReason.PROTOCOL_ERROR,
    "qos_2": RefusalReason.QOS_2,
    "too_many_subscriptions": RefusalReason.TOO_MANY_SUBSCRIPTIONS,
    "used_twice": RefusalReason.IDENTITY_USED_TWICE,
    "wrong_password": RefusalReason.WRONG_PASSWORD,
}
"""By the broker's name of the fault (rust/broker/src/inbound_queue/message.rs)."""
_SEND_RESULTS = {
    "queued": PublishResult.SENT,
    "not_subscribed": PublishResult.NOT_SENT,
    "queue_full": PublishResult.NOT_SENT,
    "too_large": PublishResult.TOO_LARGE,
}

set_broker_time = _native.set_broker_time
"""Tells all brokers of the process the time, Unix milliseconds; they count on from there."""


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


class _EmbeddedInboundBatch:
    """An `InboundBatch` that wraps the extension's batch."""

    __slots__ = ("ack", "ack_events", "ack_telemetry", "events", "nack", "telemetry")

    def __init__(self, raw: _native.InboundBatch, event_types: Mapping[str, Callable[..., InboundEvent]]) -> None:
        self.ack, self.nack = raw.ack, raw.nack
        self.ack_telemetry, self.ack_events = raw.ack_telemetry, raw.ack_events
        self.telemetry: InboundTelemetryBatch = raw.telemetry
        self.events: Sequence[InboundEvent] = [event_types[event[0]](*event[1:]) for event in raw.events]


class EmbeddedDeviceLink:
    """`DeviceBrokerLink` for the embedded broker. It can be started once."""

    def __init__(self, settings: EmbeddedBrokerSettings, front: str = "") -> None:
        """`front` names this instance in the events."""
        self._settings = settings
        self._event_types = _event_types(front)
        limits = settings.limits
        self._broker = _native.Broker(
            **{name: value for name in limits.__slots__ if (value := getattr(limits, name)) is not None}
        )
        self.suspend, self.resume, self.disconnect = self._broker.suspend, self._broker.resume, self._broker.disconnect
        self.is_connected, self.last_subscribed_ms = self._broker.is_connected, self._broker.last_subscribed_ms
        self.stats: Callable[[], Mapping[str, int]] = self._broker.stats
        self.max_packet_size = self._broker.max_packet_size
        """Bytes; what the device's last connection announced. None without a limit."""
        self.ports = self._broker.ports
        """The ports listened on, in the order of the listeners."""

    async def start(self) -> None:
        files = (self._settings.certificate, self._settings.key, self._settings.client_ca)
        certificate, key, client_ca = map(_read_pem, files)
        addresses = [(each.transport, each.tls, each.host, each.port) for each in self._settings.listeners]
        try:
            self._broker.start(addresses, certificate, key, client_ca)
        except OSError as error:
            raise Unavailable(
                f"The MQTT broker {error.strerror}. "
                "Free the port, or set LATCHBOARD_MQTT_PORT, LATCHBOARD_MQTT_WS_PORT or LATCHBOARD_MQTT_TLS_PORT to another."
            ) from error
        except ValueError as error:
            raise Unavailable(f"The MQTT broker cannot start: {error}. Check the certificate and key files.") from error

    async def stop(self) -> None:
        # It waits up to 1.5 seconds for the last packets of connections.
        await asyncio.to_thread(self._broker.stop)

    def hold_partitions(self, partitions: Collection[int]) -> None:
        """Devices connect to any instance."""

    async def receive(self, limit: int) -> _EmbeddedInboundBatch:
        while True:
            raw = self._broker.take_batch(limit)
            if raw is not None:
                return _EmbeddedInboundBatch(raw, self._event_types)
            if self._broker.is_stopped():
                raise Unavailable("The MQTT broker has been stopped; nothing more will come. Start the service anew.")
            await self._wait_readable()

    def has_waiting(self) -> bool:
        readable, _, _ = select.select([self._broker.fileno()], [], [], 0)
        return bool(readable)

    async def _wait_readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        descriptor = self._broker.fileno()

        def mark_ready() -> None:
            if not ready.done():
                ready.set_result(None)

        loop.add_reader(descriptor, mark_ready)
        try:
            await ready
        finally:
            loop.remove_reader(descriptor)

    async def upsert_credentials(self, device_id: str, device_no: int, password: str, profile: str) -> None:
        self._broker.upsert_credentials(device_id, device_no, password, profile)

    async def remove_device(self, device_id: str) -> None:
        self._broker.remove_device(device_id)

    async def send(self, device_id: str, message: OutboundMessage) -> PublishResult:
        result = self._broker.publish(device_id, message.topic, message.payload, message.qos, message.retain, message.expiry_s)
        return _SEND_RESULTS[result]

    def connection_problem(self) -> str | None:
        return "The device link is not running." if self.stats().get("stopped") else None

    def warning(self) -> str | None:
        return None


def _read_pem(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise Unavailable(f"The MQTT broker cannot read {path}: {error.strerror}. Check the path and its mode.") from error


def _messages_dropped(device_no: int, device_id: str, kind: str, at_ms: int, topic: str) -> InboundMessagesDropped:
    return InboundMessagesDropped(device_no, device_id, _FAULT_REASONS[kind], at_ms, topic)


def _event_types(front: str) -> dict[str, Callable[..., InboundEvent]]:
    return {
        "connect": partial(InboundDeviceConnected, front=front),
        "disconnect": partial(InboundDeviceDisconnected, front=front),
        "subscribe": InboundDeviceSubscribed,
        "publish": InboundMessage,
        "fault": _messages_dropped,
    }
