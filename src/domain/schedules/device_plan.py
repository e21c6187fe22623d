"""The device plan: the slots that a device's firmware can run without the service (plain ON and OFF, no recurrence rule).

The codec encodes the plan as the retained `sched` message of our firmware, Tasmota's timers, or Shelly's schedule jobs. Its
revision changes exactly when the plan changes; the device reports the revision it stores, and a slot is synced only while both
are equal. Whether a stock firmware can store a slot depends only on fields that never change (its times and creation time), not
on the current time: otherwise a slot could become "stored" without ever having been sent to the device.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

from domain.devices.channels import RELAY_CHANNEL, ChannelKind
from domain.devices.link import OutboundDeviceMessagePort
from domain.devices.messages import DeviceCodec, OutboundMessage, PlanRow
from domain.devices.model import Device, DeviceStatus, FirmwareProfile, takes_channel
from domain.kernel.clock import MINUTE_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import UnitOfWork
from domain.schedules.model import Schedule
from domain.schedules.ports import SchedulesTx

MAX_PLAN_BYTES = 200
"""The buffer size of our firmware for this message."""
MAX_TRACKED_DEVICES = 10_000
_MAX_HORIZON_S: dict[FirmwareProfile, int] = {FirmwareProfile.TASMOTA: 6 * 86_400, FirmwareProfile.SHELLY: 300 * 86_400}
"""Tasmota's timers have a day of the week, Shelly's jobs a day of the year: a later edge would run one cycle too early."""
PlanPublisher = Callable[[DeviceId], None]
"""Called after a commit: enqueues the publication of a device's plan (`InProcessDevicePlanQueue`). Is quick and never raises."""


@service
class DevicePlanSyncService:
    """Keeps the plans stored on devices in sync.

    The transaction that changes a slot also decides whether the plan changed, and increases its revision. The plan is published
    after the commit as a retained message. A lost message is published again at startup, and when a device reports another
    revision. Stock firmware gets the plan while it is online, and again when it reconnects without having confirmed the revision.
    A device that keeps reporting a wrong revision gets the plan at most once a minute."""

    uow: UnitOfWork[SchedulesTx]
    clock: Clock
    link: OutboundDeviceMessagePort
    codec: DeviceCodec
    publisher: PlanPublisher
    _republished_ms: dict[DeviceId, int] = field(default_factory=dict, init=False)

    async def plan_rows(self, tx: SchedulesTx, device: Device) -> tuple[PlanRow, ...]:
        return _build_plan(device, await tx.schedules.list_active(device.device_id))

    async def revise_if_changed(self, tx: SchedulesTx, device: Device, before: tuple[PlanRow, ...]) -> bool:
        """Increase the revision if the plan differs from `before`. Returns whether it did."""
        if await self.plan_rows(tx, device) == before:
            return False
        await tx.devices.increment_plan_revisions([device.device_id])
        self._publish_after_commit(tx, device.device_id)
        return True

    async def plan_rows_by_device(self, tx: SchedulesTx, devices: Sequence[Device]) -> Mapping[DeviceId, tuple[PlanRow, ...]]:
        """`plan_rows` for many devices."""
        by_device: dict[DeviceId, list[Schedule]] = {device.device_id: [] for device in devices}
        for schedule in await tx.schedules.list_active_by_devices(by_device) if by_device else ():
            by_device[schedule.device_id].append(schedule)
        return {device.device_id: _build_plan(device, by_device[device.device_id]) for device in devices}

    async def revise_many_if_changed(
        self, tx: SchedulesTx, devices: Sequence[Device], before: Mapping[DeviceId, tuple[PlanRow, ...]]
    ) -> None:
        """`revise_if_changed` for many devices."""
        if not devices:
            return
        after = await self.plan_rows_by_device(tx, devices)
        changed = [device_id for device_id, rows in after.items() if rows != before[device_id]]
        await tx.devices.increment_plan_revisions(changed)
        for device_id in changed:
            self._publish_after_commit(tx, device_id)

    async def publish_plan(self, device_id: DeviceId) -> None:
        """Publish the current plan. Does nothing for a deleted device, or one that never had a plan."""
        async with self.uow.read() as tx:
            device = await tx.devices.find(device_id)
            if device is None or device.status is DeviceStatus.DELETING or device.sched_rev == 0:
                return
            if device.profile is not FirmwareProfile.NATIVE and device.sched_rev == device.sched_rev_device:
                return  # it keeps its timers over a restart; no retained message must be restored
            rows = await self.plan_rows(tx, device)
        for message in self.codec.encode_plan(device.profile, device_id, device.sched_rev, rows, self.clock.now_ms()):
            sent = await self.link.send(device_id, message)
            if not sent and not message.retain:
                return  # the whole plan is sent when the device is back

    async def encode_jobs(self, tx: SchedulesTx, device: Device) -> Sequence[OutboundMessage]:
        """The current plan for a device that has set its clock for it."""
        rows = await self.plan_rows(tx, device)
        return self.codec.encode_plan_jobs(device.device_id, device.sched_rev, rows, self.clock.now_ms())

    async def list_devices_with_plans(self) -> Sequence[DeviceId]:
        """Every ACTIVE device that ever had a plan: the embedded broker loses retained messages at a restart."""
        async with self.uow.read() as tx:
            active = await tx.credentials.list_of_active_devices()
        return [device.device_id for device, _ in active if device.sched_rev > 0]

    async def on_plan_revisions(self, tx: SchedulesTx, reported: Sequence[tuple[Device, int]]) -> None:
        """Store the plan revisions that devices reported (in the transaction of the report) and republish where they differ."""
        changed = {device.device_id: rev for device, rev in reported if rev != device.sched_rev_device}
        if changed:
            await tx.devices.set_device_plan_revisions(changed)
        for device, rev in reported:
            if rev != device.sched_rev and self._can_republish(device.device_id):
                self._publish_after_commit(tx, device.device_id)

    def on_online(self, tx: SchedulesTx, device: Device) -> None:
        """Republish an unconfirmed plan to stock firmware, which does not report its revision on connecting (in the transaction
        of the report)."""
        if device.profile is not FirmwareProfile.NATIVE and device.sched_rev not in (0, device.sched_rev_device):
            self._publish_after_commit(tx, device.device_id)

    def _publish_after_commit(self, tx: SchedulesTx, device_id: DeviceId) -> None:
        tx.after_commit(lambda: self.publisher(device_id))

    def _can_republish(self, device_id: DeviceId) -> bool:
        now_ms = self.clock.now_ms()
        if abs(now_ms - self._republished_ms.get(device_id, -MINUTE_MS)) < MINUTE_MS:
            return False
        if len(self._republished_ms) >= MAX_TRACKED_DEVICES:
            self._republished_ms.clear()  # many devices differ: some republish too often, but memory stays bounded
        self._republished_ms[device_id] = now_ms
        return True


def is_firmware_synced(device: Device, schedule: Schedule) -> bool:
    """Whether the device stores this slot in its current version."""
    return not schedule.withdrawn and fits_firmware(device, schedule) and device.sched_rev == device.sched_rev_device


def runs_on_device(device: Device, schedule: Schedule) -> bool:
    """Whether the offline device runs this slot itself; the service must then not queue the command again."""
    return not device.is_online and is_firmware_synced(device, schedule)


def fits_firmware(device: Device, schedule: Schedule) -> bool:
    """Whether the firmware can store this slot. Tasmota's timers have no seconds. Native firmware that has not named the channel
    would take the slot for its relay."""
    on, off, profile = schedule.on_command, schedule.off_command, device.profile
    if schedule.rrule is not None or (on.command, off.command) != ("ON", "OFF") or not (on.is_plain and off.is_plain):
        return False
    channel = device.channel(on.channel)
    if channel is None or on.channel != off.channel or not channel.kind.is_switched:
        return False
    if profile is FirmwareProfile.SHELLY and channel.kind is not ChannelKind.RELAY:
        return False  # its jobs call Switch.Set
    if profile is FirmwareProfile.NATIVE:
        return takes_channel(device, on.channel)
    horizon_s = _MAX_HORIZON_S.get(profile)
    if horizon_s is None or (profile is FirmwareProfile.TASMOTA and (schedule.on_ts % 60 or schedule.off_ts % 60)):
        return False
    return max(schedule.on_ts, schedule.off_ts) <= schedule.created_ms // 1000 + horizon_s


def _build_plan(device: Device, schedules: Iterable[Schedule]) -> tuple[PlanRow, ...]:
    """The rows by slot, without the slots that the firmware cannot store; the service runs those. It has those that it must not
    run by itself as paused."""
    fitting = sorted((schedule for schedule in schedules if fits_firmware(device, schedule)), key=lambda schedule: schedule.slot)
    return tuple((row.slot, row.on_ts, row.off_ts, row.enabled and not row.withdrawn, row.on_command.channel) for row in fitting)


def encode_sched_payload(revision: int, rows: Iterable[PlanRow]) -> bytes:
    """A row names its channel if it is not the relay."""
    listed = [row if row[-1] != RELAY_CHANNEL else row[:-1] for row in rows]
    payload = json.dumps({"rev": revision, "s": listed}, separators=(",", ":")).encode()
    if len(payload) >= MAX_PLAN_BYTES:
        raise ValueError(f"a plan of {len(payload)} bytes exceeds the {MAX_PLAN_BYTES} bytes of the firmware")
    return payload
