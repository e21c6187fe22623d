"""The port between the service and its devices: what they send comes in batches, what they are told goes out one by one.

The law of the uplink: a batch is taken, made durable, and only then acknowledged. A device's QoS-1 message is confirmed to the
device by `ack`, never before, so that a crash in between makes the device send it again instead of losing it; whoever takes
batches must bear a message that comes twice. The law of order: the events of one device stand in the order in which the device
sent them, within a batch and from batch to batch, and so do its telemetry messages; telemetry may come before an event that was
sent earlier, because devices that come and go must not hold up the readings of those that are here.

Telemetry stays in the form in which the engine reads it and is never looked into here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from domain.devices.codec import OutboundMessage

# Words of `Disconnected.reason`.
DISCONNECTED = "disconnected"  # the device said goodbye
LOST = "lost"  # socket gone, keep-alive missed, or the protocol violated
REVOKED = "revoked"  # we expelled it
STOPPED = "stopped"  # the service or its broker went down; says nothing about the device


@dataclass(frozen=True, slots=True)
class DeviceConnected:
    """A device has opened a connection. May come again without a `Disconnected` in between (takeover, second client)."""

    device_no: int
    device_id: str
    protocol: str  # "mqtt/3.1.1", "mqtt/5", "ws/mqtt/5", …; "unknown" where the broker does not tell
    address: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class DeviceDisconnected:
    """The device has no connection left. Its will, where it had one, comes as a `Published` right before."""

    device_no: int
    device_id: str
    reason: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class DeviceSubscribed:
    """A device has subscribed: from now on it hears what is sent on the topics that match `topic_filter`."""

    device_no: int
    device_id: str
    topic_filter: str  # below the device's prefix: "cmd", "#"
    at_ms: int


@dataclass(frozen=True, slots=True)
class InboundMessage:
    """Everything a device publishes other than native telemetry."""

    device_no: int
    device_id: str
    topic: str  # below the device's prefix: "state", "sched/rev", "tele/SENSOR"
    payload: bytes
    qos: int
    retain: bool
    at_ms: int


InboundEvent: TypeAlias = DeviceConnected | DeviceDisconnected | DeviceSubscribed | InboundMessage


class InboundTelemetry(Protocol):
    """Telemetry messages as the engine takes them: (device number, arrival in Unix ms, payload), opaque to all others."""

    def __len__(self) -> int: ...


class InboundBatch(Protocol):
    """What devices sent since the last batch. Exactly one of `ack` and `nack` is called, once; a second call does nothing."""

    @property
    def telemetry(self) -> InboundTelemetry: ...

    @property
    def events(self) -> Sequence[InboundEvent]: ...

    def ack(self) -> None:
        """The batch is durable: confirm its QoS-1 messages to their devices."""
        ...

    def nack(self) -> None:
        """The batch could not be made durable: cut the connections that wait for it; their devices will send again."""
        ...


class DeviceLink(Protocol):
    async def start(self) -> None:
        """Listen, or connect to the broker. Raises `Unavailable` that names the address and what to set."""
        ...

    async def stop(self) -> None:
        """Stop listening and let every device go, within two seconds. A `take` that waits raises `Unavailable`."""
        ...

    async def receive(self, limit: int) -> InboundBatch:
        """Wait until there is something, then give at most `limit` messages and events. One caller at a time.

        Raises `Unavailable` once the link is stopped and everything has been taken.
        """
        ...

    async def upsert_credentials(self, device_id: str, device_no: int, password: str, profile: str) -> None:
        """From now on this device may connect with this password; replaces what was admitted before.

        `profile` (`native`, `tasmota`, `esphome`, `shelly`) decides which topics are downward, thus closed to its publishes.
        A changed password cuts the connections that were opened with the old one.
        """
        ...

    async def remove_device(self, device_id: str) -> None:
        """Refuse the device from now on, cut its connections within a second, forget its retained messages."""
        ...

    async def send(self, device_id: str, message: OutboundMessage) -> bool:
        """Publish to `message.topic` below the device's prefix. False: the device has no live subscription to it; the caller
        keeps a command and sends it again.

        True: handed to a live connection, which does not yet confirm that it arrived. The broker stores a retained message
        in both cases and delivers it at each subscription; an empty retained payload clears it.
        """
        ...

    def is_connected(self, device_id: str) -> bool: ...

    def last_subscribed_ms(self, device_id: str) -> int:
        """When the device has last subscribed, as its `Subscribed` says or will say, which may still be on the way; 0: never."""
        ...

    def stats(self) -> Mapping[str, int]:
        """Counters and gauges since the start, by name, for the metrics page."""
        ...
