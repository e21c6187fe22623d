"""Unit of work for the reports of one batch: changes are decided in memory, in order, and written together.

All named executions are loaded once. Each report sees the changes of those before it. At the end each execution makes one
transition, from its stored status to its last one, and each relay is set once. A transition that a concurrent write (the
dispatcher's) has overtaken is retried from the new status.

The device knows what it did. An end that the service only assumed, because the deadline passed without a report, is therefore
replaced by a report that comes later, and the event of it says what it replaces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from domain.commands.model import ALLOWED_TRANSITIONS, Execution, ExecutionStatus
from domain.commands.ports import ExecutionTransition, ExecutionWaiter, HasCommandContexts, HasCommandExecutions
from domain.devices.model import Device
from domain.devices.ports import HasDevices
from domain.kernel.domain_event import DomainEvent, Json
from domain.kernel.ids import DeviceId, ExecutionId
from domain.kernel.unit_of_work import Transaction

MAX_ATTEMPTS = 3
"""The dispatcher may write SENT meanwhile; a status only moves forward, so three attempts always suffice."""


NOT_DELIVERED, NO_ANSWER = "NOT_DELIVERED", "NO_ANSWER"
"""Result codes of the ends that the service assumes at the deadline."""
_ASSUMED_CODES = (NOT_DELIVERED, NO_ANSWER)
_REPORTED_ENDS = (ExecutionStatus.DONE, ExecutionStatus.FAILED)


def can_report(execution: Execution, status: ExecutionStatus) -> bool:
    """Whether a report of the device moves the execution to this status."""
    if status in ALLOWED_TRANSITIONS[execution.status]:
        return True
    code = execution.result.get("code") if isinstance(execution.result, dict) else None
    return execution.status.is_final and code in _ASSUMED_CODES and status in _REPORTED_ENDS


class CommandReportTx(Transaction, HasCommandContexts, HasDevices, HasCommandExecutions, Protocol): ...


class ExecutionChangeCollector:
    def __init__(self, tx: CommandReportTx, executions: Sequence[Execution]) -> None:
        """`executions`: those that the reports of the batch name."""
        self.tx = tx
        self._stored = {execution.execution_id: execution for execution in executions}
        self._current = dict(self._stored)
        self._relay_states: dict[DeviceId, bool | None] = {}
        self._changed_relays: dict[DeviceId, bool] = {}
        self._events: list[tuple[DomainEvent, ExecutionId | None]] = []
        """Each with the execution whose transition it reports, if any."""
        self.ignored: Counter[str] = Counter()

    def get(self, execution_id: ExecutionId) -> Execution | None:
        """The execution after the reports so far."""
        return self._current.get(execution_id)

    async def list_open_by_device(self, device: Device) -> Sequence[Execution]:
        """Executions of the device that are QUEUED or SENT in the database, in their current state, oldest first."""
        found = await self.tx.executions.list_open_by_device(device.device_id)
        for execution in found:
            self._stored.setdefault(execution.execution_id, execution)
            self._current.setdefault(execution.execution_id, execution)
        return [self._current[execution.execution_id] for execution in found]

    def set_relay(self, device: Device, relay: bool) -> bool:
        """True if this changes the relay state."""
        if self._relay_states.setdefault(device.device_id, device.relay) is relay:
            return False
        self._relay_states[device.device_id] = self._changed_relays[device.device_id] = relay
        return True

    def transition(self, execution: Execution, status: ExecutionStatus, result: Json, at_ms: int) -> Execution | None:
        """The execution after the transition; None when its status no longer allows it."""
        current = self._current[execution.execution_id]
        if not can_report(current, status):
            self.ignored["duplicate" if current.status is status else "late"] += 1
            return None
        after = replace(current, status=status, result=result, finished_ms=at_ms if status.is_final else None)
        self._current[execution.execution_id] = after
        return after

    def add_event(self, event: DomainEvent, execution_id: ExecutionId | None = None) -> None:
        self._events.append((event, execution_id))

    async def write(self, execution_waiter: ExecutionWaiter) -> None:
        """Write all changes and emit their events in the transaction."""
        if self._changed_relays:
            await self.tx.devices.set_relay_many(self._changed_relays)
        stored = await self._transition_all()
        for event, execution_id in self._events:
            if execution_id is None:
                await self.tx.emit(event)
            elif execution_id in stored:
                await self.tx.emit(_with_correction(event, stored[execution_id]))
        finished = [after for after, before in stored.values() if after.status.is_final and not before.is_final]

        def announce() -> None:
            for execution in finished:
                execution_waiter.notify(execution)

        if finished:
            self.tx.after_commit(announce)

    async def _transition_all(self) -> dict[ExecutionId, ExecutionTransition]:
        """Each execution that was changed, with its status before."""
        pending = {key: after for key, after in self._current.items() if after is not self._stored[key]}
        done: dict[ExecutionId, ExecutionTransition] = {}
        before = self._stored
        for _ in range(MAX_ATTEMPTS):
            if not pending:
                break
            transitions = [(after, before[key].status) for key, after in pending.items()]
            stored = await self.tx.executions.transition_many(transitions)
            done |= {key: (pending.pop(key), before[key].status) for key in list(pending) if key in stored}
            if pending:
                before = {one.execution_id: one for one in await self.tx.executions.list_by_ids(set(pending))}
                pending = {
                    key: self._rebase(after, before[key])
                    for key, after in pending.items()
                    if self._can_transition(after, before.get(key))
                }
        return done

    def _can_transition(self, after: Execution, current: Execution | None) -> bool:
        allowed = current is not None and can_report(current, after.status)
        self.ignored["late"] += not allowed
        return allowed

    @staticmethod
    def _rebase(after: Execution, current: Execution) -> Execution:
        return replace(current, status=after.status, result=after.result, finished_ms=after.finished_ms)


def _with_correction(event: DomainEvent, transition: ExecutionTransition) -> DomainEvent:
    """The event of a result; it says so when it replaces an end that was told before."""
    after, before = transition
    if not before.is_final:
        return event
    description = event.description.replace(after.status.value, f"{after.status.value} instead of {before.value}", 1)
    return replace(event, description=description, data={**event.data, "correctedFrom": before.value})
