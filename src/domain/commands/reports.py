"""What a device says about its relay and about its commands. Its word decides; ours is only written down.

A report may come twice, late, or for something we never asked; each of these is counted and changes nothing but the relay, whose
present state the device knows better than any order of messages. All of it runs in the transaction of the uplink's batch.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial

from domain.commands import policy
from domain.commands.model import FOLLOWS, Execution, ExecutionStatus, TriggeredBy
from domain.commands.ports import CommandsTx, Outcomes
from domain.devices.model import Device, DeviceStatus, Profile
from domain.kernel.facts import Fact, Json
from domain.kernel.ids import ExecutionId

STATUS_OF: dict[str, ExecutionStatus] = {
    "ack": ExecutionStatus.ACKED,
    "done": ExecutionStatus.DONE,
    "error": ExecutionStatus.FAILED,
    "expired": ExecutionStatus.EXPIRED,
}
TRIES = 3
"""The dispatcher may write SENT while we decide; each status can only move forward, so three tries always suffice."""
_BY_PLAN = frozenset({"sched", "schedule"})


class ReportService:
    def __init__(self, *, outcomes: Outcomes) -> None:
        self._outcomes = outcomes
        self.ignored: Counter[str] = Counter()
        """Results that changed nothing: `unknown`, `duplicate`, `late`."""

    async def on_state(
        self, tx: CommandsTx, device: Device, relay: bool, *, execution_id: str | None, by: str | None, at_ms: int
    ) -> None:
        """The relay is so. Records `relay_changed` only when that is a change."""
        if device.status is DeviceStatus.DELETING:
            return
        cause = await self._cause(tx, device, relay, execution_id, at_ms)
        await self._set_relay(tx, device, relay, cause, by, at_ms)
        if cause is not None and execution_id is None and device.profile is Profile.ESPHOME:
            await self._end(tx, device, cause, ExecutionStatus.DONE, _result("STATE_MATCH", relay, None), at_ms)

    async def on_result(
        self,
        tx: CommandsTx,
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
        execution = await tx.executions.find(ExecutionId(execution_id))
        if execution is None or execution.device_id != device.device_id or status not in STATUS_OF:
            self.ignored["unknown"] += 1
            execution = None
        if relay is not None:
            cause = execution if execution and policy.may_have_caused(execution, device, at_ms) else None
            await self._set_relay(tx, device, relay, cause, None, at_ms)
        if execution is not None:
            await self._end(tx, device, execution, STATUS_OF[status], _result(code, relay, data), at_ms)

    async def _cause(
        self, tx: CommandsTx, device: Device, relay: bool, execution_id: str | None, at_ms: int
    ) -> Execution | None:
        """The execution the report names; for a firmware that names none, the oldest unanswered one that fits."""
        if execution_id is not None:
            named = await tx.executions.find(ExecutionId(execution_id))
            return named if named is not None and policy.may_have_caused(named, device, at_ms) else None
        if device.profile is Profile.NATIVE:
            return None
        for execution in await tx.executions.open_of(device.device_id):
            if policy.answered_by_state(device.profile, execution, relay):
                return execution
        return None

    async def _set_relay(
        self, tx: CommandsTx, device: Device, relay: bool, cause: Execution | None, by: str | None, at_ms: int
    ) -> None:
        if not await tx.devices.set_relay(device.device_id, relay):
            return
        triggered_by = cause.source if cause is not None else _unprompted(by)
        word = "ON" if relay else "OFF"
        await tx.record(
            Fact(
                account_id=device.account_id,
                kind="relay_changed",
                description=f"Relay is {word}",
                at_ms=at_ms,
                source=cause.requested_by if cause is not None else triggered_by.value,
                device_id=device.device_id,
                data={"relay": word, "triggeredBy": triggered_by.value},
            )
        )

    async def _end(
        self, tx: CommandsTx, device: Device, execution: Execution, status: ExecutionStatus, result: Json, at_ms: int
    ) -> None:
        present: Execution | None = execution
        for _ in range(TRIES):
            if present is None or status not in FOLLOWS[present.status]:
                break
            after = replace(
                present, status=status, result=result, finished_ms=at_ms if status.is_final else None
            )
            if await tx.executions.advance(after, present.status):
                if status.is_final:
                    await tx.record(ended(after, "device", at_ms))
                    tx.after_commit(partial(self._outcomes.announce, after))
                return
            present = await tx.executions.find(execution.execution_id)
        same = present is not None and present.status is status
        self.ignored["duplicate" if same else "late"] += 1


def ended(execution: Execution, source: str, at_ms: int) -> Fact:
    """The fact that an execution has ended."""
    code = execution.result.get("code") if isinstance(execution.result, dict) else None
    because = f" ({code})" if isinstance(code, str) else ""
    return Fact(
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
    )


def _unprompted(by: str | None) -> TriggeredBy:
    """A device that runs its own copy of the schedules says so; all else is a button, a wire, or its own logic."""
    return TriggeredBy.SCHEDULE if by in _BY_PLAN else TriggeredBy.DEVICE


def _result(code: str | None, relay: bool | None, data: Json) -> Json:
    return {"code": code, "relay": None if relay is None else "ON" if relay else "OFF", "data": data}
