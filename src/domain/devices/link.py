"""The ports to the devices: what they send comes in batches, messages to them go out one by one, and credentials decide which may
connect. `DeviceBrokerLink` is all three, with one broker behind them.

Durability: a batch is received, made durable, and only then acknowledged. `ack` sends the PUBACK of a QoS 1 message, never
earlier, so that after a crash the device sends it again instead of losing it; the receiver must tolerate duplicates. Order: the
events of one device keep the order in which it sent them, within a batch and across batches, and so do its telemetry messages.
Telemetry may overtake an earlier event, because connecting devices must not delay the readings of others.

Telemetry keeps the form that the engine reads; nothing here looks into it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias

from domain.devices.messages import OutboundMessage

# Values of `InboundDeviceDisconnected.reason`.
# "disconnected": the device sent DISCONNECT
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
    """The broker has dropped what a device published, or refused the device, its will or a subscription. Reported at most once a
    minute for a device and reason."""

    device_no: int
    device_id: str
    reason: str  # FORBIDDEN_TOPIC, "TOO_LARGE", "QUEUE_FULL", or a `RefusalReason`
    at_ms: int
    topic: str = ""
    """A topic or filter, empty where there is none. Below the device's prefix; one that is not, as it came. Its first
    characters."""


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

    def has_waiting(self) -> bool:
        """Whether something may have arrived that `receive` has not returned yet."""


class PublishResult(StrEnum):
    """True exactly when the message was handed to a live connection."""

    SENT = "sent"
    NOT_SENT = "not_sent"
    """No live connection subscribes to the topic, or its queue is full."""
    UNCONFIRMED = "unconfirmed"
    """Handed to an external broker that has not confirmed it: the device may receive it."""
    TOO_LARGE = "too_large"
    """Larger than the Maximum Packet Size of each connection that subscribes to the topic; the device cannot receive it."""

    def __bool__(self) -> bool:
        return self is PublishResult.SENT


class OutboundDeviceMessagePort(Protocol):
    async def send(self, device_id: str, message: OutboundMessage) -> PublishResult:
        """Publish to `message.topic` below the device's prefix. After NOT_SENT the caller keeps a command and sends it again.

        SENT does not yet confirm that the message arrived. The broker stores a retained message
        in any case and delivers it at each subscription; an empty retained payload clears it.
        """

    def is_connected(self, device_id: str) -> bool: ...

    def last_subscribed_ms(self, device_id: str) -> int:
        """Time of the device's last subscription, Unix ms, even if its `InboundDeviceSubscribed` is still queued; 0: never."""

    def disconnect(self, device_id: str) -> bool:
        """Close the device's connections, because it has connected to another instance; `InboundDeviceDisconnected` follows, with
        TAKEN_OVER. Its credentials stay valid. Returns whether there was a connection that can be closed."""


class BrokerCredentialUpdater(Protocol):
    async def upsert_credentials(self, device_id: str, device_no: int, password: str, profile: str) -> None:
        """Let the device connect with this password; replaces its earlier credentials.

        `profile` (`native`, `tasmota`, `esphome`, `shelly`) decides which topics are outbound, so that the device may not
        publish to them. A changed password closes the connections that used the old one.
        """

    async def remove_device(self, device_id: str) -> None:
        """Reject the device from now on, close its connections within a second, and delete its retained messages."""


class DeviceBrokerLink(InboundDeviceMessagePort, OutboundDeviceMessagePort, BrokerCredentialUpdater, Protocol):
    async def start(self) -> None:
        """Listen; raises Unavailable, which names the address and the setting to check. Or connect to an external broker; while
        it does not answer, `trouble` says so, and the attempts go on."""

    async def stop(self) -> None:
        """Stop listening and disconnect every device within two seconds. A waiting `receive` raises Unavailable."""

    def hold_partitions(self, partitions: Collection[int]) -> None:
        """In a cluster: this instance owns these partitions of the log now. Of an external broker, which devices of all
        instances share, it reads the part that belongs to them."""

    def suspend(self) -> None:
        """Close every connection and accept none until `resume`: devices are to connect to another instance. With an external
        broker, which all instances share, devices stay connected to it, and another instance reads from it."""

    def resume(self) -> None:
        """Let devices connect again, on the same addresses."""

    def connection_problem(self) -> str | None:
        """Why no messages of devices arrive at present, and what to check; None: they can."""

    def warning(self) -> str | None:
        """Why messages may be lost although they were acknowledged to devices, and what to do; None: nothing is known."""

    def stats(self) -> Mapping[str, int]:
        """Counters and gauges since startup, by name, for the metrics page."""
