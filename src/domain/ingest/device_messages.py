"""What devices say, carried to the part that decides about it.

Sorting (decode by the device's profile, before the transaction) is kept apart from applying (inside it), because readings of
stock firmware must have been through the engine when the transaction begins. What must be told to a device in answer is
returned, and sent by the owner of the loop after the commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from domain.commands.device_reports import DeviceReportService
from domain.commands.report_batch import ExecutionChanges
from domain.devices.codec import (
    CommandResultReport,
    DeviceCodec,
    DeviceReport,
    HelloReport,
    OutboundMessage,
    PlanRevisionReport,
    PresenceReport,
    RelayReport,
    TelemetryReport,
    TimeRequest,
    UnreadableMessage,
)
from domain.devices.link import DeviceConnected, DeviceDisconnected, DeviceSubscribed, InboundEvent, InboundMessage
from domain.devices.model import Device
from domain.devices.presence_batch import PresenceBatch
from domain.kernel.clock import Clock
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import UnitOfWork
from domain.telemetry.ports import TelemetryTx


class PresenceTracker(Protocol):
    def on_connected(self, roll: PresenceBatch, device: Device, at_ms: int) -> None: ...

    def on_disconnected(self, roll: PresenceBatch, device: Device, reason: str, at_ms: int) -> None: ...

    def on_status(self, roll: PresenceBatch, device: Device, online: bool, at_ms: int) -> None: ...


class SchedulePlanSync(Protocol):
    async def on_plan_revisions(self, tx: TelemetryTx, said: Sequence[tuple[Device, int]]) -> None: ...

    def on_online(self, tx: TelemetryTx, device: Device) -> None: ...


@dataclass(frozen=True, slots=True)
class DecodedMessage:
    """One event with what it says; `reports` is empty for what is not a publish."""

    event: InboundEvent
    reports: tuple[DeviceReport, ...] = ()


@dataclass(slots=True)
class DecodedBatch:
    messages: list[DecodedMessage] = field(default_factory=list)
    telemetry: list[tuple[int, int, bytes]] = field(default_factory=list)
    faults: list[tuple[int, str, str]] = field(default_factory=list)
    """(device number, code, why) of what could not be read."""


class BatchContext:
    """One transaction's reports, while they are gone through."""

    def __init__(self, tx: TelemetryTx, scene: ExecutionChanges) -> None:
        self.tx = tx
        self.changes = scene
        self.presence = PresenceBatch()
        self.follow_ups = FollowUps()
        self.plan_revisions: dict[DeviceId, tuple[Device, int]] = {}
        """Which revision of its plan each device has said that it holds, the last word of each."""


@dataclass(slots=True)
class FollowUps:
    """What to do once the transaction holds."""

    messages: list[tuple[DeviceId, OutboundMessage]] = field(default_factory=list)
    ready_devices: list[tuple[int, int]] = field(default_factory=list)
    """(number, since when in Unix ms) of devices that now hear their commands."""
    subscribed_devices: list[tuple[int, int]] = field(default_factory=list)
    """(number, when in Unix ms) of devices that have subscribed to something else."""

    def extend(self, other: FollowUps) -> None:
        self.messages += other.messages
        self.ready_devices += other.ready_devices
        self.subscribed_devices += other.subscribed_devices


class DeviceMessageService:
    def __init__(
        self,
        *,
        uow: UnitOfWork[TelemetryTx],
        clock: Clock,
        codec: DeviceCodec,
        reports: DeviceReportService,
        presence: PresenceTracker,
        plans: SchedulePlanSync,
    ) -> None:
        self._uow = uow
        self._clock = clock
        self._codec = codec
        self._reports = reports
        self._presence = presence
        self._plans = plans
        self._senders: dict[int, Device] = {}
        """Who speaks, for the profile only; refreshed at every connect, so it is as large as the connected fleet."""

    async def decode(self, events: Sequence[InboundEvent]) -> DecodedBatch:
        await self._load_senders(events)
        done = DecodedBatch()
        for event in events:
            if isinstance(event, InboundMessage):
                self._decode_publish(event, done)
            else:
                done.messages.append(DecodedMessage(event))
            if isinstance(event, DeviceDisconnected):
                self._senders.pop(event.device_no, None)
        return done

    async def apply(self, tx: TelemetryTx, items: Sequence[DecodedMessage]) -> FollowUps:
        """All of them, in their order; the devices and commands they are about are looked up together, and written together."""
        if not items:
            return FollowUps()
        found = await tx.devices.list_by_ids({DeviceId(item.event.device_id) for item in items})
        devices = {device.device_id: device for device in found}
        hearing = BatchContext(
            tx, await self._reports.load_changes(tx, {name for item in items for name in _execution_ids(item)})
        )
        for item in items:
            device = devices.get(DeviceId(item.event.device_id))
            if device is not None:  # else deleted while its message was on the way
                await self._apply_message(hearing, device, item)
        await self._plans.on_plan_revisions(tx, list(hearing.plan_revisions.values()))
        await hearing.presence.write(tx)
        await self._reports.write_changes(hearing.changes)
        return hearing.follow_ups

    async def _apply_message(self, hearing: BatchContext, device: Device, item: DecodedMessage) -> None:
        match item.event:
            case DeviceConnected(at_ms=at_ms):
                self._presence.on_connected(hearing.presence, device, at_ms)
            case DeviceDisconnected(reason=reason, at_ms=at_ms):
                self._presence.on_disconnected(hearing.presence, device, reason, at_ms)
            case DeviceSubscribed(topic_filter=topic_filter, at_ms=at_ms):
                answers = hearing.follow_ups
                heard = (
                    answers.ready_devices
                    if self._codec.is_command_subscription(device.profile, topic_filter)
                    else answers.subscribed_devices
                )
                heard.append((device.device_no, at_ms))
            case InboundMessage(at_ms=at_ms):
                for report in item.reports:
                    await self._apply_report(hearing, device, report, at_ms)

    async def _apply_report(self, hearing: BatchContext, device: Device, report: DeviceReport, at_ms: int) -> None:
        match report:
            case RelayReport(relay, execution_id, by):
                await self._reports.on_relay_report(hearing.changes, device, relay, execution_id=execution_id, by=by, at_ms=at_ms)
            case CommandResultReport(execution_id, status, code, relay, data):
                await self._reports.on_result_report(hearing.changes, device, execution_id, status, code, relay, data, at_ms)
            case PresenceReport(online):
                self._presence.on_status(hearing.presence, device, online, at_ms)
                if online:
                    self._plans.on_online(hearing.tx, device)
                    questions = self._codec.state_queries(device.profile)
                    hearing.follow_ups.messages += [(device.device_id, question) for question in questions]
            case PlanRevisionReport(rev):
                hearing.plan_revisions[device.device_id] = (device, rev)
            case HelloReport(rev=int() as rev):
                hearing.plan_revisions[device.device_id] = (device, rev)
            case TimeRequest():
                hearing.follow_ups.messages.append((device.device_id, self._codec.encode_time(self._clock.now_ms())))
            case _:
                pass  # telemetry has gone through the engine, the unreadable was counted

    def _decode_publish(self, event: InboundMessage, done: DecodedBatch) -> None:
        device = self._senders.get(event.device_no)
        if device is None:
            return
        reports = tuple(self._codec.decode(device.profile, event.topic, event.payload, event.retain))
        for report in reports:
            if isinstance(report, TelemetryReport):
                done.telemetry.append((event.device_no, event.at_ms, report.payload))
            elif isinstance(report, UnreadableMessage):
                done.faults.append((event.device_no, report.code, report.reason))
        done.messages.append(DecodedMessage(event, reports))

    async def _load_senders(self, events: Sequence[InboundEvent]) -> None:
        """Look up every speaker that is not known yet, or that connects anew."""
        wanted = {
            event.device_no
            for event in events
            if isinstance(event, DeviceConnected) or (isinstance(event, InboundMessage) and event.device_no not in self._senders)
        }
        if wanted:
            async with self._uow.read() as tx:
                self._senders |= {device.device_no: device for device in await tx.devices.list_by_numbers(wanted)}


def _execution_ids(item: DecodedMessage) -> Iterator[str]:
    """The commands its reports name."""
    for report in item.reports:
        if isinstance(report, RelayReport | CommandResultReport) and report.execution_id is not None:
            yield report.execution_id
