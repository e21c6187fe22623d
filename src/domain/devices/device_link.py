"""The ports to the devices: outbound messages are sent one by one, and credentials decide which devices may connect.
`DeviceBrokerLink` is both and the inbound port (`inbound_device_message_port.py`), with one broker behind them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Protocol

from domain.devices.device_messages_and_codec_port import OutboundMessage
from domain.devices.inbound_device_message_port import InboundDeviceMessagePort


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
