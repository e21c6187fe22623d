"""`DeviceWorld` with schedules, approvals and grants, wired as the program wires them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adapters.engine.reference import ReferenceGrantEvaluator
from adapters.mqtt.codec import ProfileDispatchingDeviceCodec
from adapters.recurrence import DateutilRecurrence
from domain.approvals.service import ApprovalService
from domain.commands.definitions import CommandDefinitionInput
from domain.devices.model import Device
from domain.grants.explanation import AccessExplainer
from domain.grants.service import GrantService
from domain.kernel.caller import Role
from domain.kernel.ids import AccountId, DeviceId
from domain.schedules.device_plan import DevicePlanSyncService
from domain.schedules.firing import ScheduleFiringService
from domain.schedules.left_edges import LeftEdgeResolver
from domain.schedules.model import DecidedScheduleEdge, Schedule
from domain.schedules.service import ScheduleInput, ScheduleService, ScheduleWithSyncState
from support.device_world import DeviceWorld
from support.manual_clock import START_MS
from support.memory_storage.schedules import FIRED_EDGES

NOW = START_MS // 1000
MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR


class ScheduleWorld(DeviceWorld):
    def __init__(self) -> None:
        super().__init__()
        self.recurrence = DateutilRecurrence()
        self.real_windows = ReferenceGrantEvaluator()
        self.grants_changed: list[AccountId] = []
        self.marked: list[DeviceId] = []
        shared: dict[str, Any] = {"uow": self.uow, "clock": self.clock}
        self.plans = DevicePlanSyncService(
            **shared, link=self.link, codec=ProfileDispatchingDeviceCodec(), publisher=self.marked.append
        )
        self.schedules = ScheduleService(
            **shared, ids=self.ids, recurrence=self.recurrence, commands=self.commands, plans=self.plans, wake=self.wake_event
        )
        self.firing = self.make_firing()
        self.left_edges = LeftEdgeResolver(**shared, commands=self.commands, absence=self.absence)
        self.approvals = ApprovalService(**shared, submitter=self.commands, waiter=self.decisions)
        self.granting: GrantService[Any] = GrantService(
            **shared,
            ids=self.ids,
            windows=self.real_windows,
            commands=self.commands,
            on_grants_changed=self.grants_changed.append,
        )
        self.access: AccessExplainer[Any] = AccessExplainer(**shared, evaluator=self.windows, commands=self.commands)

    def make_firing(self, **other: Any) -> ScheduleFiringService:
        """A new service, as after a restart."""
        parts: dict[str, Any] = {
            "uow": self.uow,
            "clock": self.clock,
            "recurrence": self.recurrence,
            "commands": self.commands,
            "plans": self.plans,
            "absence": self.absence,
        }
        return ScheduleFiringService(**(parts | other))

    @property
    def now_ts(self) -> int:
        return self.clock.now_ms() // 1000

    async def put(
        self, device: Device, on_ts: int, off_ts: int, *, slot: int = 0, role: Role = Role.OWNER, **fields: Any
    ) -> ScheduleWithSyncState:
        return await self.schedules.put(self.session(role), device.device_id, slot, ScheduleInput(on_ts, off_ts, **fields))

    async def fire(self, at_ts: int | None = None, *, lateness_allowance_s: int = 0) -> int:
        """Set the clock to `at_ts` (also backwards) and fire everything that is due."""
        if at_ts is not None:
            self.clock.ms = at_ts * 1000
        total = 0
        while count := await self.firing.fire_due(self.clock.now_ms(), lateness_allowance_s=lateness_allowance_s):
            total += count
        return total

    async def slot(self, device: Device, slot: int = 0) -> Schedule:
        """The current schedule of the slot, or its last one."""
        async with self.uow.read() as tx:
            present = await tx.schedules.get_by_slot(device.device_id, slot)
            ended = [one for one in await tx.schedules.list_history(device.device_id, 20) if one.slot == slot]
        return present or ended[0]

    async def sent(self, device: Device) -> list[str]:
        """The commands queued for a device, oldest first."""
        async with self.uow.read() as tx:
            page = await tx.executions.page(device.device_id, limit=200)
        return [execution.cmd for execution in reversed(page)]

    async def edges(self) -> list[DecidedScheduleEdge]:
        """All recorded edges."""
        async with self.uow.read() as tx:
            return list(tx.schedules._database.rows(FIRED_EDGES).values())

    def fired(self) -> list[tuple[str, int]]:
        """(edge, seconds late) of each `schedule_fired`."""
        return [(event.data["edge"], event.data["lateSeconds"]) for event in self.events_of_kind("schedule_fired")]

    def skipped(self) -> list[tuple[str, str]]:
        """(edge, reason) of each `schedule_skipped`."""
        return [(event.data["edge"], event.data["reason"]) for event in self.events_of_kind("schedule_skipped")]

    async def define(self, device: Device, name: str, **fields: Any) -> None:
        await self.definitions.create(self.session(), device.device_id, CommandDefinitionInput(name=name, label=name, **fields))

    async def redefine(self, device: Device, name: str, **changes: Any) -> None:
        async with self.uow.read() as tx:
            found: Sequence[Any] = await tx.definitions.list_by_device(device.device_id)
        (one,) = [definition for definition in found if definition.name == name]
        await self.definitions.update(self.session(), device.device_id, one.command_id, changes)
