"""Running what is due: each edge once, or told why not.

What an edge does (the queued command, its event, the slot's next edge, and the edge's own key, unique in the database) is one
transaction, so that a crash at any point leaves all of it or nothing. Slots are taken in small batches: each is a short
transaction, and between two of them everybody else gets a turn.

A slot that cannot be decided because of a fault of ours is set aside: it must not hold up all the others due after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from domain.commands.model import DEFAULT_TTL_MS, MAX_TTL_MS, Execution, TriggeredBy
from domain.devices.model import Device, DeviceStatus
from domain.events.model import SCHEDULE_FIRED
from domain.kernel.caller import System
from domain.kernel.clock import SECOND_MS, Clock
from domain.kernel.errors import DomainError, NotFound, Refused, Unavailable
from domain.kernel.facts import Fact, Json
from domain.kernel.unit_of_work import UnitOfWork
from domain.schedules import policy
from domain.schedules.edges import Turn, allowed_late_s, turn
from domain.schedules.firmware import runs_itself
from domain.schedules.model import Edge, FiredEdge, Misfire, Outcome, Schedule, SlotCommand
from domain.schedules.plans import PlanService
from domain.schedules.ports import Recurrence, SchedulesTx

BATCH = 8
"""Slots in one transaction. A slot takes the one writer of SQLite about 2 ms, and everybody else waits for a turn; larger batches
are hardly faster, because the time goes into the statements, not into the commit."""
SKIPPED = "schedule_skipped"


class UnattendedCommands(Protocol):
    """What the commands part does for a command that runs with nobody present."""

    async def run_unattended(
        self,
        tx: SchedulesTx,
        caller: System,
        device: Device,
        cmd: str,
        params: Json,
        *,
        source: TriggeredBy,
        now_ms: int,
        ttl_ms: int = DEFAULT_TTL_MS,
    ) -> Execution: ...


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of an edge; `why` is empty when it ran."""

    outcome: Outcome
    why: str = ""
    execution: Execution | None = None


class Stuck(Exception):
    """One slot could not be decided; nothing of its batch was kept."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule.schedule_id)
        self.schedule = schedule


class FiringService:
    def __init__(
        self,
        *,
        uow: UnitOfWork[SchedulesTx],
        clock: Clock,
        recurrence: Recurrence,
        commands: UnattendedCommands,
        plans: PlanService,
    ) -> None:
        self._uow = uow
        self._clock = clock
        self._recurrence = recurrence
        self._commands = commands
        self._plans = plans

    async def next_due_ts(self) -> int | None:
        async with self._uow.read() as tx:
            return await tx.schedules.next_due_ts()

    async def fire_due(self, now_ms: int, *, forgiven_s: int = 0, limit: int = BATCH) -> int:
        """Decide a batch of due slots; how many. Call again until 0. `forgiven_s`: how much of their lateness is no fault of
        the slot's. Raises Unavailable when the database does not answer, and Stuck for a slot to set aside."""
        async with self._uow.write() as tx:
            due = await tx.schedules.due(now_ms // SECOND_MS, limit)
            for schedule in due:
                try:
                    await self._decide(tx, schedule, now_ms, forgiven_s)
                except Unavailable:
                    raise
                except Exception as error:
                    raise Stuck(schedule) from error
        return len(due)

    async def set_aside(self, stuck: Schedule, now_ms: int) -> None:
        """Pass over the due edge of a slot that cannot be decided, and say so; if even that fails, stop the slot."""
        async with self._uow.write() as tx:
            schedule = await tx.schedules.in_slot(stuck.device_id, stuck.slot)
            if schedule is None or schedule.schedule_id != stuck.schedule_id or schedule.next_edge is None:
                return
            edge, outcome = schedule.next_edge, Outcome.SKIPPED_COMMAND
            try:
                after = turn(schedule, now_ms // SECOND_MS, self._recurrence).following
            except Exception:
                after = None
            await tx.schedules.save(policy.decided(schedule, edge, outcome, after, now_ms))
            data = _data(schedule, edge, {"reason": outcome.value})
            why = "a fault of the service; its log says more."
            await tx.record(_fact(schedule, SKIPPED, f"Slot {schedule.slot} was passed over: {why}", now_ms, data))

    async def _decide(self, tx: SchedulesTx, schedule: Schedule, now_ms: int, forgiven_s: int) -> None:
        this = turn(schedule, now_ms // SECOND_MS, self._recurrence, forgiven_s)
        device = await tx.devices.find(schedule.device_id)
        decision = await self._run(tx, schedule, device, this, now_ms)
        edge = FiredEdge(
            schedule.schedule_id, schedule.revision, this.due.edge, this.due.ts, now_ms, decision.outcome
        )
        if not await tx.schedules.record_edge(edge):
            raise RuntimeError(f"edge {this.due} of {schedule.schedule_id} was recorded before")
        await self._superseded(tx, schedule, this, now_ms)
        await _tell(tx, schedule, this, decision, now_ms)
        after = policy.decided(schedule, this.due.edge, decision.outcome, this.following, now_ms)
        if device is None or this.following is not None:
            await tx.schedules.save(after)
            return
        rows = await self._plans.rows(tx, device)
        await tx.schedules.save(after)
        await self._plans.revise(tx, device, rows)

    async def _run(
        self, tx: SchedulesTx, schedule: Schedule, device: Device | None, this: Turn, now_ms: int
    ) -> Decision:
        if this.missed:
            why = f"it was due {this.late_s} s ago, and {_tolerance(schedule)}"
            return Decision(Outcome.MISSED, why)
        order = _order(schedule, this.due.edge)
        try:
            if device is None or device.status is DeviceStatus.DELETING:
                raise NotFound.of("device", schedule.device_id)
            if schedule.created_by is None:
                raise Refused("whoever set it is no longer a member. Save it again.", code="GRANT_MISSING")
            if device.enabled and runs_itself(device, schedule):
                return Decision(Outcome.RAN_ON_DEVICE)
            execution = await self._commands.run_unattended(
                tx,
                System(
                    schedule.account_id, "schedule", schedule.schedule_id, on_behalf_of=schedule.created_by
                ),
                device,
                order.command,
                order.params,
                source=TriggeredBy.SCHEDULE,
                now_ms=now_ms,
                ttl_ms=_ttl_ms(schedule, this, now_ms),
            )
        except Unavailable:
            raise
        except DomainError as error:
            return Decision(policy.outcome_of(error), error.message)
        return Decision(policy.outcome_on_time(this.late_s), execution=execution)

    async def _superseded(self, tx: SchedulesTx, schedule: Schedule, this: Turn, now_ms: int) -> None:
        """Edges passed over for a later one: the first is named, the others counted."""
        if this.superseded == 0 or schedule.next_edge is None or schedule.next_fire_ts is None:
            return
        passed = FiredEdge(
            schedule.schedule_id,
            schedule.revision,
            schedule.next_edge,
            schedule.next_fire_ts,
            now_ms,
            Outcome.SUPERSEDED,
        )
        await tx.schedules.record_edge(passed)
        late_s = now_ms // SECOND_MS - schedule.next_fire_ts
        more: dict[str, Json] = {
            "reason": Outcome.SUPERSEDED.value,
            "lateSeconds": late_s,
            "edges": this.superseded,
        }
        text = f"Slot {schedule.slot}: {this.superseded} missed edge(s) passed over, {this.due.edge} is due"
        await tx.record(_fact(schedule, SKIPPED, text, now_ms, _data(schedule, schedule.next_edge, more)))


async def _tell(tx: SchedulesTx, schedule: Schedule, this: Turn, decision: Decision, now_ms: int) -> None:
    more: dict[str, Json] = {"lateSeconds": this.late_s}
    if decision.outcome in policy.RAN:
        by = " by the device itself" if decision.outcome is Outcome.RAN_ON_DEVICE else ""
        text = f"Slot {schedule.slot} switched {this.due.edge}{by}: {_order(schedule, this.due.edge).command}"
        if decision.execution is not None:
            more["executionId"] = decision.execution.execution_id
        await tx.record(_fact(schedule, SCHEDULE_FIRED, text, now_ms, _data(schedule, this.due.edge, more)))
        return
    more["reason"] = decision.outcome.value
    text = f"Slot {schedule.slot} did not switch {this.due.edge}: {decision.why}"
    await tx.record(_fact(schedule, SKIPPED, text, now_ms, _data(schedule, this.due.edge, more)))


def _order(schedule: Schedule, edge: Edge) -> SlotCommand:
    return schedule.on_command if edge is Edge.ON else schedule.off_command


def _data(schedule: Schedule, edge: Edge, more: dict[str, Json]) -> dict[str, Json]:
    return {
        "scheduleId": schedule.schedule_id,
        "slot": schedule.slot,
        "edge": edge.value,
        "command": _order(schedule, edge).command,
        **more,
    }


def _fact(schedule: Schedule, kind: str, text: str, now_ms: int, data: dict[str, Json]) -> Fact:
    return Fact(
        account_id=schedule.account_id,
        kind=kind,
        description=text,
        at_ms=now_ms,
        source=f"schedule:{schedule.schedule_id}",
        device_id=schedule.device_id,
        data=data,
    )


def _tolerance(schedule: Schedule) -> str:
    if schedule.misfire is Misfire.SKIP:
        return "this slot skips what is missed."
    return f"this slot makes up for at most {allowed_late_s(schedule)} s."


def _ttl_ms(schedule: Schedule, this: Turn, now_ms: int) -> int:
    """How long a device that is away may still come back for it: as long as the slot makes up for what is late, but never into
    the next edge."""
    ttl_ms = max(DEFAULT_TTL_MS, (allowed_late_s(schedule) - this.late_s) * SECOND_MS)
    if this.following is not None:
        ttl_ms = min(ttl_ms, max(SECOND_MS, this.following.ts * SECOND_MS - now_ms))
    return min(ttl_ms, MAX_TTL_MS)
