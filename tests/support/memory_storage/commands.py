"""Command definitions and executions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from adapters.storage.errors import command_exists_error
from domain.commands.model import CommandDefinition, Execution, ExecutionStatus
from domain.commands.ports import ExecutionTransition
from domain.kernel.clock import ANY_TIME, TimeSpan
from domain.kernel.cursors import Position
from domain.kernel.ids import AccountId, CommandId, DeviceId, DeviceTypeId, ExecutionId
from support.memory_storage.tables import Database, Table, newest_first

DEFINITIONS: Table[CommandId, CommandDefinition] = Table("definitions")
EXECUTIONS: Table[ExecutionId, Execution] = Table("executions")


class MemoryCommandDefinitionRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, definition: CommandDefinition) -> None:
        self._store(definition)

    async def get_for_update(self, account_id: AccountId, command_id: CommandId) -> CommandDefinition | None:
        definition = self._database.rows(DEFINITIONS).get(command_id)
        return definition if definition is not None and definition.account_id == account_id else None

    async def list_by_device(self, device_id: DeviceId) -> Sequence[CommandDefinition]:
        return [d for d in self._database.rows(DEFINITIONS).values() if d.device_id == device_id]

    async def list_by_device_type(self, device_type_id: DeviceTypeId) -> Sequence[CommandDefinition]:
        return [d for d in self._database.rows(DEFINITIONS).values() if d.device_type_id == device_type_id]

    async def list_by_devices_and_types(
        self, device_ids: Collection[DeviceId], type_ids: Collection[DeviceTypeId]
    ) -> Sequence[CommandDefinition]:
        rows = self._database.rows(DEFINITIONS).values()
        return [d for d in rows if d.device_id in device_ids or d.device_type_id in type_ids]

    async def save(self, definition: CommandDefinition) -> None:
        if definition.command_id in self._database.rows(DEFINITIONS):
            self._store(definition)

    async def delete(self, command_id: CommandId) -> None:
        self._database.delete(DEFINITIONS, [command_id])

    def _store(self, definition: CommandDefinition) -> None:
        if definition.command_id is None:
            raise ValueError("a built-in command is not stored")
        place = (definition.device_id, definition.device_type_id, definition.name)
        for other in self._database.rows(DEFINITIONS).values():
            taken = (other.device_id, other.device_type_id, other.name)
            if taken == place and other.command_id != definition.command_id:
                raise command_exists_error()
        self._database.writable_rows(DEFINITIONS)[definition.command_id] = definition


class MemoryExecutionRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_many(self, executions: Sequence[Execution]) -> None:
        for execution in executions:
            stored = replace(execution, seq=self._database.next_value("execution_seq"))
            self._database.writable_rows(EXECUTIONS)[execution.execution_id] = stored

    async def get(self, account_id: AccountId, execution_id: ExecutionId) -> Execution | None:
        execution = self._database.rows(EXECUTIONS).get(execution_id)
        return execution if execution is not None and execution.account_id == account_id else None

    async def find(self, execution_id: ExecutionId) -> Execution | None:
        return self._database.rows(EXECUTIONS).get(execution_id)

    async def list_by_ids(self, execution_ids: Collection[ExecutionId]) -> Sequence[Execution]:
        rows = self._database.rows(EXECUTIONS)
        return [rows[execution_id] for execution_id in set(execution_ids) if execution_id in rows]

    async def transition_many(self, moves: Sequence[ExecutionTransition]) -> Collection[ExecutionId]:
        return {after.execution_id for after, expected in moves if self._transition(after, expected)}

    async def record_many(self, moves: Sequence[ExecutionTransition]) -> None:
        await self.transition_many(moves)

    def _transition(self, execution: Execution, expected: ExecutionStatus) -> bool:
        rows = self._database.writable_rows(EXECUTIONS)
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

    async def mark_possibly_sent(self, at_ms: int, device_ids: Collection[DeviceId] | None = None) -> int:
        from support.memory_storage.devices import DEVICES  # which imports this module

        stored = self._database.rows(DEVICES).values()
        online = {device.device_id for device in stored if device.is_online} if device_ids is None else set(device_ids)
        marked = [e for e in self._all() if e.status is ExecutionStatus.QUEUED and e.sent_ms is None and e.device_id in online]
        for execution in marked:
            self._database.writable_rows(EXECUTIONS)[execution.execution_id] = replace(execution, sent_ms=at_ms)
        return len(marked)

    async def extend_sent(self, expires_ms: int) -> int:
        sent = [e for e in self._all() if not e.status.is_final and e.sent_ms is not None and e.expires_ms < expires_ms]
        for execution in sent:
            self._database.writable_rows(EXECUTIONS)[execution.execution_id] = replace(execution, expires_ms=expires_ms)
        return len(sent)

    async def count_open_by_device(self, device_ids: Collection[DeviceId]) -> Mapping[DeviceId, int]:
        open_ = (ExecutionStatus.QUEUED, ExecutionStatus.SENT)
        return Counter(e.device_id for e in self._all() if e.device_id in device_ids and e.status in open_)

    async def list_open_by_device(self, device_id: DeviceId) -> Sequence[Execution]:
        open_ = (ExecutionStatus.QUEUED, ExecutionStatus.SENT)
        return [e for e in self._all() if e.device_id == device_id and e.status in open_]

    async def list_open_by_devices(self, device_ids: Collection[DeviceId]) -> Mapping[DeviceId, Sequence[Execution]]:
        found = {device_id: await self.list_open_by_device(device_id) for device_id in device_ids}
        return {device_id: open_ for device_id, open_ in found.items() if open_}

    async def list_queued(self, limit: int, after_seq: int = 0) -> Sequence[Execution]:
        return [e for e in self._all() if e.status is ExecutionStatus.QUEUED and e.seq > after_seq][:limit]

    async def list_queued_by_account(self, account_id: AccountId, limit: int, after_seq: int = 0) -> Sequence[Execution]:
        queued = await self.list_queued(len(self._all()), after_seq)
        return [e for e in queued if e.account_id == account_id][:limit]

    async def list_expired(self, now_ms: int, limit: int) -> Sequence[Execution]:
        due = [e for e in self._all() if not e.status.is_final and e.expires_ms <= now_ms]
        return sorted(due, key=lambda execution: (execution.expires_ms, execution.seq))[:limit]

    async def next_expiry_ms(self) -> int | None:
        return min((e.expires_ms for e in self._all() if not e.status.is_final), default=None)

    async def shift_expiry(self, step_ms: int, now_ms: int, unshifted_from_ms: int) -> None:
        for execution in self._all():
            if not execution.status.is_final and not unshifted_from_ms <= execution.created_ms <= now_ms:
                latest_ms = now_ms + execution.expires_ms - execution.created_ms
                shifted = replace(execution, expires_ms=min(execution.expires_ms + step_ms, latest_ms))
                self._database.writable_rows(EXECUTIONS)[execution.execution_id] = shifted

    async def page(
        self, device_id: DeviceId, *, limit: int, before: Position | None = None, created: TimeSpan = ANY_TIME
    ) -> Sequence[Execution]:
        return newest_first([e for e in self._all() if e.device_id == device_id], limit, before, created)

    async def delete_older_than(self, created_ms: int, limit: int) -> int:
        old = [e.execution_id for e in self._all() if e.status.is_final and e.created_ms < created_ms]
        return self._database.delete(EXECUTIONS, old[:limit])

    def _all(self) -> list[Execution]:
        return list(self._database.rows(EXECUTIONS).values())
