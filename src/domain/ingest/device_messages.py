"""What devices send, except native telemetry: decoded by their firmware profile, applied in the transaction of its effects.

Decoding runs before the transaction and applying inside it, because the engine must have evaluated the readings of stock firmware
before the transaction begins. What is to be done after the commit, answers to devices above all, is returned as `FollowUps`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from domain.commands.reports import ExecutionChangeCollector, ReportService
from domain.devices.channels import DeclaredChannel, find_channel
from domain.devices.health import DeviceHealthBatch
from domain.devices.link import (
    FORBIDDEN_TOPIC,
    InboundDeviceConnected,
    InboundDeviceDisconnected,
    InboundDeviceSubscribed,
    InboundEvent,
    InboundMessage,
    InboundMessagesDropped,
)
from domain.devices.messages import (
    ChannelReport,
    ChannelsReport,
    CommandResultReport,
    DeviceClockReadyReport,
    DeviceCodec,
    DevicePlanRevisionReport,
    DeviceReport,
    HelloReport,
    InputReport,
    OutboundMessage,
    PresenceReport,
    RelayReport,
    StateQuestion,
    StockFirmwareTelemetryReport,
    TimeRequest,
    UnreadableMessage,
)
from domain.devices.model import Device, RefusalReason
from domain.devices.presence import PresenceBatch, PresenceService
from domain.ingest.ports import IngestTx
from domain.kernel.clock import SECOND_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.ids import DeviceId, ExecutionId
from domain.kernel.unit_of_work import UnitOfWork
from domain.schedules.device_plan import DevicePlanSyncService
from domain.schedules.left_edges import LeftEdgeResolver, RelayEvidence

_EXPECTED_DROPS = frozenset({FORBIDDEN_TOPIC, RefusalReason.TOPIC_NOT_ALLOWED})
CONNECT_SEQUENCE_MS = 10 * SECOND_MS
"""How long after its connect a device may publish what its firmware always publishes then."""


@dataclass(frozen=True, slots=True)
class DecodedMessage:
    """An event and the reports in it; `reports` is empty for events that are not messages."""

    event: InboundEvent
    reports: tuple[DeviceReport, ...] = ()


class MessageDrop(NamedTuple):
    """What is not kept of the messages of a device. `reason` is for the log, `code` for people."""

    device_no: int
    code: str
    times: int = 1
    reason: str = ""
    topic: str | None = None
    metric: str | None = None


@dataclass(slots=True)
class DecodedBatch:
    messages: list[DecodedMessage] = field(default_factory=list)
    telemetry: list[tuple[int, int, bytes]] = field(default_factory=list)
    faults: list[MessageDrop] = field(default_factory=list)
    topics: dict[int, str] = field(default_factory=dict)
    """Device number → the topic of its last telemetry in `telemetry`."""


@dataclass(slots=True)
class FollowUps:
    messages: list[tuple[DeviceId, OutboundMessage]] = field(default_factory=list)
    ready_devices: list[tuple[int, int, int]] = field(default_factory=list)
    """(device number, since when in Unix ms, `InboundDeviceSubscribed.held_until_ms`) of devices that receive commands now."""
    subscribed_devices: list[tuple[int, int]] = field(default_factory=list)
    """(device number, when in Unix ms) of devices that have subscribed to other topics."""
    drops: list[MessageDrop] = field(default_factory=list)
    """What turned out to be of no use only now."""

    def extend(self, other: FollowUps) -> None:
        self.messages += other.messages
        self.ready_devices += other.ready_devices
        self.subscribed_devices += other.subscribed_devices
        self.drops += other.drops


@dataclass(slots=True)
class MessageBatchChanges:
    """The changes that one transaction collects while it applies messages."""

    tx: IngestTx
    changes: ExecutionChangeCollector
    devices: dict[DeviceId, Device] = field(default_factory=dict)
    """The senders, with the channels that they have named so far."""
    presence: PresenceBatch = field(default_factory=PresenceBatch)
    health: DeviceHealthBatch = field(default_factory=DeviceHealthBatch)
    follow_ups: FollowUps = field(default_factory=FollowUps)
    relay_evidence: list[tuple[Device, RelayEvidence]] = field(default_factory=list)
    """Relay reports of devices that have edges left to them."""
    plan_revisions: dict[DeviceId, tuple[Device, int]] = field(default_factory=dict)
    """The latest revision of its schedule plan that each device has reported."""
    first_plan_revisions: dict[DeviceId, tuple[Device, int]] = field(default_factory=dict)

    def add_plan_revision(self, device: Device, rev: int) -> None:
        self.plan_revisions[device.device_id] = (device, rev)
        self.first_plan_revisions.setdefault(device.device_id, (device, rev))


@service
class DeviceMessageHandler:
    """`front`: this instance of a cluster, whose devices these are. `is_connected`: whether a device has a connection here
    now; the event that says so may have waited while the device has connected elsewhere."""

    uow: UnitOfWork[IngestTx]
    clock: Clock
    codec: DeviceCodec
    reports: ReportService
    presence: PresenceService
    plans: DevicePlanSyncService
    left_edges: LeftEdgeResolver
    front: str | None = None
    is_connected: Callable[[str], bool] = lambda _: True
    awaited_hellos: set[int] = field(default_factory=set)
    """The numbers of native devices that have connected and not said hello yet."""
    _senders: dict[int, Device] = field(default_factory=dict, init=False)
    """Device number → device, for its profile. Refreshed at every connect; as large as the connected fleet."""
    _connected_ms: dict[int, int] = field(default_factory=dict, init=False)
    """Device number → when it connected, Unix ms."""

    async def decode(self, events: Sequence[InboundEvent]) -> DecodedBatch:
        await self._load_senders(events)
        decoded = DecodedBatch()
        for event in events:
            if isinstance(event, InboundMessage):
                self._decode_publish(event, decoded)
            elif isinstance(event, InboundMessagesDropped):
                if not self._is_expected_drop(event):
                    decoded.faults.append(MessageDrop(event.device_no, event.reason, topic=event.topic or None))
            else:
                decoded.messages.append(DecodedMessage(event))
            if isinstance(event, InboundDeviceConnected):
                self._connected_ms[event.device_no] = event.at_ms
                self.awaited_hellos.add(event.device_no)
            elif isinstance(event, InboundDeviceDisconnected):
                self._senders.pop(event.device_no, None)
                self._connected_ms.pop(event.device_no, None)
                self.awaited_hellos.discard(event.device_no)
        return decoded

    async def apply(self, tx: IngestTx, messages: Sequence[DecodedMessage]) -> FollowUps:
        """Apply the messages in their order. Devices and commands are loaded together and written together."""
        if not messages:
            return FollowUps()
        senders = {DeviceId(message.event.device_id) for message in messages}
        named = {ExecutionId(execution_id) for message in messages for execution_id in _execution_ids(message)}
        found, executions = await tx.command_contexts.list_reported(senders, named)
        devices = {device.device_id: device for device in found}
        received_ms = max(message.event.at_ms for message in messages)
        context = MessageBatchChanges(tx, ExecutionChangeCollector(tx, executions, received_ms), devices)
        for message in messages:
            device = devices.get(DeviceId(message.event.device_id))
            if device is not None:  # None: deleted after it sent the message
                await self._apply_message(context, device, message)
        await self.plans.on_plan_revisions(tx, list(context.plan_revisions.values()))
        if self.front is not None:
            await self._record_sessions(tx, self.front, messages)
        await context.presence.write(tx)
        await context.health.write(tx)
        await self.reports.write_changes(context.changes)
        await self._resolve_left_edges(context)
        return context.follow_ups

    async def _record_sessions(self, tx: IngestTx, front: str, messages: Sequence[DecodedMessage]) -> None:
        """Call this before presence is written: an instance whose grace period ends just now either sees the row or is seen. What
        the instance before may have sent, and not recorded, is treated as after a crash."""
        connected = {
            message.event.device_no: message.event
            for message in messages
            if isinstance(message.event, InboundDeviceConnected) and self.is_connected(message.event.device_id)
        }
        since = {device_no: event.at_ms for device_no, event in connected.items()}
        if since and (moved := await tx.device_sessions.attach(since, front)):
            ids = {DeviceId(connected[device_no].device_id) for device_no in moved}
            await tx.executions.mark_possibly_sent(self.clock.now_ms(), ids)

    async def _resolve_left_edges(self, context: MessageBatchChanges) -> None:
        revisions = {
            device_id: rev
            for device_id, (device, rev) in context.first_plan_revisions.items()
            if device.has_left_edges and context.presence.is_online(device)
        }
        if revisions:
            await self.left_edges.on_plan_revisions(context.tx, revisions)
        evidence = [(device, relay) for device, relay in context.relay_evidence if context.presence.is_online(device)]
        if evidence:
            await self.left_edges.on_relay_reports(context.tx, evidence)

    async def _apply_message(self, context: MessageBatchChanges, device: Device, message: DecodedMessage) -> None:
        match message.event:
            case InboundDeviceConnected(at_ms=at_ms, max_packet_size=max_packet_size):
                context.health.add_connection(device.device_no, max_packet_size)
                self.presence.on_connected(context.presence, device, at_ms)
            case InboundDeviceDisconnected(reason=reason, at_ms=at_ms):
                self.presence.on_disconnected(context.presence, device, reason, at_ms)
            case InboundDeviceSubscribed(topic_filter=topic_filter, at_ms=at_ms, held_until_ms=held_until_ms):
                if self.codec.is_command_subscription(device.profile, topic_filter):
                    context.follow_ups.ready_devices.append((device.device_no, at_ms, held_until_ms))
                else:
                    context.follow_ups.subscribed_devices.append((device.device_no, at_ms))
            case InboundMessage(at_ms=at_ms):
                for report in message.reports:
                    await self._apply_report(context, context.devices[device.device_id], report, at_ms)

    async def _apply_report(self, context: MessageBatchChanges, device: Device, report: DeviceReport, at_ms: int) -> None:
        match report:
            case RelayReport() | ChannelReport() | InputReport():
                await self._apply_channel_report(context, device, report, at_ms)
            case ChannelsReport(channels, is_complete):
                await self._declare_channels(context, device, channels, at_ms, is_complete=is_complete)
            case CommandResultReport(execution_id, status, code, relay, data):
                await self.reports.on_result_report(context.changes, device, execution_id, status, code, relay, data, at_ms)
            case PresenceReport(online):
                self.presence.on_status(context.presence, device, online, at_ms)
                if online:
                    self.plans.on_online(context.tx, device)
                    queries = self.codec.state_queries(device.profile)
                    context.follow_ups.messages += [(device.device_id, query) for query in queries]
            case DevicePlanRevisionReport(rev):
                context.add_plan_revision(device, rev)
            case DeviceClockReadyReport(rev) if rev == device.sched_rev:
                jobs = await self.plans.encode_jobs(context.tx, device)
                context.follow_ups.messages += [(device.device_id, message) for message in jobs]
            case HelloReport():
                await self._apply_hello(context, device, report, at_ms)
            case TimeRequest() | StateQuestion():
                message = self.codec.encode_time(self.clock.now_ms()) if isinstance(report, TimeRequest) else report.message
                context.follow_ups.messages.append((device.device_id, message))
            case _:
                pass  # the engine has evaluated telemetry; unreadable messages have been counted

    async def _apply_hello(self, context: MessageBatchChanges, device: Device, hello: HelloReport, at_ms: int) -> None:
        await self._declare_channels(context, device, hello.channels or (), at_ms)
        if device.device_no in self.awaited_hellos:
            self.awaited_hellos.discard(device.device_no)
            if device.channels or hello.channels:  # commands for them have waited
                context.follow_ups.ready_devices.append((device.device_no, at_ms, at_ms))
        if hello.firmware is not None:
            context.health.set_firmware(device.device_no, hello.firmware)
        if hello.rev is not None:
            context.add_plan_revision(device, hello.rev)

    async def _declare_channels(
        self,
        context: MessageBatchChanges,
        device: Device,
        declared: Sequence[DeclaredChannel],
        at_ms: int,
        *,
        is_complete: bool = True,
    ) -> None:
        after, left_out = await context.changes.declare_channels(device, declared, at_ms, is_complete=is_complete)
        context.devices[device.device_id] = after
        if after.channels != device.channels and device.sched_rev > 0:  # it stores the slots of the channels that it has
            await self.plans.revise_if_changed(context.tx, after, await self.plans.plan_rows(context.tx, device))
        if left_out:
            context.follow_ups.drops.append(MessageDrop(device.device_no, "TOO_MANY_CHANNELS", left_out))

    async def _apply_channel_report(
        self, context: MessageBatchChanges, device: Device, report: RelayReport | ChannelReport | InputReport, at_ms: int
    ) -> None:
        channel = find_channel(device.channels, report.channel)
        if channel is None:
            context.follow_ups.drops.append(MessageDrop(device.device_no, "UNKNOWN_CHANNEL", reason=str(report.channel)[:64]))
            return
        match report:
            case RelayReport(relay, execution_id, by):
                await self.reports.on_relay_report(
                    context.changes, device, relay, execution_id=execution_id, reported_cause=by, at_ms=at_ms, channel=channel
                )
                if device.has_left_edges:
                    evidence = RelayEvidence(relay, at_ms, by, is_by_command=execution_id is not None, channel=channel)
                    context.relay_evidence.append((device, evidence))
            case ChannelReport():
                await self.reports.on_channel_report(context.changes, device, channel, report, at_ms)
            case InputReport(_, action):
                self.reports.on_input_report(context.changes, device, channel, action, at_ms)

    def _is_expected_drop(self, event: InboundMessagesDropped) -> bool:
        """What a correctly configured stock firmware publishes elsewhere when it connects is no fault."""
        device = self._senders.get(event.device_no)
        connected_ms = self._connected_ms.get(event.device_no)
        if device is None or connected_ms is None or event.reason not in _EXPECTED_DROPS:
            return False
        is_recent = event.at_ms - connected_ms <= CONNECT_SEQUENCE_MS
        return is_recent and self.codec.publishes_elsewhere_on_connect(device.profile)

    def _decode_publish(self, event: InboundMessage, decoded: DecodedBatch) -> None:
        device = self._senders.get(event.device_no)
        if device is None:
            return
        reports = tuple(
            self.codec.decode(device.profile, event.topic, event.payload, event.retain, device.device_id, event.at_ms)
        )
        for report in reports:
            if isinstance(report, StockFirmwareTelemetryReport):
                decoded.telemetry.append((event.device_no, event.at_ms, report.payload))
                decoded.topics[event.device_no] = event.topic
            elif isinstance(report, UnreadableMessage):
                topic = report.topic or event.topic
                fault = MessageDrop(event.device_no, report.code, report.count, report.reason, topic, report.metric)
                decoded.faults.append(fault)
        decoded.messages.append(DecodedMessage(event, reports))

    async def _load_senders(self, events: Sequence[InboundEvent]) -> None:
        """Load the senders that are unknown or have just connected."""
        wanted = {
            event.device_no
            for event in events
            if isinstance(event, InboundDeviceConnected)
            or (isinstance(event, InboundMessage) and event.device_no not in self._senders)
        }
        if wanted:
            async with self.uow.read(one_statement=True) as tx:
                self._senders |= {device.device_no: device for device in await tx.devices.list_by_numbers(wanted)}


def _execution_ids(message: DecodedMessage) -> Iterator[str]:
    """The executions that its reports name."""
    for report in message.reports:
        if isinstance(report, RelayReport | CommandResultReport) and report.execution_id is not None:
            yield report.execution_id
