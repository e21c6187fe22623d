"""The queue of messages from an external broker, and the batches they are taken in.

An ack handle identifies a message that the broker keeps until it is acknowledged: the receiving client, the packet id, the QoS.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import aiomqtt

from domain.devices.link import InboundEvent, InboundTelemetryBatch
from domain.kernel.errors import Unavailable

RawTelemetry: TypeAlias = tuple[int, int, bytes]  # device number, message in Unix ms, payload
AckHandle: TypeAlias = tuple[aiomqtt.Client, int, int]
TelemetryBatchFactory: TypeAlias = Callable[[Sequence[RawTelemetry]], InboundTelemetryBatch]


@dataclass(frozen=True, slots=True)
class _QueuedInboundMessage:
    content: RawTelemetry | InboundEvent
    ack_handle: AckHandle | None


class MosquittoInboundBatch:
    """An `InboundBatch`; `acknowledge` and `reconnect` are the link's."""

    __slots__ = ("_acknowledge", "_event_acks", "_reconnect", "_telemetry_acks", "events", "telemetry")

    def __init__(
        self,
        messages: Sequence[_QueuedInboundMessage],
        factory: TelemetryBatchFactory,
        acknowledge: Callable[[Sequence[AckHandle]], None],
        reconnect: Callable[[], None],
    ) -> None:
        self._acknowledge, self._reconnect = acknowledge, reconnect
        self._telemetry_acks = _ack_handles(each for each in messages if isinstance(each.content, tuple))
        self._event_acks = _ack_handles(each for each in messages if not isinstance(each.content, tuple))
        self.telemetry = factory([each.content for each in messages if isinstance(each.content, tuple)])
        self.events: Sequence[InboundEvent] = [each.content for each in messages if not isinstance(each.content, tuple)]

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


def acknowledge(handles: Iterable[AckHandle]) -> None:
    for client, mid, qos in handles:
        if not client._disconnected.done():  # the broker sends those of an earlier connection again
            client._client.ack(mid, qos)


def _ack_handles(messages: Iterable[_QueuedInboundMessage]) -> list[AckHandle]:
    return [message.ack_handle for message in messages if message.ack_handle is not None]


class MosquittoInboundQueue:
    """Messages in the order of arrival. Receive Maximum bounds QoS 1; `put` bounds QoS 0."""

    def __init__(
        self, factory: TelemetryBatchFactory, acknowledge: Callable[[Sequence[AckHandle]], None], reconnect: Callable[[], None]
    ) -> None:
        self._make_batch, self._acknowledge, self._reconnect = factory, acknowledge, reconnect
        self._messages: deque[_QueuedInboundMessage] = deque()
        self._wake_event = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, what: RawTelemetry | InboundEvent, ack_handle: AckHandle | None = None) -> None:
        self._messages.append(_QueuedInboundMessage(what, ack_handle))
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
        return MosquittoInboundBatch(taken, self._make_batch, self._acknowledge, self._reconnect)
