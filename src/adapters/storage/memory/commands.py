"""Command definitions and executions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from adapters.storage import refusals
from adapters.storage.memory.shelves import Book, Shelf
from domain.commands.model import Definition, Execution, ExecutionStatus
from domain.commands.ports import Move
from domain.kernel.ids import AccountId, CommandId, DeviceId, DeviceTypeId, ExecutionId

DEFINITIONS: Shelf[CommandId, Definition] = Shelf("definitions")
EXECUTIONS: Shelf[ExecutionId, Execution] = Shelf("executions")


class MemoryDefinitions:
    def __init__(self, book: Book) -> None:
        self._book = book

    async def add(self, definition: Definition) -> None:
        self._put(definition)

    async def get(self, account_id: AccountId, command_id: CommandId) -> Definition | None:
        definition = self._book.rows(DEFINITIONS).get(command_id)
        return definition if definition is not None and definition.account_id == account_id else None

    async def held(self, account_id: AccountId, command_id: CommandId) -> Definition | None:
        return await self.get(account_id, command_id)

    async def of_device(self, device_id: DeviceId) -> Sequence[Definition]:
        return [d for d in self._book.rows(DEFINITIONS).values() if d.device_id == device_id]

    async def of_type(self, device_type_id: DeviceTypeId) -> Sequence[Definition]:
        return [d for d in self._book.rows(DEFINITIONS).values() if d.device_type_id == device_type_id]

    async def of_all(
        self, device_ids: Collection[DeviceId], type_ids: Collection[DeviceTypeId]
    ) -> Sequence[Definition]:
        rows = self._book.rows(DEFINITIONS).values()
        return [d for d in rows if d.device_id in device_ids or d.device_type_id in type_ids]

    async def save(self, definition: Definition) -> None:
        if definition.command_id in self._book.rows(DEFINITIONS):
            self._put(definition)

    async def delete(self, command_id: CommandId) -> None:
        self._book.drop(DEFINITIONS, [command_id])

    def _put(self, definition: Definition) -> None:
        if definition.command_id is None:
            raise ValueError("a built-in command is not stored")
        place = (definition.device_id, definition.device_type_id, definition.name)
        for other in self._book.rows(DEFINITIONS).values():
            taken = (other.device_id, other.device_type_id, other.name)
            if taken == place and other.command_id != definition.command_id:
                raise refusals.command_exists()
        self._book.edit(DEFINITIONS)[definition.command_id] = definition


class MemoryExecutions:
    def __init__(self, book: Book) -> None:
        self._book = book

    async def add(self, execution: Execution) -> Execution:
        stored = replace(execution, seq=self._book.next("execution_seq"))
        self._book.edit(EXECUTIONS)[execution.execution_id] = stored
        return stored

    async def add_all(self, executions: Sequence[Execution]) -> None:
        for execution in executions:
            await self.add(execution)

    async def get(self, account_id: AccountId, execution_id: ExecutionId) -> Execution | None:
        execution = self._book.rows(EXECUTIONS).get(execution_id)
        return execution if execution is not None and execution.account_id == account_id else None

    async def find(self, execution_id: ExecutionId) -> Execution | None:
        return self._book.rows(EXECUTIONS).get(execution_id)

    async def find_all(self, execution_ids: Collection[ExecutionId]) -> Sequence[Execution]:
        rows = self._book.rows(EXECUTIONS)
        return [rows[execution_id] for execution_id in set(execution_ids) if execution_id in rows]

    async def advance_all(self, moves: Sequence[Move]) -> Collection[ExecutionId]:
        return {after.execution_id for after, expected in moves if await self.advance(after, expected)}

    async def open_counts(self, device_ids: Collection[DeviceId]) -> Mapping[DeviceId, int]:
        open_ = (ExecutionStatus.QUEUED, ExecutionStatus.SENT)
        return Counter(e.device_id for e in self._all() if e.device_id in device_ids and e.status in open_)

    async def advance(self, execution: Execution, expected: ExecutionStatus) -> bool:
        rows = self._book.edit(EXECUTIONS)
        stored = rows.get(execution.execution_id)
        if stored is None or stored.status is not expected:
            return False
        rows[execution.execution_id] = replace(
            stored,
            status=execution.status,
            expires_ms=execution.expires_ms,
            sent_ms=execution.sent_ms,
            finished_ms=execution.finished_ms,
            result=execution.result,
        )
        return True

    async def open_of(self, device_id: DeviceId) -> Sequence[Execution]:
        open_ = (ExecutionStatus.QUEUED, ExecutionStatus.SENT)
        return [e for e in self._all() if e.device_id == device_id and e.status in open_]

    async def open_of_all(self, device_ids: Collection[DeviceId]) -> Mapping[DeviceId, Sequence[Execution]]:
        found = {device_id: await self.open_of(device_id) for device_id in device_ids}
        return {device_id: open_ for device_id, open_ in found.items() if open_}

    async def queued(self, limit: int, after_seq: int = 0) -> Sequence[Execution]:
        return [e for e in self._all() if e.status is ExecutionStatus.QUEUED and e.seq > after_seq][:limit]

    async def overdue(self, now_ms: int, limit: int) -> Sequence[Execution]:
        due = [e for e in self._all() if not e.status.is_final and e.expires_ms <= now_ms]
        return sorted(due, key=lambda execution: (execution.expires_ms, execution.seq))[:limit]

    async def next_expiry_ms(self) -> int | None:
        return min((e.expires_ms for e in self._all() if not e.status.is_final), default=None)

    async def page(self, device_id: DeviceId, *, limit: int, before_seq: int | None = None) -> Sequence[Execution]:
        mine = [e for e in self._all() if e.device_id == device_id and (before_seq is None or e.seq < before_seq)]
        return mine[::-1][:limit]

    async def forget_before(self, created_ms: int, limit: int) -> int:
        old = [e.execution_id for e in self._all() if e.status.is_final and e.created_ms < created_ms]
        return self._book.drop(EXECUTIONS, old[:limit])

    def _all(self) -> list[Execution]:
        return list(self._book.rows(EXECUTIONS).values())
