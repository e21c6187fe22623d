"""Keeping the devices' own schedule plans in step with ours.

Whether the plan changed is decided in the transaction that changes a slot, together with the new revision. The message goes out
after the commit and is retained; if it is lost, a restart publishes it again, and so does a device that names another revision.
Stock firmware is told when it is there, and when it comes back without having confirmed the revision. A device that keeps naming
a wrong one is answered once a minute, not each time: it must not keep us busy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from domain.devices.codec import DeviceCodec
from domain.devices.link import DeviceLink
from domain.devices.model import Device, DeviceStatus, FirmwareProfile
from domain.devices.ports import HasDeviceCredentials
from domain.kernel.clock import MINUTE_MS, Clock
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import UnitOfWork
from domain.schedules.device_plan import PlanRow, build_plan
from domain.schedules.model import Schedule
from domain.schedules.ports import DevicePlanTx

MAX_TRACKED_DEVICES = 10_000

PlanPublisher = Callable[[DeviceId], None]
"""Called after a commit: this device's plan is to be published. Quick, never raises; `PlanLoop` is behind it."""


class DevicePlanSyncTx(DevicePlanTx, HasDeviceCredentials, Protocol): ...


class DevicePlanService:
    def __init__(
        self,
        *,
        uow: UnitOfWork[DevicePlanSyncTx],
        clock: Clock,
        link: DeviceLink,
        codec: DeviceCodec,
        publisher: PlanPublisher,
    ) -> None:
        self._uow = uow
        self._clock = clock
        self._link = link
        self._codec = codec
        self._publisher = publisher
        self._republished_ms: dict[DeviceId, int] = {}

    async def plan_rows(self, tx: DevicePlanTx, device: Device) -> tuple[PlanRow, ...]:
        return build_plan(device, await tx.schedules.list_active(device.device_id))

    async def revise_if_changed(self, tx: DevicePlanTx, device: Device, before: tuple[PlanRow, ...]) -> bool:
        """Count the revision up if the plan is no longer `before`; True when it did."""
        if await self.plan_rows(tx, device) == before:
            return False
        await tx.devices.increment_plan_revisions([device.device_id])
        device_id = device.device_id
        tx.after_commit(lambda: self._publisher(device_id))
        return True

    async def plan_rows_by_device(self, tx: DevicePlanTx, devices: Sequence[Device]) -> Mapping[DeviceId, tuple[PlanRow, ...]]:
        """`rows` of many."""
        held: dict[DeviceId, list[Schedule]] = {device.device_id: [] for device in devices}
        for schedule in await tx.schedules.list_active_by_devices(held) if held else ():
            held[schedule.device_id].append(schedule)
        return {device.device_id: build_plan(device, held[device.device_id]) for device in devices}

    async def revise_many_if_changed(
        self, tx: DevicePlanTx, devices: Sequence[Device], before: Mapping[DeviceId, tuple[PlanRow, ...]]
    ) -> None:
        """`revise` of many."""
        if not devices:
            return
        after = await self.plan_rows_by_device(tx, devices)
        changed = [device_id for device_id, rows in after.items() if rows != before[device_id]]
        await tx.devices.increment_plan_revisions(changed)

        def publish() -> None:
            for device_id in changed:
                self._publisher(device_id)

        tx.after_commit(publish)

    async def publish_plan(self, device_id: DeviceId) -> None:
        """Publish the plan as it is now. Does nothing for a device that is gone or never had one."""
        async with self._uow.read() as tx:
            device = await tx.devices.find(device_id)
            if device is None or device.status is DeviceStatus.DELETING or device.sched_rev == 0:
                return
            if device.profile is not FirmwareProfile.NATIVE and device.sched_rev == device.sched_rev_device:
                return  # it keeps its timers over a restart, and nothing retained has to be restored
            rows = await self.plan_rows(tx, device)
        for message in self._codec.encode_plan(device.profile, device_id, device.sched_rev, rows, self._clock.now_ms()):
            sent = await self._link.send(device_id, message)
            if not sent and not message.retain:
                return  # the whole plan is sent when the device is back

    async def list_devices_with_plans(self) -> Sequence[DeviceId]:
        """Every device that may connect and ever had a plan: an embedded broker forgets retained messages at a restart."""
        async with self._uow.read() as tx:
            admitted = await tx.credentials.list_of_active_devices()
        return [device.device_id for device, _ in admitted if device.sched_rev > 0]

    async def on_plan_revisions(self, tx: DevicePlanTx, said: Sequence[tuple[Device, int]]) -> None:
        """Each of these devices says which revision it holds (within the transaction of the report)."""
        news = {device.device_id: rev for device, rev in said if rev != device.sched_rev_device}
        if news:
            await tx.devices.set_device_plan_revisions(news)
        for device, rev in said:
            if rev != device.sched_rev and self._can_republish(device.device_id):
                self._publish_after_commit(tx, device.device_id)

    def on_online(self, tx: DevicePlanTx, device: Device) -> None:
        """A stock firmware has come, and does not say by itself what it holds (within the transaction of the report)."""
        if device.profile is not FirmwareProfile.NATIVE and device.sched_rev not in (0, device.sched_rev_device):
            self._publish_after_commit(tx, device.device_id)

    def _publish_after_commit(self, tx: DevicePlanTx, device_id: DeviceId) -> None:
        tx.after_commit(lambda: self._publisher(device_id))

    def _can_republish(self, device_id: DeviceId) -> bool:
        now_ms = self._clock.now_ms()
        if abs(now_ms - self._republished_ms.get(device_id, -MINUTE_MS)) < MINUTE_MS:
            return False
        if len(self._republished_ms) >= MAX_TRACKED_DEVICES:
            self._republished_ms.clear()  # a fleet that disagrees: a few answers too many are the lesser evil
        self._republished_ms[device_id] = now_ms
        return True
