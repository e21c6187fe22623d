"""Apply what devices report about their relay and their commands. The device's report decides.

A report may be repeated, late, or about an unknown command; it is then counted and changes only the relay state, which the device
knows best. Everything runs in the transaction of one inbound batch, on one `ExecutionChangeCollector`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from domain.commands.execution_change_collector import NO_ANSWER, NOT_DELIVERED, ExecutionChangeCollector
from domain.commands.firmware_resend_and_confirmation_rules import can_have_caused, is_confirmed_by_state
from domain.commands.model import Execution, ExecutionStatus, TriggeredBy
from domain.commands.ports import ExecutionTransition, ExecutionWaiter
from domain.devices.model import Device, DeviceStatus, FirmwareProfile
from domain.kernel.domain_event import DomainEvent, Json
from domain.kernel.ids import ExecutionId

STATUS_BY_REPORT: dict[str, ExecutionStatus] = {
    "ack": ExecutionStatus.ACKED,
    "done": ExecutionStatus.DONE,
    "error": ExecutionStatus.FAILED,
    "expired": ExecutionStatus.EXPIRED,
}
SCHEDULE_CAUSES = frozenset({"sched", "schedule"})
"""What a device gives as the cause of a relay state when it ran its copy of the plan."""


class RelayAndCommandReportService:
    def __init__(self, *, execution_waiter: ExecutionWaiter) -> None:
        self._execution_waiter = execution_waiter
        self.ignored: Counter[str] = Counter()
        """Number of results that changed nothing, by reason: `unknown`, `duplicate`, `late`."""

    async def write_changes(self, changes: ExecutionChangeCollector) -> None:
        """Call this after all reports of a batch."""
        await changes.write(self._execution_waiter)
        self.ignored += changes.ignored

    async def on_relay_report(
        self,
        changes: ExecutionChangeCollector,
        device: Device,
        relay: bool,
        *,
        execution_id: str | None,
        reported_cause: str | None,
        at_ms: int,
    ) -> None:
        """Store the relay state; emit `relay_changed` only if it changed."""
        if device.status is DeviceStatus.DELETING:
            return
        cause = await self._find_cause(changes, device, relay, execution_id, at_ms)
        self._set_relay(changes, device, relay, cause, reported_cause, at_ms)
        if cause is not None and execution_id is None and device.profile is FirmwareProfile.ESPHOME:
            self._transition(changes, device, cause, ExecutionStatus.DONE, build_result("STATE_MATCH", relay), at_ms)

    async def on_result_report(
        self,
        changes: ExecutionChangeCollector,
        device: Device,
        execution_id: str,
        status: str,
        code: str | None,
        relay: bool | None,
        data: Json,
        at_ms: int,
    ) -> None:
        """`status` is `ack`, `done`, `error` or `expired`; anything else is ignored."""
        if device.status is DeviceStatus.DELETING:
            return
        execution = changes.get(ExecutionId(execution_id))
        if execution is None or execution.device_id != device.device_id or status not in STATUS_BY_REPORT:
            changes.ignored["unknown"] += 1
            execution = None
        if relay is not None:
            cause = execution if execution and can_have_caused(execution, device, at_ms) else None
            self._set_relay(changes, device, relay, cause, None, at_ms)
        if execution is not None:
            self._transition(changes, device, execution, STATUS_BY_REPORT[status], build_result(code, relay, data), at_ms)

    async def _find_cause(
        self, changes: ExecutionChangeCollector, device: Device, relay: bool, execution_id: str | None, at_ms: int
    ) -> Execution | None:
        """The execution that the report names; for firmware that names none, the oldest unanswered one that matches."""
        if execution_id is not None:
            named = changes.get(ExecutionId(execution_id))
            return named if named is not None and can_have_caused(named, device, at_ms) else None
        if device.profile is FirmwareProfile.NATIVE:
            return None
        for execution in await changes.list_open_by_device(device):
            if is_confirmed_by_state(device.profile, execution, relay):
                return execution
        return None

    def _set_relay(
        self,
        changes: ExecutionChangeCollector,
        device: Device,
        relay: bool,
        cause: Execution | None,
        reported_cause: str | None,
        at_ms: int,
    ) -> None:
        if not changes.set_relay(device, relay):
            return
        triggered_by = cause.source if cause is not None else _device_trigger(reported_cause)
        word = "ON" if relay else "OFF"
        changes.add_event(
            DomainEvent(
                account_id=device.account_id,
                kind="relay_changed",
                description=f"Relay is {word}",
                at_ms=at_ms,
                source=cause.requested_by if cause is not None else triggered_by.value,
                device_id=device.device_id,
                data={"relay": word, "triggeredBy": triggered_by.value},
                device_name=device.name,
            )
        )

    def _transition(
        self,
        changes: ExecutionChangeCollector,
        device: Device,
        execution: Execution,
        status: ExecutionStatus,
        result: Json,
        at_ms: int,
    ) -> None:
        after = changes.transition(execution, status, result, at_ms)
        if after is not None and status.is_final:
            changes.add_event(command_result_event(after, "device", at_ms, device.name), execution_id=after.execution_id)


def command_result_event(execution: Execution, source: str, at_ms: int, device_name: str | None = None) -> DomainEvent:
    code = execution.result.get("code") if isinstance(execution.result, dict) else None
    because = f" ({code})" if isinstance(code, str) else ""
    return DomainEvent(
        account_id=execution.account_id,
        kind="command_result",
        description=f"Command {execution.cmd}: {execution.status}{because}",
        at_ms=at_ms,
        source=source,
        device_id=execution.device_id,
        data={
            "executionId": execution.execution_id,
            "cmd": execution.cmd,
            "status": execution.status.value,
            "code": code,
            "requestedBy": execution.requested_by,
        },
        device_name=device_name,
    )


def build_result(code: str | None, relay: bool | None = None, data: Json = None) -> Json:
    """A result as stored and shown by the API."""
    return {"code": code, "relay": None if relay is None else "ON" if relay else "OFF", "data": data}


def expire_execution(execution: Execution, now_ms: int) -> ExecutionTransition:
    """The transition of an execution whose deadline has passed. Only one that was surely never sent is EXPIRED."""
    never_had = execution.status is ExecutionStatus.QUEUED and execution.sent_ms is None
    status = ExecutionStatus.EXPIRED if never_had else ExecutionStatus.TIMED_OUT
    result = build_result(NOT_DELIVERED if never_had else NO_ANSWER)
    return replace(execution, status=status, finished_ms=now_ms, result=result), execution.status


def _device_trigger(reported_cause: str | None) -> TriggeredBy:
    """A device that runs its copy of the schedules reports that; everything else is a button, wiring, or its own logic."""
    return TriggeredBy.SCHEDULE if reported_cause in SCHEDULE_CAUSES else TriggeredBy.DEVICE
