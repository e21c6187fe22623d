"""Command definitions and executions. An execution changes status only if it still has the status that its caller read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter

from sqlalchemy import BindParameter, Text, TextClause, bindparam, case, func, or_, select, text, update

from adapters.storage.conflict_error_factories import command_exists_error
from adapters.storage.sql.bulk_statements import bulk_insert
from adapters.storage.sql.entity_repository import EntityStatements, SqlRepository, SqlStoredEntityRepository
from adapters.storage.sql.row_mapper import JSON, RowMapper, enum_converter, to_json
from adapters.storage.sql.sql_session_port import POSTGRES, SQLITE
from adapters.storage.sql.statement_builders import delete_batch, for_update, listed
from adapters.storage.sql.tables import definitions, devices, executions
from adapters.storage.sql.tables.commands import FINISHED, OPEN, QUEUED, UNFINISHED
from domain.commands.model import CommandDefinition, CommandKind, CommandWidget, Execution, ExecutionStatus, TriggeredBy
from domain.commands.ports import ExecutionTransition
from domain.kernel.ids import AccountId, CommandId, DeviceId, DeviceTypeId, ExecutionId

DEFINITION = RowMapper(
    definitions,
    CommandDefinition,
    {"kind": enum_converter(CommandKind), "shape": enum_converter(CommandWidget), "params_schema": JSON},
)
EXECUTION = RowMapper(
    executions,
    Execution,
    {"params": JSON, "result": JSON, "status": enum_converter(ExecutionStatus), "source": enum_converter(TriggeredBy)},
    always=("params", "result"),
)

d = definitions.c
DEFINITIONS = EntityStatements(
    DEFINITION, "command_id", unchanged=("account_id", "created_ms"), exists_error=lambda _: command_exists_error()
)
GET_DEFINITION_FOR_UPDATE = for_update(DEFINITIONS.get[False].where(d.account_id == bindparam("at_account")))
LIST_BY_DEVICE = DEFINITION.select().where(d.device_id == bindparam("at_id")).order_by(d.seq)
LIST_BY_TYPE = DEFINITION.select().where(d.device_type_id == bindparam("at_id")).order_by(d.seq)
LIST_BY_DEVICES_AND_TYPES = (
    DEFINITION.select().where(or_(d.device_id.in_(listed()), d.device_type_id.in_(listed("at_types")))).order_by(d.seq)
)

x = executions.c
_ID = x.execution_id == bindparam("at_id")
_LIMIT: BindParameter[int] = bindparam("at_limit")
_DEVICE = x.device_id == bindparam("at_device")

_INSERT_COLUMNS = [name for name in EXECUTION.names if name != "seq"]
ADD_MANY = bulk_insert(executions, _INSERT_COLUMNS, json=("params", "result"))
_insert_values = attrgetter(*_INSERT_COLUMNS)
GET = EXECUTION.select().where(_ID, x.account_id == bindparam("at_account"))
FIND = EXECUTION.select().where(_ID)
LIST_BY_IDS = EXECUTION.select().where(x.execution_id.in_(listed()))
_TRANSITION_COLUMNS = ("status", "expires_ms", "sent_ms", "finished_ms", "result")


def _transition_many(rows: str, field: str, returning: str = " RETURNING executions.execution_id") -> TextClause:
    """One statement for many transitions, which are one JSON array of objects."""
    values = ", ".join(f"{name} = {field.format(name)}" for name in _TRANSITION_COLUMNS)
    return text(
        f"UPDATE executions SET {values} FROM {rows} WHERE executions.execution_id = {field.format('id')} "  # noqa: S608
        f"AND executions.status = {field.format('expected')}{returning}"
    ).bindparams(bindparam("at_rows", type_=Text()))


_TRANSITION_ROWS = {
    SQLITE: ("json_each(:at_rows)", "json_each.value ->> '{}'"),
    POSTGRES: (
        "json_to_recordset(CAST(:at_rows AS json)) AS r(id text, expected text, status text, expires_ms bigint, "
        "sent_ms bigint, finished_ms bigint, result text)",
        "r.{}",
    ),
}
TRANSITION_MANY = {dialect: _transition_many(*rows) for dialect, rows in _TRANSITION_ROWS.items()}
RECORD_MANY = {dialect: _transition_many(*rows, returning="") for dialect, rows in _TRANSITION_ROWS.items()}
COUNT_OPEN_BY_DEVICE = select(x.device_id, func.count()).where(x.device_id.in_(listed()), OPEN).group_by(x.device_id)
_MARK_POSSIBLY_SENT = update(executions).where(QUEUED, x.sent_ms.is_(None)).returning(x.execution_id)
_ONLINE_DEVICES = select(devices.c.device_id).where(devices.c.is_online)
MARK_POSSIBLY_SENT = _MARK_POSSIBLY_SENT.where(x.device_id.in_(_ONLINE_DEVICES))
MARK_POSSIBLY_SENT_BY_DEVICES = _MARK_POSSIBLY_SENT.where(x.device_id.in_(listed()))
LIST_OPEN_BY_DEVICE = EXECUTION.select().where(_DEVICE, OPEN).order_by(x.seq)
LIST_OPEN_BY_DEVICES = EXECUTION.select().where(x.device_id.in_(listed()), OPEN)
LIST_QUEUED = EXECUTION.select().where(QUEUED, x.seq > bindparam("at_after")).order_by(x.seq).limit(_LIMIT)
LIST_EXPIRED = (
    EXECUTION.select().where(UNFINISHED, x.expires_ms <= bindparam("at_now")).order_by(x.expires_ms, x.seq).limit(_LIMIT)
)
_TTL_MS = x.expires_ms - x.created_ms
_SHIFTED_MS = x.expires_ms + bindparam("at_step", type_=x.expires_ms.type)
_LATEST_MS = bindparam("at_now", type_=x.expires_ms.type) + _TTL_MS
SHIFT_EXPIRY = (
    update(executions)
    .where(UNFINISHED, or_(x.created_ms < bindparam("at_unshifted"), x.created_ms > bindparam("at_now")))
    .values(expires_ms=case((_SHIFTED_MS > _LATEST_MS, _LATEST_MS), else_=_SHIFTED_MS))
)
NEXT_EXPIRY = select(func.min(x.expires_ms)).where(UNFINISHED)
PAGE = EXECUTION.select().where(_DEVICE).order_by(x.seq.desc()).limit(_LIMIT)
PAGE_BEFORE = PAGE.where(x.seq < bindparam("at_before"))
DELETE_OLDER_THAN = delete_batch(executions, FINISHED & (x.created_ms < bindparam("at_before")), x.created_ms)


class SqlCommandDefinitionRepository(SqlStoredEntityRepository[CommandDefinition]):
    statements = DEFINITIONS

    async def get_for_update(self, account_id: AccountId, command_id: CommandId) -> CommandDefinition | None:
        statement = GET_DEFINITION_FOR_UPDATE[self._session.writable]
        return await self._first(DEFINITION, statement, at_id=command_id, at_account=account_id)

    async def add(self, entity: CommandDefinition) -> None:
        if entity.command_id is None:
            raise ValueError("a built-in command is not stored")
        await super().add(entity)

    async def list_by_device(self, device_id: DeviceId) -> Sequence[CommandDefinition]:
        return await self._list(DEFINITION, LIST_BY_DEVICE, at_id=device_id)

    async def list_by_device_type(self, device_type_id: DeviceTypeId) -> Sequence[CommandDefinition]:
        return await self._list(DEFINITION, LIST_BY_TYPE, at_id=device_type_id)

    async def list_by_devices_and_types(
        self, device_ids: Collection[DeviceId], type_ids: Collection[DeviceTypeId]
    ) -> Sequence[CommandDefinition]:
        among = {"at_listed": to_json(sorted(device_ids)), "at_types": to_json(sorted(type_ids))}
        return await self._list(DEFINITION, LIST_BY_DEVICES_AND_TYPES, **among)


def _transition_rows(moves: Sequence[ExecutionTransition]) -> str:
    rows = [_transition_row(after, expected) for after, expected in moves]
    return to_json(sorted(rows, key=lambda row: str(row["id"])))


def _transition_row(after: Execution, expected: ExecutionStatus) -> dict[str, object]:
    return {
        "id": after.execution_id,
        "expected": expected.value,
        "status": after.status.value,
        "expires_ms": after.expires_ms,
        "sent_ms": after.sent_ms,
        "finished_ms": after.finished_ms,
        "result": to_json(after.result),
    }


class SqlCommandExecutionRepository(SqlRepository):
    async def add_many(self, executions: Sequence[Execution]) -> None:
        await self._session.bulk_write(ADD_MANY, list(map(_insert_values, executions)))

    async def get(self, account_id: AccountId, execution_id: ExecutionId) -> Execution | None:
        return await self._first(EXECUTION, GET, at_id=execution_id, at_account=account_id)

    async def find(self, execution_id: ExecutionId) -> Execution | None:
        return await self._first(EXECUTION, FIND, at_id=execution_id)

    async def list_by_ids(self, execution_ids: Collection[ExecutionId]) -> Sequence[Execution]:
        if not execution_ids:
            return []
        return await self._list(EXECUTION, LIST_BY_IDS, at_listed=to_json(sorted(set(execution_ids))))

    async def transition_many(self, moves: Sequence[ExecutionTransition]) -> Collection[ExecutionId]:
        """In the order of ids, so that two transactions with the same executions cannot deadlock."""
        if not moves:
            return ()
        moved = await self._session.write(TRANSITION_MANY[self._session.dialect], at_rows=_transition_rows(moves))
        return {row[0] for row in moved}

    async def record_many(self, moves: Sequence[ExecutionTransition]) -> None:
        rows = [{"at_rows": _transition_rows(moves)}] if moves else []
        await self._session.execute_many(RECORD_MANY[self._session.dialect], rows, defer=True)

    async def mark_possibly_sent(self, at_ms: int, device_ids: Collection[DeviceId] | None = None) -> int:
        if device_ids is None:
            return await self._count_changed(MARK_POSSIBLY_SENT, sent_ms=at_ms)
        return await self._count_changed(MARK_POSSIBLY_SENT_BY_DEVICES, sent_ms=at_ms, at_listed=to_json(sorted(device_ids)))

    async def count_open_by_device(self, device_ids: Collection[DeviceId]) -> Mapping[DeviceId, int]:
        rows = await self._session.read(COUNT_OPEN_BY_DEVICE, at_listed=to_json(sorted(set(device_ids))))
        return {row[0]: row[1] for row in rows}

    async def list_open_by_device(self, device_id: DeviceId) -> Sequence[Execution]:
        return await self._list(EXECUTION, LIST_OPEN_BY_DEVICE, at_device=device_id)

    async def list_open_by_devices(self, device_ids: Collection[DeviceId]) -> Mapping[DeviceId, Sequence[Execution]]:
        executions = await self._list(EXECUTION, LIST_OPEN_BY_DEVICES, at_listed=to_json(sorted(set(device_ids))))
        found: dict[DeviceId, list[Execution]] = {}
        for execution in sorted(executions, key=lambda execution: execution.seq):
            found.setdefault(execution.device_id, []).append(execution)
        return found

    async def list_queued(self, limit: int, after_seq: int = 0) -> Sequence[Execution]:
        return await self._list(EXECUTION, LIST_QUEUED, at_after=after_seq, at_limit=limit)

    async def list_expired(self, now_ms: int, limit: int) -> Sequence[Execution]:
        return await self._list(EXECUTION, LIST_EXPIRED, at_now=now_ms, at_limit=limit)

    async def next_expiry_ms(self) -> int | None:
        return await self._number_or_none(NEXT_EXPIRY)

    async def shift_expiry(self, step_ms: int, now_ms: int, unshifted_from_ms: int) -> None:
        await self._session.write(SHIFT_EXPIRY, at_step=step_ms, at_now=now_ms, at_unshifted=unshifted_from_ms)

    async def page(self, device_id: DeviceId, *, limit: int, before_seq: int | None = None) -> Sequence[Execution]:
        if before_seq is None:
            return await self._list(EXECUTION, PAGE, at_device=device_id, at_limit=limit)
        return await self._list(EXECUTION, PAGE_BEFORE, at_device=device_id, at_limit=limit, at_before=before_seq)

    async def delete_older_than(self, created_ms: int, limit: int) -> int:
        return await self._count_changed(DELETE_OLDER_THAN, at_before=created_ms, at_limit=limit)
