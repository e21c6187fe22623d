"""What the reports of one batch come to: decided in memory, one after the other, and written down together.

Everything the reports name is looked up once. Each of them sees what those before it have changed, and at the end each execution
is moved once, from the status it had to the last one it got, and each relay set once. A move that another writer has overtaken
(the dispatcher's own mark) is tried again from where the execution then stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Protocol

from domain.commands.model import ALLOWED_TRANSITIONS, Execution, ExecutionStatus
from domain.commands.ports import ExecutionWaiter, HasExecutions
from domain.devices.model import Device
from domain.devices.ports import HasDevices
from domain.kernel.domain_events import DomainEvent, Json
from domain.kernel.ids import DeviceId, ExecutionId
from domain.kernel.unit_of_work import Transaction

MAX_ATTEMPTS = 3
"""The dispatcher may write SENT while we decide; each status can only move forward, so three tries always suffice."""


class ReportTx(Transaction, HasDevices, HasExecutions, Protocol): ...


class ExecutionChanges:
    def __init__(self, tx: ReportTx, known: Sequence[Execution]) -> None:
        self.tx = tx
        self._stored = {execution.execution_id: execution for execution in known}
        self._current = dict(self._stored)
        self._relay_states: dict[DeviceId, bool | None] = {}
        self._changed_relays: dict[DeviceId, bool] = {}
        self._events: list[tuple[DomainEvent, ExecutionId | None]] = []
        """Each with the execution whose move it tells of, where it does."""
        self.ignored: Counter[str] = Counter()

    @classmethod
    async def load(cls, tx: ReportTx, named: Collection[ExecutionId]) -> ExecutionChanges:
        return cls(tx, await tx.executions.list_by_ids(named) if named else ())

    def get(self, execution_id: ExecutionId) -> Execution | None:
        """As it stands after the reports so far."""
        return self._current.get(execution_id)

    async def list_open_by_device(self, device: Device) -> Sequence[Execution]:
        """QUEUED and SENT ones of the device as they stand now, oldest first."""
        found = await self.tx.executions.list_open_by_device(device.device_id)
        for execution in found:
            self._stored.setdefault(execution.execution_id, execution)
            self._current.setdefault(execution.execution_id, execution)
        return [self._current[execution.execution_id] for execution in found]

    def set_relay(self, device: Device, relay: bool) -> bool:
        """True when that is a change."""
        if self._relay_states.setdefault(device.device_id, device.relay) is relay:
            return False
        self._relay_states[device.device_id] = self._changed_relays[device.device_id] = relay
        return True

    def transition(self, execution: Execution, status: ExecutionStatus, result: Json, at_ms: int) -> Execution | None:
        """The execution after it; None when it has gone further already."""
        present = self._current[execution.execution_id]
        if status not in ALLOWED_TRANSITIONS[present.status]:
            self.ignored["duplicate" if present.status is status else "late"] += 1
            return None
        after = replace(present, status=status, result=result, finished_ms=at_ms if status.is_final else None)
        self._current[execution.execution_id] = after
        return after

    def add_event(self, fact: DomainEvent, of: ExecutionId | None = None) -> None:
        self._events.append((fact, of))

    async def write(self, outcomes: ExecutionWaiter) -> None:
        """All of it, in the transaction."""
        if self._changed_relays:
            await self.tx.devices.set_relay_many(self._changed_relays)
        moved = await self._transition_all()
        for fact, of in self._events:
            if of is None or of in moved:
                await self.tx.emit(fact)
        ended = [one for one in moved.values() if one.status.is_final]

        def announce() -> None:
            for execution in ended:
                outcomes.notify(execution)

        if ended:
            self.tx.after_commit(announce)

    async def _transition_all(self) -> dict[ExecutionId, Execution]:
        left = {key: after for key, after in self._current.items() if after is not self._stored[key]}
        done: dict[ExecutionId, Execution] = {}
        before = self._stored
        for _ in range(MAX_ATTEMPTS):
            if not left:
                break
            moves = [(after, before[key].status) for key, after in left.items()]
            moved = await self.tx.executions.transition_many(moves)
            done |= {key: left.pop(key) for key in list(left) if key in moved}
            if left:
                before = {one.execution_id: one for one in await self.tx.executions.list_by_ids(set(left))}
                left = {
                    key: self._rebase(after, before[key])
                    for key, after in left.items()
                    if self._can_transition(after, before.get(key))
                }
        return done

    def _can_transition(self, after: Execution, present: Execution | None) -> bool:
        may = present is not None and after.status in ALLOWED_TRANSITIONS[present.status]
        self.ignored["late"] += not may
        return may

    @staticmethod
    def _rebase(after: Execution, present: Execution) -> Execution:
        return replace(present, status=after.status, result=after.result, finished_ms=after.finished_ms)
