"""What devices send to the service, in batches.

Durability: a batch is received, made durable, and only then acknowledged. `ack` sends the PUBACK of a QoS 1 message, never
earlier, so that after a crash the device sends it again instead of losing it; the receiver must tolerate duplicates. Order: the
events of one device keep the order in which it sent them, within a batch and across batches, and so do its telemetry messages.
Telemetry may overtake an earlier event, because connecting devices must not delay the readings of others.

Telemetry keeps the form that the engine reads; nothing here looks into it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

# Values of `InboundDeviceDisconnected.reason`.
DISCONNECTED = "disconnected"  # the device sent DISCONNECT
LOST = "lost"  # socket closed, keep alive exceeded, or protocol error
REVOKED = "revoked"  # the service removed the device
STOPPED = "stopped"  # the service or broker stopped; the device may still be running
TAKEN_OVER = "taken_over"  # the device has connected to another instance
FORBIDDEN_TOPIC = "FORBIDDEN_TOPIC"
"""A value of `InboundMessagesDropped.reason`."""


@dataclass(frozen=True, slots=True)
class InboundDeviceConnected:
    """A device has connected. May repeat without an `InboundDeviceDisconnected` in between (takeover, second client)."""

    device_no: int
    device_id: str
    protocol: str  # "mqtt/3.1.1", "mqtt/5", "ws/mqtt/5", …; "unknown" if the broker does not report it
    address: str
    at_ms: int
    max_packet_size: int | None = None
    """Bytes; the largest packet the client accepts. None: no limit, or not known."""
    session_present: bool = False
    """The connection resumes a stored session."""
    session: int = 0
    """Greater than that of every earlier connection of the device at this front; 0 if the broker does not report connections."""
    front: str = ""
    """The instance that has the connection; empty without a cluster."""


@dataclass(frozen=True, slots=True)
class InboundDeviceDisconnected:
    """The device has no connection left. Its will, if any, arrives as an `InboundMessage` right before, or after the
    will's delay."""

    device_no: int
    device_id: str
    reason: str
    at_ms: int
    session: int = 0
    """That of the last `InboundDeviceConnected`."""
    front: str = ""


@dataclass(frozen=True, slots=True)
class InboundDeviceSubscribed:
    """A device has subscribed: from now on it receives messages on topics that match `topic_filter`."""

    device_no: int
    device_id: str
    topic_filter: str  # below the device's prefix: "cmd", "#"
    at_ms: int
    held_until_ms: int = 0
    """Unix ms; 0 for a new subscription. In a resumed session the broker itself redelivers what was sent until then and not
    acknowledged, so the service does not send it again."""


@dataclass(frozen=True, slots=True)
class InboundMessage:
    """A message that a device published, other than native telemetry."""

    device_no: int
    device_id: str
    topic: str  # below the device's prefix: "state", "sched/rev", "tele/SENSOR"
    payload: bytes
    qos: int
    retain: bool
    at_ms: int


@dataclass(frozen=True, slots=True)
class InboundMessagesDropped:
    """The broker has dropped what a device published. Reported at most once a minute for a device and reason."""

    device_no: int
    device_id: str
    reason: str  # FORBIDDEN_TOPIC, "TOO_LARGE", "QUEUE_FULL"
    at_ms: int


InboundEvent: TypeAlias = (
    InboundDeviceConnected | InboundDeviceDisconnected | InboundDeviceSubscribed | InboundMessage | InboundMessagesDropped
)


class InboundTelemetryBatch(Protocol):
    """Telemetry messages in the engine's form: (device number, arrival in Unix ms, payload); opaque to all other parts."""

    def __len__(self) -> int: ...


class InboundBatch(Protocol):
    """Messages since the last batch. Acknowledge the whole batch, or its events and its telemetry apart; a second call does
    nothing. `nack` rejects what has not been acknowledged."""

    @property
    def telemetry(self) -> InboundTelemetryBatch: ...

    @property
    def events(self) -> Sequence[InboundEvent]: ...

    def ack(self) -> None:
        """The batch is durable: acknowledge its QoS 1 messages to the devices."""

    def ack_telemetry(self) -> None: ...

    def ack_events(self) -> None: ...

    def nack(self) -> None:
        """The batch could not be stored: close the connections that wait for it, so that their devices send again."""


class InboundDeviceMessagePort(Protocol):
    async def receive(self, limit: int) -> InboundBatch:
        """Wait for messages or events and return at most `limit` of them. One caller at a time.

        Raises Unavailable once the link is stopped and everything has been received.
        """
