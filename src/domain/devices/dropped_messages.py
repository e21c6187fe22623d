"""Tells the account what its devices sent and the service did not keep: `device_message_dropped`, at most once an hour for a
device and reason.

Drops are counted in memory, so a device that sends nothing but nonsense costs no write per message, and written together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from domain.devices.device_event_factory import device_event
from domain.devices.health import DroppedMessages, HasDeviceHealth
from domain.devices.model import Device
from domain.devices.ports import HasDevices
from domain.kernel.clock import HOUR_MS, Clock, WallAndSteadyTime
from domain.kernel.domain_event import DomainEvent
from domain.kernel.unit_of_work import Transaction, UnitOfWork

MAX_PENDING = 10_000
"""Pairs of device and reason; beyond that, further pairs wait until the worker has written these."""
BATCH_SIZE = 500

EXPLANATIONS = {
    "BAD_METRIC_NAME": "a metric name is empty, longer than 64 characters, or has control characters",
    "BAD_VALUE": "a value is not a number, boolean or text of at most 256 characters, or a unit is no short text",
    "FORBIDDEN_TOPIC": "the device may not publish to that topic; check the topics against its config block",
    "FUTURE": "the timestamp is more than a day ahead; set the clock of the device",
    "MALFORMED": "the payload is not what its topic expects",
    "NOT_FINITE": "a number is NaN or infinite",
    "QUEUE_FULL": "sent at QoS 0 while the service was behind; use QoS 1 for what must arrive",
    "TOO_LARGE": "the payload is too large; send less at once",
    "TOO_MANY_METRICS": "the device has used up its 128 metrics, so readings of further metrics are not kept; use fewer names",
    "UNKNOWN_TOPIC": "the firmware profile of the device does not use that topic",
}


class DroppedMessagesTx(Transaction, HasDeviceHealth, HasDevices, Protocol): ...


class DroppedMessageService:
    def __init__(self, *, uow: UnitOfWork[DroppedMessagesTx], clock: Clock, wake: Callable[[], None]) -> None:
        """`wake` wakes the worker that calls `write_pending`."""
        self._uow = uow
        self._clock = clock
        self._wake = wake
        self._pending: dict[tuple[int, str], DroppedMessages] = {}

    def count(self, device_no: int, reason: str, count: int) -> None:
        before = self._pending.get((device_no, reason))
        if before is None and len(self._pending) >= MAX_PENDING:
            return  # the log and the metrics have counted it; memory stays bounded
        total = count if before is None else before.count + count
        self._pending[device_no, reason] = DroppedMessages(device_no, reason, total, self._clock.now_ms())
        self._wake()

    async def write_pending(self) -> None:
        """Store the counted drops and emit the events that are due. What could not be written is written next time."""
        while self._pending:
            keys = list(self._pending)[:BATCH_SIZE]
            drops = [self._pending.pop(key) for key in keys]
            try:
                await self._write(drops)
            except BaseException:
                for drop in drops:
                    self._put_back(drop)
                raise

    async def _write(self, drops: Sequence[DroppedMessages]) -> None:
        now = WallAndSteadyTime.now(self._clock)
        async with self._uow.write(caller=None) as tx:
            found = await tx.devices.list_by_numbers({drop.device_no for drop in drops})
            devices = {device.device_no: device for device in found}
            await tx.device_health.add_drops([drop for drop in drops if drop.device_no in devices])
            for drop in await tx.device_health.take_unannounced_drops(devices, now.steady_ms - HOUR_MS, now.steady_ms):
                await tx.emit(_dropped_event(devices[drop.device_no], drop, now.wall_ms))

    def _put_back(self, drop: DroppedMessages) -> None:
        newer = self._pending.get((drop.device_no, drop.reason))
        if newer is not None:
            drop = DroppedMessages(drop.device_no, drop.reason, drop.count + newer.count, newer.at_ms)
        self._pending[drop.device_no, drop.reason] = drop


def _dropped_event(device: Device, drop: DroppedMessages, now_ms: int) -> DomainEvent:
    times = "once" if drop.count == 1 else f"{drop.count} times"
    text = f"Dropped what the device sent, {times}: {drop.reason}"
    if drop.reason in EXPLANATIONS:
        text = f"Dropped what the device sent, {times}: {drop.reason} ({EXPLANATIONS[drop.reason]})"
    return device_event(device, "device_message_dropped", text, now_ms, {"reason": drop.reason, "count": drop.count})
