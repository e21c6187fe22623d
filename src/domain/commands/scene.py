"""What the reports of one batch come to: decided in memory, one after the other, and written down together.

Everything the reports name is looked up once. Each of them sees what those before it have changed, and at the end each execution
is moved once, from the status it had to the last one it got, and each relay set once. A move that another writer has overtaken
(the dispatcher's own mark) is tried again from where the execution then stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from domain.commands.model import FOLLOWS, Execution, ExecutionStatus
from domain.commands.ports import CommandsTx, Outcomes
from domain.devices.model import Device
from domain.kernel.facts import Fact, Json
from domain.kernel.ids import DeviceId, ExecutionId

TRIES = 3
"""The dispatcher may write SENT while we decide; each status can only move forward, so three tries always suffice."""


class Scene:
    def __init__(self, tx: CommandsTx, known: Sequence[Execution]) -> None:
        self.tx = tx
        self._before = {execution.execution_id: execution for execution in known}
        self._now = dict(self._before)
        self._relays: dict[DeviceId, bool | None] = {}
        self._set: dict[DeviceId, bool] = {}
        self._facts: list[tuple[Fact, ExecutionId | None]] = []
        """Each with the execution whose move it tells of, where it does."""
        self.ignored: Counter[str] = Counter()

    @classmethod
    async def of(cls, tx: CommandsTx, named: Collection[ExecutionId]) -> Scene:
        return cls(tx, await tx.executions.find_all(named) if named else ())

    def execution(self, execution_id: ExecutionId) -> Execution | None:
        """As it stands after the reports so far."""
        return self._now.get(execution_id)

    async def open_of(self, device: Device) -> Sequence[Execution]:
        """QUEUED and SENT ones of the device as they stand now, oldest first."""
        found = await self.tx.executions.open_of(device.device_id)
        for execution in found:
            self._before.setdefault(execution.execution_id, execution)
            self._now.setdefault(execution.execution_id, execution)
        return [self._now[execution.execution_id] for execution in found]

    def switch(self, device: Device, relay: bool) -> bool:
        """True when that is a change."""
        if self._relays.setdefault(device.device_id, device.relay) is relay:
            return False
        self._relays[device.device_id] = self._set[device.device_id] = relay
        return True

    def move(self, execution: Execution, status: ExecutionStatus, result: Json, at_ms: int) -> Execution | None:
        """The execution after it; None when it has gone further already."""
        present = self._now[execution.execution_id]
        if status not in FOLLOWS[present.status]:
            self.ignored["duplicate" if present.status is status else "late"] += 1
            return None
        after = replace(present, status=status, result=result, finished_ms=at_ms if status.is_final else None)
        self._now[execution.execution_id] = after
        return after

    def tell(self, fact: Fact, of: ExecutionId | None = None) -> None:
        self._facts.append((fact, of))

    async def write(self, outcomes: Outcomes) -> None:
        """All of it, in the transaction."""
        if self._set:
            await self.tx.devices.set_relays(self._set)
        moved = await self._move_all()
        for fact, of in self._facts:
            if of is None or of in moved:
                await self.tx.record(fact)
        ended = [one for one in moved.values() if one.status.is_final]

        def announce() -> None:
            for execution in ended:
                outcomes.announce(execution)

        if ended:
            self.tx.after_commit(announce)

    async def _move_all(self) -> dict[ExecutionId, Execution]:
        left = {key: after for key, after in self._now.items() if after is not self._before[key]}
        done: dict[ExecutionId, Execution] = {}
        before = self._before
        for _ in range(TRIES):
            if not left:
                break
            moves = [(after, before[key].status) for key, after in left.items()]
            moved = await self.tx.executions.advance_all(moves)
            done |= {key: left.pop(key) for key in list(left) if key in moved}
            if left:
                before = {one.execution_id: one for one in await self.tx.executions.find_all(set(left))}
                left = {key: self._again(after, before[key]) for key, after in left.items() if self._may(after, before.get(key))}
        return done

    def _may(self, after: Execution, present: Execution | None) -> bool:
        may = present is not None and after.status in FOLLOWS[present.status]
        self.ignored["late"] += not may
        return may

    @staticmethod
    def _again(after: Execution, present: Execution) -> Execution:
        return replace(present, status=after.status, result=after.result, finished_ms=after.finished_ms)
