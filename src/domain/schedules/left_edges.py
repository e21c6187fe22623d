"""Edges that were left to an offline device: recorded when they are due, announced only when the device confirms them.

A device that holds its plan runs its slots while it is offline, but it may also have lost power. So nothing is announced as fired
until the device is back and tells: by a relay state that it gives its schedule as the cause for, by a relay that is as the edge
wanted it, or, when it reports no relay, by the plan revision that it still holds. An edge that it has not run falls under the
misfire policy of its slot.

Of each channel only the latest edge can be made good; and it is not made good against a later edge, a later command,
or somebody at the device. A report from before the due second tells nothing about the edge.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import groupby

from domain.commands.model import AutomationCommand
from domain.commands.reports import SCHEDULE_CAUSES
from domain.commands.submission import CommandSubmissionService
from domain.devices.absence import AbsenceTracker
from domain.devices.channels import RELAY_CHANNEL
from domain.devices.model import Device
from domain.kernel.clock import SECOND_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.ids import DeviceId
from domain.kernel.life import DatabaseLife
from domain.kernel.unit_of_work import UnitOfWork
from domain.schedules.edges import DueScheduleEdgeDecision, ScheduleEdgeOccurrence, apply_resolved_outcome, max_lateness_s
from domain.schedules.firing import (
    MAY_HAVE_RUN,
    DueSlotWithDecision,
    ScheduleEdgeResult,
    automation_command,
    command_result,
    describe_misfire_policy,
    edge_event,
    may_have_run,
)
from domain.schedules.model import DecidedScheduleEdge, EdgeOutcome, OfflineScheduleEdge, Schedule, ScheduleStatus, SwitchEdge
from domain.schedules.ports import SchedulesTx

UNHEARD_POLL_MS = SECOND_MS
"""While a device may still tell what it did when nobody could hear it."""
RESOLVE_AFTER_MS = 10 * SECOND_MS
"""How long a device that is back may take to report its relay."""
RESOLVE_BATCH_SIZE = 160
RECENT_COMMANDS = 20
PERSON_CAUSES = frozenset({"button", "switch", "manual"})
_QUERIES = frozenset({"STATUS", "GET_SCHEDULES"})
_UNKNOWN = "whether the device ran it is not known, and a later edge, command or person has decided since."


@dataclass(frozen=True, slots=True)
class RelayEvidence:
    """What a device reported about its relay. `is_by_command`: the report names a command as the cause."""

    relay: bool
    at_ms: int
    cause: str | None = None
    is_by_command: bool = False
    channel: int = RELAY_CHANNEL


class Conclusion(Enum):
    """What is known about a left edge."""

    CONFIRMED = auto()
    NOT_RUN = auto()
    SUPERSEDED = auto()
    """Nobody knows whether it ran, and it is not made good any more."""


@service
class LeftEdgeResolver:
    """Resolves left edges when a device reports its relay, or some seconds after it is back. Each edge is claimed by deleting its
    row, in the transaction that writes its outcome, its event and its command. So a kill leaves it unresolved or resolved, and
    two instances resolve it once."""

    uow: UnitOfWork[SchedulesTx]
    clock: Clock
    commands: CommandSubmissionService
    absence: AbsenceTracker
    life: DatabaseLife = field(default_factory=DatabaseLife)

    async def on_relay_reports(self, tx: SchedulesTx, reports: Sequence[tuple[Device, RelayEvidence]]) -> None:
        """Reports of online devices that have left edges, in their order, in the transaction of the reports."""
        edges = await _list_by_device(tx, {device.device_id for device, _ in reports})
        for device, evidence in reports:
            conclusions = _judge_by_relay(edges.get(device.device_id, ()), evidence)
            if conclusions:
                await self._resolve(tx, device, conclusions)
                edges[device.device_id] = [edge for edge in edges[device.device_id] if edge not in conclusions]

    async def on_plan_revisions(self, tx: SchedulesTx, reported: Mapping[DeviceId, int]) -> None:
        """What devices with left edges say they hold, in the transaction of the report. Only the first word after the return
        counts: then they get the current plan."""
        for device_id, edges in (await _list_by_device(tx, set(reported))).items():
            unknown = [edge for edge in edges if edge.holds_plan is None]
            for holds in (True, False):
                chosen = [edge for edge in unknown if (edge.plan_rev <= reported[device_id]) is holds]
                if chosen:
                    await tx.schedules.set_plan_held(chosen, holds)

    async def resolve_due(self) -> int | None:
        """Resolve the edges of devices that are back and have not reported their relay. Returns in how many milliseconds to call
        again."""
        now_ms = self.clock.steady_ms()
        async with self.uow.read() as tx:
            found = await tx.schedules.list_left_to_resolve(RESOLVE_BATCH_SIZE)
        if not found:
            return None
        due_ms = now_ms + RESOLVE_AFTER_MS
        async with self.uow.write(caller=None, background=True) as tx:
            devices = {one.device_id: one for one in await tx.devices.list_by_ids({edge.device_id for edge in found})}
            spoken = {one.device_id for one in devices.values() if self.absence.unheard_since_ms(one) is None}
            heard = [edge for edge in found if edge.device_id in spoken]
            new = [
                edge
                for edge in heard
                if devices[edge.device_id].is_online and (edge.resolve_ms is None or edge.resolve_ms > due_ms)
            ]
            if new:
                await tx.schedules.set_resolve_time(new, due_ms)
            due = [edge for edge in heard if edge.resolve_ms is not None and edge.resolve_ms <= now_ms]
            for (device_id, _), edges in groupby(sorted(due, key=_device_and_channel), key=_device_and_channel):
                await self._resolve(tx, devices[device_id], _judge_by_plan(list(edges)))
        waiting = [edge.resolve_ms for edge in heard if edge.resolve_ms is not None and now_ms < edge.resolve_ms <= due_ms]
        unheard_ms = [now_ms + UNHEARD_POLL_MS] if len(heard) < len(found) else []
        return min([*waiting, *unheard_ms, due_ms]) - now_ms

    async def _resolve(self, tx: SchedulesTx, device: Device, conclusions: Mapping[OfflineScheduleEdge, Conclusion]) -> None:
        claimed = await tx.schedules.take_left(list(conclusions))
        schedules = {one.schedule_id: one for one in await tx.schedules.list_by_ids({edge.schedule_id for edge in claimed})}
        ordered = sorted(claimed, key=lambda edge: edge.due_ts)
        latest = {edge.schedule_id: edge for edge in ordered}
        for edge in ordered:
            schedule = schedules.get(edge.schedule_id)
            if schedule is not None:
                is_latest = latest[edge.schedule_id] is edge
                await self._resolve_edge(tx, device, schedule, edge, conclusions[edge], is_latest=is_latest)

    async def _resolve_edge(
        self,
        tx: SchedulesTx,
        device: Device,
        schedule: Schedule,
        edge: OfflineScheduleEdge,
        conclusion: Conclusion,
        *,
        is_latest: bool,
    ) -> None:
        now_ms = self.clock.now_ms()
        confirmed = conclusion is Conclusion.CONFIRMED
        allowed_s = max_lateness_s(schedule) + self.absence.stepped_over_s(edge.due_ts * SECOND_MS)
        decision = _decision_of(edge, now_ms // SECOND_MS, allowed_s, confirmed=confirmed)
        slot = DueSlotWithDecision(schedule, device, decision)
        result = await self._result(tx, slot, edge, conclusion, now_ms)
        if is_latest:
            schedule = apply_resolved_outcome(schedule, edge.edge, result.outcome, edge.due_ts * SECOND_MS, now_ms)
        record = DecidedScheduleEdge(edge.schedule_id, edge.revision, edge.edge, edge.due_ts, now_ms, result.outcome)
        await tx.schedules.save_resolved(schedule, record)
        tx.emit(edge_event(slot, result, now_ms))

    async def _result(
        self, tx: SchedulesTx, slot: DueSlotWithDecision, edge: OfflineScheduleEdge, conclusion: Conclusion, now_ms: int
    ) -> ScheduleEdgeResult:
        schedule, device, decision = slot.schedule, slot.device, slot.decision
        if conclusion is Conclusion.CONFIRMED:
            return ScheduleEdgeResult(EdgeOutcome.RAN_ON_DEVICE)
        assert device is not None  # noqa: S101 - `_resolve` passes it
        if conclusion is Conclusion.SUPERSEDED or not _may_be_made_good(edge, schedule, now_ms // SECOND_MS):
            return ScheduleEdgeResult(EdgeOutcome.SUPERSEDED, _UNKNOWN)
        if may_have_run(self.life, slot):
            return ScheduleEdgeResult(EdgeOutcome.MISSED, MAY_HAVE_RUN)
        if decision.is_missed:
            reason = f"the device did not run it {decision.late_s} s ago, and {describe_misfire_policy(schedule)}"
            return ScheduleEdgeResult(EdgeOutcome.MISSED, reason)
        if await _is_overtaken(tx, schedule, edge):
            return ScheduleEdgeResult(EdgeOutcome.SUPERSEDED, _UNKNOWN)
        command = automation_command(slot, now_ms)
        if not isinstance(command, AutomationCommand):
            return command
        [outcome] = await self.commands.run_unattended(tx, [command], now_ms)
        return command_result(slot, outcome)


def _judge_by_relay(edges: Sequence[OfflineScheduleEdge], evidence: RelayEvidence) -> Mapping[OfflineScheduleEdge, Conclusion]:
    """Conclusions on the left edges of one channel; empty when the report says nothing about them."""
    due = (edge for edge in edges if edge.channel == evidence.channel and edge.due_ts * SECOND_MS <= evidence.at_ms)
    relevant = sorted(due, key=lambda edge: edge.due_ts)
    if not relevant or evidence.is_by_command:
        return {}
    latest, is_by_schedule = relevant[-1], evidence.cause in SCHEDULE_CAUSES
    if evidence.relay is latest.relay and latest.is_held:
        earlier = Conclusion.CONFIRMED if is_by_schedule else Conclusion.SUPERSEDED
        return dict.fromkeys(relevant[:-1], earlier) | {latest: Conclusion.CONFIRMED}
    last = Conclusion.SUPERSEDED if evidence.cause in PERSON_CAUSES else Conclusion.NOT_RUN
    return dict.fromkeys(relevant[:-1], Conclusion.SUPERSEDED) | {latest: last}


def _judge_by_plan(edges: Sequence[OfflineScheduleEdge]) -> Mapping[OfflineScheduleEdge, Conclusion]:
    """Conclusions for a channel of a device that is back and has not reported it."""
    ordered = sorted(edges, key=lambda edge: edge.due_ts)
    latest = ordered[-1]
    if latest.holds_plan:
        return dict.fromkeys(ordered, Conclusion.CONFIRMED)
    return dict.fromkeys(ordered[:-1], Conclusion.SUPERSEDED) | {latest: Conclusion.NOT_RUN}


def _decision_of(edge: OfflineScheduleEdge, now_ts: int, allowed_s: int, *, confirmed: bool) -> DueScheduleEdgeDecision:
    """A left edge in the form of a decided one. A confirmed edge ran in its second."""
    late_s = 0 if confirmed else max(0, now_ts - edge.due_ts)
    other = SwitchEdge.OFF if edge.edge is SwitchEdge.ON else SwitchEdge.ON
    following = None if edge.next_ts is None else ScheduleEdgeOccurrence(edge.next_ts, other)
    return DueScheduleEdgeDecision(ScheduleEdgeOccurrence(edge.due_ts, edge.edge), 0, late_s, late_s > allowed_s, following)


def _may_be_made_good(edge: OfflineScheduleEdge, schedule: Schedule, now_ts: int) -> bool:
    """Whether the slot is still as it was when the edge was left, and its next edge is not due yet."""
    if schedule.status is ScheduleStatus.CANCELLED or schedule.revision != edge.revision or not schedule.enabled:
        return False
    return schedule.last_outcome is EdgeOutcome.LEFT_TO_DEVICE and (edge.next_ts is None or now_ts < edge.next_ts)


async def _is_overtaken(tx: SchedulesTx, schedule: Schedule, edge: OfflineScheduleEdge) -> bool:
    """Whether a command was given after the edge was due, or another schedule has the slot now."""
    newest = await tx.executions.page(schedule.device_id, limit=RECENT_COMMANDS)
    current = await tx.schedules.get_by_slot(schedule.device_id, schedule.slot)
    replaced = current is not None and current.schedule_id != schedule.schedule_id
    later = (one for one in newest if one.channel == edge.channel and one.created_ms >= edge.due_ts * SECOND_MS)
    return replaced or any(one.cmd not in _QUERIES for one in later)


def _device_and_channel(edge: OfflineScheduleEdge) -> tuple[DeviceId, int]:
    return edge.device_id, edge.channel


async def _list_by_device(tx: SchedulesTx, device_ids: Collection[DeviceId]) -> dict[DeviceId, list[OfflineScheduleEdge]]:
    found: dict[DeviceId, list[OfflineScheduleEdge]] = {}
    for edge in await tx.schedules.list_left_by_devices(device_ids) if device_ids else ():
        found.setdefault(edge.device_id, []).append(edge)
    return found
