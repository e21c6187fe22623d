"""What devices say, carried to the part that decides about it.

Sorting (decode by the device's profile, before the transaction) is kept apart from applying (inside it), because readings of
stock firmware must have been through the engine when the transaction begins. What must be told to a device in answer is
returned, and sent by the owner of the loop after the commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from domain.commands.reports import ReportService
from domain.commands.scene import Scene
from domain.devices.codec import (
    DeviceCodec,
    Downlink,
    HelloReport,
    PlanReport,
    RelayReport,
    Report,
    ResultReport,
    StatusReport,
    TelemetryReport,
    TimeRequest,
    Unreadable,
)
from domain.devices.link import Connected, Disconnected, Published, Subscribed, UplinkEvent
from domain.devices.model import Device
from domain.devices.rollcall import RollCall
from domain.kernel.clock import Clock
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import UnitOfWork
from domain.telemetry.ports import TelemetryTx


class Presence(Protocol):
    def on_connected(self, roll: RollCall, device: Device, at_ms: int) -> None: ...

    def on_disconnected(self, roll: RollCall, device: Device, reason: str, at_ms: int) -> None: ...

    def on_status(self, roll: RollCall, device: Device, online: bool, at_ms: int) -> None: ...


class Plans(Protocol):
    async def on_sched_revs(self, tx: TelemetryTx, said: Sequence[tuple[Device, int]]) -> None: ...

    def on_online(self, tx: TelemetryTx, device: Device) -> None: ...


@dataclass(frozen=True, slots=True)
class Item:
    """One event with what it says; `reports` is empty for what is not a publish."""

    event: UplinkEvent
    reports: tuple[Report, ...] = ()


@dataclass(slots=True)
class Sorted:
    items: list[Item] = field(default_factory=list)
    telemetry: list[tuple[int, int, bytes]] = field(default_factory=list)
    faults: list[tuple[int, str, str]] = field(default_factory=list)
    """(device number, code, why) of what could not be read."""


class Hearing:
    """One transaction's reports, while they are gone through."""

    def __init__(self, tx: TelemetryTx, scene: Scene) -> None:
        self.tx = tx
        self.scene = scene
        self.roll = RollCall()
        self.answers = Answers()
        self.plans: dict[DeviceId, tuple[Device, int]] = {}
        """Which revision of its plan each device has said that it holds, the last word of each."""


@dataclass(slots=True)
class Answers:
    """What to do once the transaction holds."""

    sends: list[tuple[DeviceId, Downlink]] = field(default_factory=list)
    ready: list[tuple[int, int]] = field(default_factory=list)
    """(number, since when in Unix ms) of devices that now hear their commands."""
    subscribed: list[tuple[int, int]] = field(default_factory=list)
    """(number, when in Unix ms) of devices that have subscribed to something else."""

    def extend(self, other: Answers) -> None:
        self.sends += other.sends
        self.ready += other.ready
        self.subscribed += other.subscribed


class UplinkService:
    def __init__(
        self,
        *,
        uow: UnitOfWork[TelemetryTx],
        clock: Clock,
        codec: DeviceCodec,
        reports: ReportService,
        presence: Presence,
        plans: Plans,
    ) -> None:
        self._uow = uow
        self._clock = clock
        self._codec = codec
        self._reports = reports
        self._presence = presence
        self._plans = plans
        self._devices: dict[int, Device] = {}
        """Who speaks, for the profile only; refreshed at every connect, so it is as large as the connected fleet."""

    async def sort(self, events: Sequence[UplinkEvent]) -> Sorted:
        await self._meet(events)
        done = Sorted()
        for event in events:
            if isinstance(event, Published):
                self._sort_publish(event, done)
            else:
                done.items.append(Item(event))
            if isinstance(event, Disconnected):
                self._devices.pop(event.device_no, None)
        return done

    async def apply(self, tx: TelemetryTx, items: Sequence[Item]) -> Answers:
        """All of them, in their order; the devices and commands they are about are looked up together, and written together."""
        if not items:
            return Answers()
        found = await tx.devices.find_all({DeviceId(item.event.device_id) for item in items})
        devices = {device.device_id: device for device in found}
        hearing = Hearing(tx, await self._reports.scene(tx, {name for item in items for name in _named(item)}))
        for item in items:
            device = devices.get(DeviceId(item.event.device_id))
            if device is not None:  # else deleted while its message was on the way
                await self._apply(hearing, device, item)
        await self._plans.on_sched_revs(tx, list(hearing.plans.values()))
        await hearing.roll.write(tx)
        await self._reports.write(hearing.scene)
        return hearing.answers

    async def _apply(self, hearing: Hearing, device: Device, item: Item) -> None:
        match item.event:
            case Connected(at_ms=at_ms):
                self._presence.on_connected(hearing.roll, device, at_ms)
            case Disconnected(reason=reason, at_ms=at_ms):
                self._presence.on_disconnected(hearing.roll, device, reason, at_ms)
            case Subscribed(topic_filter=topic_filter, at_ms=at_ms):
                answers = hearing.answers
                heard = answers.ready if self._codec.listens(device.profile, topic_filter) else answers.subscribed
                heard.append((device.device_no, at_ms))
            case Published(at_ms=at_ms):
                for report in item.reports:
                    await self._apply_report(hearing, device, report, at_ms)

    async def _apply_report(self, hearing: Hearing, device: Device, report: Report, at_ms: int) -> None:
        match report:
            case RelayReport(relay, execution_id, by):
                await self._reports.on_state(hearing.scene, device, relay, execution_id=execution_id, by=by, at_ms=at_ms)
            case ResultReport(execution_id, status, code, relay, data):
                await self._reports.on_result(hearing.scene, device, execution_id, status, code, relay, data, at_ms)
            case StatusReport(online):
                self._presence.on_status(hearing.roll, device, online, at_ms)
                if online:
                    self._plans.on_online(hearing.tx, device)
                    questions = self._codec.greeting(device.profile)
                    hearing.answers.sends += [(device.device_id, question) for question in questions]
            case PlanReport(rev):
                hearing.plans[device.device_id] = (device, rev)
            case HelloReport(rev=int() as rev):
                hearing.plans[device.device_id] = (device, rev)
            case TimeRequest():
                hearing.answers.sends.append((device.device_id, self._codec.time(self._clock.now_ms())))
            case _:
                pass  # telemetry has gone through the engine, the unreadable was counted

    def _sort_publish(self, event: Published, done: Sorted) -> None:
        device = self._devices.get(event.device_no)
        if device is None:
            return
        reports = tuple(self._codec.decode(device.profile, event.topic, event.payload, event.retain))
        for report in reports:
            if isinstance(report, TelemetryReport):
                done.telemetry.append((event.device_no, event.at_ms, report.payload))
            elif isinstance(report, Unreadable):
                done.faults.append((event.device_no, report.code, report.why))
        done.items.append(Item(event, reports))

    async def _meet(self, events: Sequence[UplinkEvent]) -> None:
        """Look up every speaker that is not known yet, or that connects anew."""
        wanted = {
            event.device_no
            for event in events
            if isinstance(event, Connected) or (isinstance(event, Published) and event.device_no not in self._devices)
        }
        if wanted:
            async with self._uow.read() as tx:
                self._devices |= {device.device_no: device for device in await tx.devices.numbered(wanted)}


def _named(item: Item) -> Iterator[str]:
    """The commands its reports name."""
    for report in item.reports:
        if isinstance(report, RelayReport | ResultReport) and report.execution_id is not None:
            yield report.execution_id
