"""Tells the account when a device's clock is wrong: `health.clockOffsetMs`, and `device_clock_skew` above two minutes.

A device that is ahead is told at once. One that is behind may be uploading older readings, so it is told when it has been behind
by about the same for two minutes. The event comes at most once an hour, or when the offset has changed by more than two minutes.
If the service's own clock is wrong, every device's seems to be: the events of a minute are limited, and the rest come later.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from domain.devices.device_event_factory import device_event
from domain.devices.health import HasDeviceHealth
from domain.devices.model import Device
from domain.devices.ports import HasDevices
from domain.kernel.clock import HOUR_MS, MINUTE_MS, SECOND_MS, Clock
from domain.kernel.domain_event import DomainEvent
from domain.kernel.unit_of_work import Transaction, UnitOfWork

MAX_OFFSET_MS = 2 * MINUTE_MS
MAX_EVENTS_PER_MINUTE = 100
MAX_TRACKED_DEVICES = 200_000
BATCH_SIZE = 500
_STEADY_MS = MINUTE_MS
"""The offset of a wrong clock changes less than this; that of an upload of older readings more."""
_MIN_CHANGE_MS = SECOND_MS
"""A smaller change of the offset is jitter of the network, and not worth a write."""


class ClockSkewTx(Transaction, HasDeviceHealth, HasDevices, Protocol): ...


@dataclass(slots=True)
class _SkewState:
    """A clock that is wrong, or was. Times are monotonic; `announced_ms` is None before the first event."""

    offset_ms: int
    since_ms: int
    is_over: bool = False
    announced_ms: int | None = None
    announced_offset_ms: int = 0


class ClockSkewService:
    def __init__(self, *, uow: UnitOfWork[ClockSkewTx], clock: Clock) -> None:
        self._uow = uow
        self._clock = clock
        self._written: dict[int, int] = {}
        """Device number → its offset in the database."""
        self._pending: dict[int, int] = {}
        self._skewed: dict[int, _SkewState] = {}
        self._minute_ms = 0
        self._events_in_minute = 0
        self.skewed_messages = 0

    @property
    def skewed_devices(self) -> int:
        return sum(not state.is_over for state in self._skewed.values())

    def on_offsets(self, offsets: Iterable[tuple[int, int]], *, ahead: bool = False) -> None:
        """(device number, how far its clock is ahead in ms, negative when behind). `ahead`: of messages whose `ts` was too far
        ahead to be used."""
        now_ms = self._clock.monotonic_ms()
        for device_no, offset_ms in offsets:
            self.skewed_messages += ahead
            self._track(device_no, offset_ms, now_ms)
            before_ms = self._written.get(device_no)
            if before_ms is None or abs(offset_ms - before_ms) >= _MIN_CHANGE_MS:
                self._pending[device_no] = offset_ms

    async def write_pending(self) -> None:
        """Store changed offsets and emit the events that are due. What could not be written is written next time."""
        while batch := dict(list(self._pending.items())[:BATCH_SIZE]):
            async with self._uow.write(caller=None) as tx:
                known = {device.device_no for device in await tx.devices.list_by_numbers(batch)}
                await tx.device_health.set_clock_offsets({number: ms for number, ms in batch.items() if number in known})
            if len(self._written) >= MAX_TRACKED_DEVICES:
                self._written.clear()  # a few writes too many are better than unbounded memory
            self._written |= batch
            self._pending = {number: ms for number, ms in self._pending.items() if batch.get(number) != ms}
        due = self._due_events()
        if due:
            await self._emit(due)

    def _track(self, device_no: int, offset_ms: int, now_ms: int) -> None:
        state = self._skewed.get(device_no)
        if abs(offset_ms) <= MAX_OFFSET_MS:
            if state is not None:
                state.is_over = True
        elif state is not None:
            if state.is_over or abs(offset_ms - state.offset_ms) > _STEADY_MS:
                state.offset_ms, state.since_ms = offset_ms, now_ms
            state.is_over = False
        elif len(self._skewed) < MAX_TRACKED_DEVICES:
            self._skewed[device_no] = _SkewState(offset_ms, now_ms)

    def _due_events(self) -> dict[int, int]:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._minute_ms >= MINUTE_MS:
            self._minute_ms, self._events_in_minute = now_ms, 0
        room = MAX_EVENTS_PER_MINUTE - self._events_in_minute
        due = [(device_no, state.offset_ms) for device_no, state in self._skewed.items() if _is_due(state, now_ms)]
        self._skewed = {no: state for no, state in self._skewed.items() if not _is_forgotten(state, now_ms)}
        return dict(due[:room])

    async def _emit(self, due: dict[int, int]) -> None:
        at_ms, now_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        async with self._uow.write(caller=None) as tx:
            for device in await tx.devices.list_by_numbers(due):
                await tx.emit(_skew_event(device, due[device.device_no], at_ms))
        self._events_in_minute += len(due)
        for device_no, offset_ms in due.items():
            if device_no in self._skewed:
                state = self._skewed[device_no]
                state.announced_ms, state.announced_offset_ms = now_ms, offset_ms


def _is_due(state: _SkewState, now_ms: int) -> bool:
    if state.offset_ms < 0 and (state.is_over or now_ms - state.since_ms < MAX_OFFSET_MS):
        return False
    if state.announced_ms is None:
        return True  # ahead: told even if it was one timestamp only
    if state.is_over:
        return False
    changed = abs(state.offset_ms - state.announced_offset_ms) > MAX_OFFSET_MS
    return now_ms - state.announced_ms >= (MINUTE_MS if changed else HOUR_MS)


def _is_forgotten(state: _SkewState, now_ms: int) -> bool:
    was_announced = state.announced_ms is not None and now_ms - state.announced_ms < HOUR_MS
    return state.is_over and not was_announced and (state.offset_ms < 0 or state.announced_ms is not None)


def _skew_event(device: Device, offset_ms: int, at_ms: int) -> DomainEvent:
    direction = "ahead" if offset_ms > 0 else "behind"
    text = f"The clock of the device is {_duration(offset_ms)} {direction}; set it, or let the device send no time"
    return device_event(device, "device_clock_skew", text, at_ms, {"clockOffsetMs": offset_ms})


def _duration(offset_ms: int) -> str:
    minutes = round(abs(offset_ms) / MINUTE_MS)
    return f"{minutes} min" if minutes < 120 else f"{round(minutes / 60)} h"
