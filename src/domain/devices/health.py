"""The health of a device: what the service has measured or learned about it beside its readings. The account is told three
things: that a clock is wrong (`device_clock_skew`), that messages were not kept (`device_message_dropped`), and that the broker
refused the device (`device_refused`).

Readings and faults name a device by its number, and so does everything here. What messages tell is counted in memory and written
together, so that no message costs a write of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from domain.devices.model import Device, DroppedMessages, FirmwareProfile, NewConnectionsSummary, RefusalReason
from domain.devices.ports import DevicesTx
from domain.kernel.clock import HOUR_MS, MINUTE_MS, SECOND_MS, Clock, Now
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import DomainEvent, EventKind, Json
from domain.kernel.unit_of_work import UnitOfWork


def device_event(device: Device, kind: EventKind, description: str, at_ms: int, **data: Json) -> DomainEvent:
    """The event of what a device did, or what became known about it."""
    return DomainEvent(device.account_id, kind, description, at_ms, "device", device.device_id, data, device_name=device.name)


MAX_OFFSET_MS = 2 * MINUTE_MS
MAX_EVENTS_PER_MINUTE = 100
MAX_TRACKED_DEVICES = 200_000
BATCH_SIZE = 500
_STEADY_MS = MINUTE_MS
"""The offset of a wrong clock changes less than this; that of an upload of older readings more."""
_MIN_CHANGE_MS = SECOND_MS
"""A smaller change of the offset is jitter of the network, and not worth a write."""


@dataclass(slots=True)
class _SkewState:
    """A clock that is wrong, or was. Times are monotonic; `announced_ms` is None before the first event."""

    offset_ms: int
    since_ms: int
    is_over: bool = False
    announced_ms: int | None = None
    announced_offset_ms: int = 0


@service
class ClockSkewService:
    """Tells the account when a device's clock is wrong: `health.clockOffsetMs`, and `device_clock_skew` above two minutes.

    A device that is ahead is told at once. One that is behind may be uploading older readings, so it is told when it has been
    behind by about the same for two minutes. The event comes at most once an hour, or when the offset has changed by more than
    two minutes. If the service's own clock is wrong, every device's seems to be: the events of a minute are limited, and the
    rest come later."""

    uow: UnitOfWork[DevicesTx]
    clock: Clock
    _written: dict[int, int] = field(default_factory=dict, init=False)
    """Device number → its offset in the database."""
    _pending: dict[int, int] = field(default_factory=dict, init=False)
    _skewed: dict[int, _SkewState] = field(default_factory=dict, init=False)
    _minute_ms: int = field(default=0, init=False)
    _events_in_minute: int = field(default=0, init=False)
    skewed_messages: int = field(default=0, init=False)

    @property
    def skewed_devices(self) -> int:
        return sum(not state.is_over for state in self._skewed.values())

    def on_offsets(self, offsets: Iterable[tuple[int, int]], *, ahead: bool = False) -> None:
        """(device number, how far its clock is ahead in ms, negative when behind). `ahead`: of messages whose `ts` was too far
        ahead to be used."""
        now_ms = self.clock.monotonic_ms()
        for device_no, offset_ms in offsets:
            self.skewed_messages += ahead
            self._track(device_no, offset_ms, now_ms)
            before_ms = self._written.get(device_no)
            if before_ms is None or abs(offset_ms - before_ms) >= _MIN_CHANGE_MS:
                self._pending[device_no] = offset_ms

    async def write_pending(self) -> None:
        """Store changed offsets and emit the events that are due. What could not be written is written next time."""
        while batch := dict(list(self._pending.items())[:BATCH_SIZE]):
            async with self.uow.write(caller=None) as tx:
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
        now_ms = self.clock.monotonic_ms()
        if now_ms - self._minute_ms >= MINUTE_MS:
            self._minute_ms, self._events_in_minute = now_ms, 0
        room = MAX_EVENTS_PER_MINUTE - self._events_in_minute
        due = [(device_no, state.offset_ms) for device_no, state in self._skewed.items() if _is_due(state, now_ms)]
        self._skewed = {no: state for no, state in self._skewed.items() if not _is_forgotten(state, now_ms)}
        return dict(due[:room])

    async def _emit(self, due: dict[int, int]) -> None:
        at_ms, now_ms = self.clock.now_ms(), self.clock.monotonic_ms()
        async with self.uow.write(caller=None) as tx:
            for device in await tx.devices.list_by_numbers(due):
                tx.emit(_skew_event(device, due[device.device_no], at_ms))
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
    return device_event(device, "device_clock_skew", text, at_ms, clockOffsetMs=offset_ms)


def _duration(offset_ms: int) -> str:
    minutes = round(abs(offset_ms) / MINUTE_MS)
    return f"{minutes} min" if minutes < 120 else f"{round(minutes / 60)} h"


MAX_TOPIC_LENGTH = 128
MAX_PENDING = 10_000
"""Pairs of device and reason; beyond that, further pairs wait until the worker has written these."""

EXPLANATIONS = {
    "BAD_METRIC_NAME": "a metric name is empty, longer than 64 characters, or has control characters",
    "BAD_VALUE": "a value is not a number, boolean or text of at most 256 characters, or a unit is no short text",
    "DIAGNOSTICS": "settings and diagnostics of the firmware are no readings",
    "FORBIDDEN_TOPIC": "the device may not publish to that topic; check the topics against its config block",
    "MALFORMED": "the payload is not what its topic expects",
    "NOT_FINITE": "a number is NaN or infinite",
    "QUEUE_FULL": "sent at QoS 0 while the service was behind; use QoS 1 for what must arrive",
    "TOO_LARGE": "the payload is too large; send less at once",
    "RETAINED_PRESS": "a retained message is no press of a button; publish presses without the retain flag",
    "TOO_MANY_CHANNELS": "a device has at most 64 channels",
    "TOO_MANY_METRICS": "the device has used up its 128 metrics, so readings of further metrics are not kept; use fewer names",
    "TOO_DEEP": "values are nested more than six levels deep",
    "UNKNOWN_CHANNEL": "the device has not named that channel; name it in hello, or describe it at the device's channels",
    "UNKNOWN_METHOD": "a notification that is neither a status nor an event",
    "UNKNOWN_TOPIC": "the firmware profile of the device does not use that topic",
}
REFUSALS = {
    RefusalReason.CLIENT_ID: "its client id is of another device or of the service, or missing; set the device's own id",
    RefusalReason.TOPIC_NOT_ALLOWED: "the device may not use that topic or filter; check the topics against its config block",
    RefusalReason.IDENTITY_USED_TWICE: "connections with its credentials close each other; give each board its own",
    RefusalReason.NOT_OFFERED: "shared subscriptions and subscription identifiers are not offered",
    RefusalReason.OTHER_USERNAME: "its certificate came with the username of another; use the device's own id",
    RefusalReason.PROTOCOL_ERROR: "it sent what MQTT does not allow and was disconnected; update or check its MQTT client",
    RefusalReason.QOS_2: "it published or left a will at QoS 2; set QoS 0 or 1",
    RefusalReason.TOO_MANY_SUBSCRIPTIONS: "it asks for more topic filters than a session may have; subscribe to fewer, or with #",
    RefusalReason.WRONG_PASSWORD: "somebody came with its id and a wrong password; if it is the device, give it the present one",
}


@service
class DroppedMessageService:
    """Tells the account what its devices sent and the service did not keep (`device_message_dropped`), and what the broker
    refused them (`device_refused`): each at most once an hour for a device and reason. A device that sends nothing but nonsense
    costs no write per message.

    `wake` wakes the worker that calls `write_pending`; `log` is told what is dropped, with the device."""

    uow: UnitOfWork[DevicesTx]
    clock: Clock
    wake: Callable[[], None]
    log: Callable[[Device, DroppedMessages], None] = lambda device, drop: None
    _pending: dict[tuple[int, str], DroppedMessages] = field(default_factory=dict, init=False)

    def count(
        self, device_no: int, reason: str, count: int, *, topic: str | None = None, metric: str | None = None, detail: str = ""
    ) -> None:
        before = self._pending.get((device_no, reason))
        if before is None and len(self._pending) >= MAX_PENDING:
            return  # the metrics have counted it; memory stays bounded
        total = count if before is None else before.count + count
        topic = None if topic is None else topic[:MAX_TOPIC_LENGTH]
        self._pending[device_no, reason] = DroppedMessages(device_no, reason, total, self.clock.now_ms(), topic, metric, detail)
        self.wake()

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
        now = Now.of(self.clock)
        async with self.uow.write(caller=None) as tx:
            found = await tx.devices.list_by_numbers({drop.device_no for drop in drops})
            devices = {device.device_no: device for device in found}
            known = [_with_topic(drop, devices[drop.device_no]) for drop in drops if drop.device_no in devices]
            await tx.device_health.add_drops(known)
            for drop in await tx.device_health.take_unannounced_drops(devices, now.steady_ms - HOUR_MS, now.steady_ms):
                event = _refused_event if drop.is_refusal else _dropped_event
                tx.emit(event(devices[drop.device_no], drop, now.wall_ms))
        for drop in known:
            self.log(devices[drop.device_no], drop)

    def _put_back(self, drop: DroppedMessages) -> None:
        newer = self._pending.get((drop.device_no, drop.reason))
        if newer is not None:
            drop = replace(newer, count=drop.count + newer.count)
        self._pending[drop.device_no, drop.reason] = drop


def _with_topic(drop: DroppedMessages, device: Device) -> DroppedMessages:
    """The engine, which knows no topics, reads nothing else of native devices."""
    if drop.topic is None and device.profile is FirmwareProfile.NATIVE and not drop.is_refusal:
        return replace(drop, topic="telemetry")
    return drop


def _dropped_event(device: Device, drop: DroppedMessages, now_ms: int) -> DomainEvent:
    times = "once" if drop.count == 1 else f"{drop.count} times"
    named = {name: value for name, value in (("topic", drop.topic), ("metric", drop.metric)) if value}
    why, last = EXPLANATIONS.get(drop.reason), ", ".join(named.values())
    # Sentences of their own, because each has a text of its own in each language.
    if why and last:
        text = f"Dropped what the device sent, {times}: {drop.reason} ({why}), last: {last}"
    elif why:
        text = f"Dropped what the device sent, {times}: {drop.reason} ({why})"
    elif last:
        text = f"Dropped what the device sent, {times}: {drop.reason}, last: {last}"
    else:
        text = f"Dropped what the device sent, {times}: {drop.reason}"
    return device_event(device, "device_message_dropped", text, now_ms, reason=drop.reason, count=drop.count, **named)


def _refused_event(device: Device, refusal: DroppedMessages, now_ms: int) -> DomainEvent:
    times = "once" if refusal.count == 1 else f"{refusal.count} times"
    why = REFUSALS[RefusalReason(refusal.reason)]
    if refusal.topic:
        text = f"Refused the device, {times}: {refusal.reason} ({why}), last: {refusal.topic}"
        return device_event(
            device, "device_refused", text, now_ms, reason=refusal.reason, count=refusal.count, topic=refusal.topic
        )
    text = f"Refused the device, {times}: {refusal.reason} ({why})"
    return device_event(device, "device_refused", text, now_ms, reason=refusal.reason, count=refusal.count)


MAX_FIRMWARE_LENGTH = 64


class DeviceHealthBatch:
    """What a batch of messages tells about the health of devices; written together."""

    def __init__(self) -> None:
        self._connections: dict[int, NewConnectionsSummary] = {}
        self._firmware: dict[int, str] = {}

    def add_connection(self, device_no: int, max_packet_size: int | None) -> None:
        before = self._connections.get(device_no)
        self._connections[device_no] = NewConnectionsSummary(1 if before is None else before.count + 1, max_packet_size)

    def set_firmware(self, device_no: int, version: str) -> None:
        self._firmware[device_no] = "".join(filter(str.isprintable, version))[:MAX_FIRMWARE_LENGTH]

    async def write(self, tx: DevicesTx) -> None:
        if self._connections:
            await tx.device_health.add_connections(self._connections)
        if self._firmware:
            await tx.device_health.set_firmware(self._firmware)


class LastSeenBuffer:
    """When each device was last seen; the checkpoint worker writes it."""

    def __init__(self) -> None:
        self._newest_ms: dict[int, int] = {}

    def update(self, last_seen: Iterable[tuple[int, int]]) -> None:
        """Takes (device number, Unix ms) pairs."""
        self._newest_ms.update(last_seen)

    def drain(self) -> Mapping[int, int]:
        """Device number → Unix ms; the buffer is empty afterwards."""
        newest, self._newest_ms = self._newest_ms, {}
        return newest

    def put_back(self, last_seen: Mapping[int, int]) -> None:
        """Return what could not be written. Times that arrived in the meantime win."""
        self._newest_ms = {**last_seen, **self._newest_ms}
