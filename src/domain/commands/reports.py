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
from domain.commands.ports import CommandsTx, Move, Outcomes
from domain.commands.scene import Scene
from domain.devices.model import Device, DeviceStatus, Profile
from domain.kernel.facts import Fact, Json
from domain.kernel.ids import ExecutionId

STATUS_OF: dict[str, ExecutionStatus] = {
    "ack": ExecutionStatus.ACKED,
    "done": ExecutionStatus.DONE,
    "error": ExecutionStatus.FAILED,
    "expired": ExecutionStatus.EXPIRED,
}
_BY_PLAN = frozenset({"sched", "schedule"})


class ReportService:
    def __init__(self, *, outcomes: Outcomes) -> None:
        self._outcomes = outcomes
        self.ignored: Counter[str] = Counter()
        """Results that changed nothing: `unknown`, `duplicate`, `late`."""

    async def scene(self, tx: CommandsTx, named: Collection[str]) -> Scene:
        """For the reports of one batch; `named` are the executions they name. `write` ends it."""
        return await Scene.of(tx, {ExecutionId(execution_id) for execution_id in named})

    async def write(self, scene: Scene) -> None:
        await scene.write(self._outcomes)
        self.ignored += scene.ignored

    async def on_state(
        self, scene: Scene, device: Device, relay: bool, *, execution_id: str | None, by: str | None, at_ms: int
    ) -> None:
        """The relay is so. Tells of `relay_changed` only when that is a change."""
        if device.status is DeviceStatus.DELETING:
            return
        cause = await self._cause(scene, device, relay, execution_id, at_ms)
        self._set_relay(scene, device, relay, cause, by, at_ms)
        if cause is not None and execution_id is None and device.profile is Profile.ESPHOME:
            self._end(scene, device, cause, ExecutionStatus.DONE, said("STATE_MATCH", relay), at_ms)

    async def on_result(
        self,
        scene: Scene,
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
        execution = scene.execution(ExecutionId(execution_id))
        if execution is None or execution.device_id != device.device_id or status not in STATUS_OF:
            scene.ignored["unknown"] += 1
            execution = None
        if relay is not None:
            cause = execution if execution and policy.may_have_caused(execution, device, at_ms) else None
            self._set_relay(scene, device, relay, cause, None, at_ms)
        if execution is not None:
            self._end(scene, device, execution, STATUS_OF[status], said(code, relay, data), at_ms)

    async def _cause(
        self, scene: Scene, device: Device, relay: bool, execution_id: str | None, at_ms: int
    ) -> Execution | None:
        """The execution the report names; for a firmware that names none, the oldest unanswered one that fits."""
        if execution_id is not None:
            named = scene.execution(ExecutionId(execution_id))
            return named if named is not None and policy.may_have_caused(named, device, at_ms) else None
        if device.profile is Profile.NATIVE:
            return None
        for execution in await scene.open_of(device):
            if policy.answered_by_state(device.profile, execution, relay):
                return execution
        return None

    def _set_relay(
        self, scene: Scene, device: Device, relay: bool, cause: Execution | None, by: str | None, at_ms: int
    ) -> None:
        if not scene.switch(device, relay):
            return
        triggered_by = cause.source if cause is not None else _unprompted(by)
        word = "ON" if relay else "OFF"
        scene.tell(
            Fact(
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

    def _end(
        self, scene: Scene, device: Device, execution: Execution, status: ExecutionStatus, result: Json, at_ms: int
    ) -> None:
        after = scene.move(execution, status, result, at_ms)
        if after is not None and status.is_final:
            scene.tell(ended(after, "device", at_ms, device.name), of=after.execution_id)


def ended(execution: Execution, source: str, at_ms: int, device_name: str | None = None) -> Fact:
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
        device_name=device_name,
    )


def said(code: str | None, relay: bool | None = None, data: Json = None) -> Json:
    """A result, as it is stored and shown."""
    return {"code": code, "relay": None if relay is None else "ON" if relay else "OFF", "data": data}


def expired(execution: Execution, now_ms: int) -> Move:
    """Its deadline is past."""
    never_had = execution.status is ExecutionStatus.QUEUED
    status = ExecutionStatus.EXPIRED if never_had else ExecutionStatus.TIMED_OUT
    result = said("NOT_DELIVERED" if never_had else "NO_ANSWER")
    return replace(execution, status=status, finished_ms=now_ms, result=result), execution.status


def _unprompted(by: str | None) -> TriggeredBy:
    """A device that runs its own copy of the schedules says so; all else is a button, a wire, or its own logic."""
    return TriggeredBy.SCHEDULE if by in _BY_PLAN else TriggeredBy.DEVICE
