"""The queue of messages from an external broker, the batches they are taken in, and those of devices that this instance does not
know yet.

In a cluster the broker lets a new device in as soon as one instance has registered it; the others read that from the event log up
to a second later. Until then they keep what the device sends, unacknowledged.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Any, TypeAlias

import aiomqtt

from domain.devices.link import InboundEvent, InboundTelemetryBatch
from domain.kernel.dataclasses import service
from domain.kernel.errors import Unavailable

RawTelemetry: TypeAlias = tuple[int, int, bytes]  # device number, message in Unix ms, payload
AckHandle: TypeAlias = tuple[aiomqtt.Client, int, int]
"""A message that the broker keeps until it is acknowledged: the receiving client, the packet id, the QoS."""
QueuedMessage: TypeAlias = tuple[RawTelemetry | InboundEvent, AckHandle | None]
UnknownDeviceMessage: TypeAlias = tuple[Any, AckHandle | None]
TelemetryBatchFactory: TypeAlias = Callable[[Sequence[RawTelemetry]], InboundTelemetryBatch]

WAIT_S = 3.0
MAX_MESSAGES = 10_000
"""Of devices that are not known yet."""


class MosquittoInboundBatch:
    """An `InboundBatch`; `acknowledge` and `reconnect` are the link's."""

    __slots__ = ("_acknowledge", "_event_acks", "_reconnect", "_telemetry_acks", "events", "telemetry")

    def __init__(
        self,
        messages: Sequence[QueuedMessage],
        factory: TelemetryBatchFactory,
        acknowledge: Callable[[Sequence[AckHandle]], None],
        reconnect: Callable[[], None],
    ) -> None:
        self._acknowledge, self._reconnect = acknowledge, reconnect
        self._telemetry_acks = [ack for content, ack in messages if ack is not None and isinstance(content, tuple)]
        self._event_acks = [ack for content, ack in messages if ack is not None and not isinstance(content, tuple)]
        self.telemetry = factory([content for content, _ in messages if isinstance(content, tuple)])
        self.events: Sequence[InboundEvent] = [content for content, _ in messages if not isinstance(content, tuple)]

    def ack(self) -> None:
        self.ack_events()
        self.ack_telemetry()

    def ack_telemetry(self) -> None:
        handles, self._telemetry_acks = self._telemetry_acks, []
        self._acknowledge(handles)

    def ack_events(self) -> None:
        handles, self._event_acks = self._event_acks, []
        self._acknowledge(handles)

    def nack(self) -> None:
        if self._telemetry_acks or self._event_acks:
            self._telemetry_acks, self._event_acks = [], []
            self._reconnect()


@service
class MosquittoInboundQueue:
    """Messages in the order of arrival. Receive Maximum bounds QoS 1; `put` bounds QoS 0."""

    make_batch: TelemetryBatchFactory
    acknowledge: Callable[[Sequence[AckHandle]], None]
    reconnect: Callable[[], None]
    _messages: deque[QueuedMessage] = field(default_factory=deque, init=False)
    _wake_event: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _closed: bool = field(default=False, init=False)

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, what: RawTelemetry | InboundEvent, ack_handle: AckHandle | None = None) -> None:
        self._messages.append((what, ack_handle))
        self._wake_event.set()

    def close(self) -> None:
        self._closed = True
        self._wake_event.set()

    async def take(self, limit: int) -> MosquittoInboundBatch:
        while not self._messages:
            if self._closed:
                raise Unavailable("The link to the MQTT broker has been stopped.")
            self._wake_event.clear()
            await self._wake_event.wait()
        taken = [self._messages.popleft() for _ in range(min(limit, len(self._messages)))]
        return MosquittoInboundBatch(taken, self.make_batch, self.acknowledge, self.reconnect)


def acknowledge(handles: Iterable[AckHandle]) -> None:
    for client, mid, qos in handles:
        if not client._disconnected.done():  # the broker sends those of an earlier connection again
            client._client.ack(mid, qos)


@service
class UnknownDeviceMessageBuffer:
    """`on_expired` gets each message whose device has not become known in time."""

    on_expired: Callable[[UnknownDeviceMessage], None]
    _waiting: dict[str, list[UnknownDeviceMessage]] = field(default_factory=dict, init=False)
    _timers: dict[str, asyncio.TimerHandle] = field(default_factory=dict, init=False)
    _count: int = field(default=0, init=False)

    def keep(self, device_id: str, message: UnknownDeviceMessage) -> bool:
        """False if there are too many already."""
        if self._count >= MAX_MESSAGES:
            return False
        self._waiting.setdefault(device_id, []).append(message)
        self._count += 1
        if device_id not in self._timers:
            self._timers[device_id] = asyncio.get_running_loop().call_later(WAIT_S, self._expire, device_id)
        return True

    def take(self, device_id: str) -> Sequence[UnknownDeviceMessage]:
        """What the device has sent, in its order."""
        if device_id not in self._timers:
            return ()
        self._timers.pop(device_id).cancel()
        taken = self._waiting.pop(device_id)
        self._count -= len(taken)
        return taken

    def close(self) -> None:
        for device_id in list(self._timers):
            self.take(device_id)

    def _expire(self, device_id: str) -> None:
        for message in self.take(device_id):
            self.on_expired(message)
