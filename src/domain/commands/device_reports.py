"""What a device says about its relay and about its commands. Its word decides; ours is only written down.

A report may come twice, late, or for something we never asked; each of these is counted and changes nothing but the relay, whose
present state the device knows better than any order of messages. All of it runs in the transaction of the uplink's batch, on one
scene.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from domain.commands import policy
from domain.commands.model import Execution, ExecutionStatus, TriggeredBy
from domain.commands.ports import ExecutionTransition, ExecutionWaiter
from domain.commands.report_batch import ExecutionChanges, ReportTx
from domain.devices.model import Device, DeviceStatus, FirmwareProfile
from domain.kernel.domain_events import DomainEvent, Json
from domain.kernel.ids import ExecutionId

STATUS_BY_REPORT: dict[str, ExecutionStatus] = {
    "ack": ExecutionStatus.ACKED,
    "done": ExecutionStatus.DONE,
    "error": ExecutionStatus.FAILED,
    "expired": ExecutionStatus.EXPIRED,
}
_SCHEDULE_CAUSES = frozenset({"sched", "schedule"})


class DeviceReportService:
    def __init__(self, *, execution_waiter: ExecutionWaiter) -> None:
        self._execution_waiter = execution_waiter
        self.ignored: Counter[str] = Counter()
        """Results that changed nothing: `unknown`, `duplicate`, `late`."""

    async def load_changes(self, tx: ReportTx, named: Collection[str]) -> ExecutionChanges:
        """For the reports of one batch; `named` are the executions they name. `write` ends it."""
        return await ExecutionChanges.load(tx, {ExecutionId(execution_id) for execution_id in named})

    async def write_changes(self, scene: ExecutionChanges) -> None:
        await scene.write(self._execution_waiter)
        self.ignored += scene.ignored

    async def on_relay_report(
        self, scene: ExecutionChanges, device: Device, relay: bool, *, execution_id: str | None, by: str | None, at_ms: int
    ) -> None:
        """The relay is so. Tells of `relay_changed` only when that is a change."""
        if device.status is DeviceStatus.DELETING:
            return
        cause = await self._find_cause(scene, device, relay, execution_id, at_ms)
        self._set_relay(scene, device, relay, cause, by, at_ms)
        if cause is not None and execution_id is None and device.profile is FirmwareProfile.ESPHOME:
            self._transition(scene, device, cause, ExecutionStatus.DONE, build_result("STATE_MATCH", relay), at_ms)

    async def on_result_report(
        self,
        scene: ExecutionChanges,
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
        execution = scene.get(ExecutionId(execution_id))
        if execution is None or execution.device_id != device.device_id or status not in STATUS_BY_REPORT:
            scene.ignored["unknown"] += 1
            execution = None
        if relay is not None:
            cause = execution if execution and policy.can_have_caused(execution, device, at_ms) else None
            self._set_relay(scene, device, relay, cause, None, at_ms)
        if execution is not None:
            self._transition(scene, device, execution, STATUS_BY_REPORT[status], build_result(code, relay, data), at_ms)

    async def _find_cause(
        self, scene: ExecutionChanges, device: Device, relay: bool, execution_id: str | None, at_ms: int
    ) -> Execution | None:
        """The execution the report names; for a firmware that names none, the oldest unanswered one that fits."""
        if execution_id is not None:
            named = scene.get(ExecutionId(execution_id))
            return named if named is not None and policy.can_have_caused(named, device, at_ms) else None
        if device.profile is FirmwareProfile.NATIVE:
            return None
        for execution in await scene.list_open_by_device(device):
            if policy.is_confirmed_by_state(device.profile, execution, relay):
                return execution
        return None

    def _set_relay(
        self, scene: ExecutionChanges, device: Device, relay: bool, cause: Execution | None, by: str | None, at_ms: int
    ) -> None:
        if not scene.set_relay(device, relay):
            return
        triggered_by = cause.source if cause is not None else _device_trigger(by)
        word = "ON" if relay else "OFF"
        scene.add_event(
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
        self, scene: ExecutionChanges, device: Device, execution: Execution, status: ExecutionStatus, result: Json, at_ms: int
    ) -> None:
        after = scene.transition(execution, status, result, at_ms)
        if after is not None and status.is_final:
            scene.add_event(command_result_event(after, "device", at_ms, device.name), of=after.execution_id)


def command_result_event(execution: Execution, source: str, at_ms: int, device_name: str | None = None) -> DomainEvent:
    """The fact that an execution has ended."""
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
    """A result, as it is stored and shown."""
    return {"code": code, "relay": None if relay is None else "ON" if relay else "OFF", "data": data}


def expire_execution(execution: Execution, now_ms: int) -> ExecutionTransition:
    """Its deadline is past."""
    never_had = execution.status is ExecutionStatus.QUEUED
    status = ExecutionStatus.EXPIRED if never_had else ExecutionStatus.TIMED_OUT
    result = build_result("NOT_DELIVERED" if never_had else "NO_ANSWER")
    return replace(execution, status=status, finished_ms=now_ms, result=result), execution.status


def _device_trigger(by: str | None) -> TriggeredBy:
    """A device that runs its own copy of the schedules says so; all else is a button, a wire, or its own logic."""
    return TriggeredBy.SCHEDULE if by in _SCHEDULE_CAUSES else TriggeredBy.DEVICE
