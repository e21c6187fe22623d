"""From a due edge to the command that runs it, and from the command to the edge's outcome."""

from __future__ import annotations

from domain.commands.model import DEFAULT_TTL_MS, MAX_TTL_MS, AutomationCommand, CommandRequest, Execution, TriggeredBy
from domain.devices.model import DeviceStatus
from domain.kernel.caller import SystemCaller
from domain.kernel.clock import SECOND_MS
from domain.kernel.errors import DomainError, NotFound, PermissionDenied
from domain.schedules.due_edges import DueScheduleEdgeDecision, max_lateness_s
from domain.schedules.model import Schedule
from domain.schedules.schedule_run_events import DueSlotWithDecision, ScheduleEdgeResult, command_for_edge
from domain.schedules.schedule_state_machine import fired_outcome, outcome_for_error


def automation_command(slot: DueSlotWithDecision, now_ms: int) -> AutomationCommand | ScheduleEdgeResult:
    """The command of the slot's edge, or the result if the slot may run none."""
    schedule, device, decision = slot.schedule, slot.device, slot.decision
    if device is None or device.status is DeviceStatus.DELETING:
        return denied_result(NotFound.for_resource("device", schedule.device_id))
    if schedule.created_by is None:
        return denied_result(
            PermissionDenied("the member who saved it has left the account. Save it again.", code="GRANT_MISSING")
        )
    slot_command = command_for_edge(schedule, decision.due.edge)
    caller = SystemCaller(schedule.account_id, "schedule", schedule.schedule_id, on_behalf_of=schedule.created_by)
    request = CommandRequest(device, slot_command.command, slot_command.params, _command_ttl_ms(schedule, decision, now_ms))
    return AutomationCommand(caller, request, TriggeredBy.SCHEDULE)


def command_result(slot: DueSlotWithDecision, outcome: Execution | DomainError) -> ScheduleEdgeResult:
    if isinstance(outcome, DomainError):
        return denied_result(outcome)
    return ScheduleEdgeResult(fired_outcome(slot.decision.late_s), execution=outcome)


def denied_result(error: DomainError) -> ScheduleEdgeResult:
    return ScheduleEdgeResult(outcome_for_error(error), error.message)


def _command_ttl_ms(schedule: Schedule, decision: DueScheduleEdgeDecision, now_ms: int) -> int:
    """How long an offline device may take to reconnect and still get the command: the slot's misfire grace, but not past the
    next edge."""
    ttl_ms = max(DEFAULT_TTL_MS, (max_lateness_s(schedule) - decision.late_s) * SECOND_MS)
    if decision.next_edge is not None:
        ttl_ms = min(ttl_ms, max(SECOND_MS, decision.next_edge.ts * SECOND_MS - now_ms))
    return min(ttl_ms, MAX_TTL_MS)
