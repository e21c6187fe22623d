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

from domain.devices.link import TelemetryBatch, UplinkEvent
from domain.kernel.errors import Unavailable

Reading: TypeAlias = tuple[int, int, bytes]  # device number, arrival in Unix ms, payload
Receipt: TypeAlias = tuple[aiomqtt.Client, int, int]
TelemetryFactory: TypeAlias = Callable[[Sequence[Reading]], TelemetryBatch]


@dataclass(frozen=True, slots=True)
class _Arrival:
    what: Reading | UplinkEvent
    receipt: Receipt | None


class Batch:
    """An `UplinkBatch`; `confirm` and `give_up` are the link's."""

    __slots__ = ("_confirm", "_give_up", "_receipts", "events", "telemetry")

    def __init__(
        self,
        arrivals: Sequence[_Arrival],
        factory: TelemetryFactory,
        confirm: Callable[[Sequence[Receipt]], None],
        give_up: Callable[[], None],
    ) -> None:
        self._confirm, self._give_up = confirm, give_up
        self._receipts = [arrival.receipt for arrival in arrivals if arrival.receipt is not None]
        self.telemetry = factory([each.what for each in arrivals if isinstance(each.what, tuple)])
        self.events: Sequence[UplinkEvent] = [each.what for each in arrivals if not isinstance(each.what, tuple)]

    def ack(self) -> None:
        receipts, self._receipts = self._receipts, []
        self._confirm(receipts)

    def nack(self) -> None:
        receipts, self._receipts = self._receipts, []
        if receipts:
            self._give_up()


class Inbox:
    """In the order of arrival. Its bound is the Receive Maximum (QoS 1) and whoever puts (QoS 0)."""

    def __init__(
        self, factory: TelemetryFactory, confirm: Callable[[Sequence[Receipt]], None], give_up: Callable[[], None]
    ) -> None:
        self._factory, self._confirm, self._give_up = factory, confirm, give_up
        self._arrivals: deque[_Arrival] = deque()
        self._news = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._arrivals)

    def put(self, what: Reading | UplinkEvent, receipt: Receipt | None = None) -> None:
        self._arrivals.append(_Arrival(what, receipt))
        self._news.set()

    def close(self) -> None:
        self._closed = True
        self._news.set()

    async def take(self, limit: int) -> Batch:
        while not self._arrivals:
            if self._closed:
                raise Unavailable("The link to the MQTT broker has been stopped; nothing more will come.")
            self._news.clear()
            await self._news.wait()
        taken = [self._arrivals.popleft() for _ in range(min(limit, len(self._arrivals)))]
        return Batch(taken, self._factory, self._confirm, self._give_up)
