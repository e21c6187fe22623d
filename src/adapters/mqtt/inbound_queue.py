"""What has come from an external broker and waits to be taken, and the batches it is taken in.

A receipt names a message that the broker keeps until it is acknowledged: the client that received it, its packet id, its QoS.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import aiomqtt

from domain.devices.link import InboundEvent, InboundTelemetry
from domain.kernel.errors import Unavailable

RawTelemetry: TypeAlias = tuple[int, int, bytes]  # device number, arrival in Unix ms, payload
AckHandle: TypeAlias = tuple[aiomqtt.Client, int, int]
TelemetryBatchFactory: TypeAlias = Callable[[Sequence[RawTelemetry]], InboundTelemetry]


@dataclass(frozen=True, slots=True)
class _QueuedMessage:
    content: RawTelemetry | InboundEvent
    ack_handle: AckHandle | None


class MosquittoInboundBatch:
    """An `InboundBatch`; `confirm` and `give_up` are the link's."""

    __slots__ = ("_ack_handles", "_acknowledge", "_reconnect", "events", "telemetry")

    def __init__(
        self,
        arrivals: Sequence[_QueuedMessage],
        factory: TelemetryBatchFactory,
        confirm: Callable[[Sequence[AckHandle]], None],
        give_up: Callable[[], None],
    ) -> None:
        self._acknowledge, self._reconnect = confirm, give_up
        self._ack_handles = [arrival.ack_handle for arrival in arrivals if arrival.ack_handle is not None]
        self.telemetry = factory([each.content for each in arrivals if isinstance(each.content, tuple)])
        self.events: Sequence[InboundEvent] = [each.content for each in arrivals if not isinstance(each.content, tuple)]

    def ack(self) -> None:
        receipts, self._ack_handles = self._ack_handles, []
        self._acknowledge(receipts)

    def nack(self) -> None:
        receipts, self._ack_handles = self._ack_handles, []
        if receipts:
            self._reconnect()


class InboundQueue:
    """In the order of arrival. Its bound is the Receive Maximum (QoS 1) and whoever puts (QoS 0)."""

    def __init__(
        self, factory: TelemetryBatchFactory, confirm: Callable[[Sequence[AckHandle]], None], give_up: Callable[[], None]
    ) -> None:
        self._make_batch, self._acknowledge, self._reconnect = factory, confirm, give_up
        self._messages: deque[_QueuedMessage] = deque()
        self._wake_event = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, what: RawTelemetry | InboundEvent, receipt: AckHandle | None = None) -> None:
        self._messages.append(_QueuedMessage(what, receipt))
        self._wake_event.set()

    def close(self) -> None:
        self._closed = True
        self._wake_event.set()

    async def take(self, limit: int) -> MosquittoInboundBatch:
        while not self._messages:
            if self._closed:
                raise Unavailable("The link to the MQTT broker has been stopped; nothing more will come.")
            self._wake_event.clear()
            await self._wake_event.wait()
        taken = [self._messages.popleft() for _ in range(min(limit, len(self._messages)))]
        return MosquittoInboundBatch(taken, self._make_batch, self._acknowledge, self._reconnect)
