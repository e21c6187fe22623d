"""Command definitions and executions. An execution moves on only from the status its caller saw."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from sqlalchemy import BindParameter, Text, TextClause, bindparam, delete, func, insert, or_, select, text, update

from adapters.storage import refusals
from adapters.storage.sql.pouring import inserting
from adapters.storage.sql.repositories.sessions import forgetting
from adapters.storage.sql.rows import JSON, Mapper, held, listed, to_json, word
from adapters.storage.sql.session import POSTGRES, SQLITE, Session, Taken
from adapters.storage.sql.tables import definitions, executions
from adapters.storage.sql.tables.fleet import FINISHED, OPEN, QUEUED, UNFINISHED
from domain.commands.model import CommandKind, Definition, Execution, ExecutionStatus, Shape, TriggeredBy
from domain.commands.ports import Move
from domain.kernel.ids import AccountId, CommandId, DeviceId, DeviceTypeId, ExecutionId

DEFINITION = Mapper(
    definitions, Definition, {"kind": word(CommandKind), "shape": word(Shape), "params_schema": JSON}
)
EXECUTION = Mapper(
    executions,
    Execution,
    {"params": JSON, "result": JSON, "status": word(ExecutionStatus), "source": word(TriggeredBy)},
    always=("params", "result"),
)

_COMMAND = definitions.c.command_id == bindparam("at_id")
ADD_DEFINITION = insert(definitions)
GET_DEFINITION = DEFINITION.select().where(_COMMAND, definitions.c.account_id == bindparam("at_account"))
HELD_DEFINITION = held(GET_DEFINITION)
OF_DEVICE = DEFINITION.select().where(definitions.c.device_id == bindparam("at_id")).order_by(definitions.c.seq)
OF_TYPE = DEFINITION.select().where(definitions.c.device_type_id == bindparam("at_id")).order_by(definitions.c.seq)
OF_ALL = {
    dialect: DEFINITION.select()
    .where(or_(definitions.c.device_id.in_(among), definitions.c.device_type_id.in_(listed("at_types")[dialect])))
    .order_by(definitions.c.seq)
    for dialect, among in listed().items()
}
SAVE_DEFINITION = update(definitions).where(_COMMAND)
DELETE_DEFINITION = delete(definitions).where(_COMMAND)

x = executions.c
_ID = x.execution_id == bindparam("at_id")
_LIMIT: BindParameter[int] = bindparam("at_limit")
_DEVICE = x.device_id == bindparam("at_device")

ADD = insert(executions).returning(x.seq)
_ADDED = [name for name in EXECUTION.names if name != "seq"]
ADD_ALL = inserting(executions, _ADDED, json=("params", "result"))
_added_row = attrgetter(*_ADDED)
GET = EXECUTION.select().where(_ID, x.account_id == bindparam("at_account"))
FIND = EXECUTION.select().where(_ID)
FIND_ALL = {dialect: EXECUTION.select().where(x.execution_id.in_(among)) for dialect, among in listed().items()}
ADVANCE = update(executions).where(_ID, x.status == bindparam("at_status")).returning(x.seq)
_SET = ("status", "expires_ms", "sent_ms", "finished_ms", "result")


def _advance_all(rows: str, field: str) -> TextClause:
    """Moves come as one JSON array of objects, so that many are one statement."""
    values = ", ".join(f"{name} = {field.format(name)}" for name in _SET)
    return text(
        f"UPDATE executions SET {values} FROM {rows} WHERE executions.execution_id = {field.format('id')} "  # noqa: S608
        f"AND executions.status = {field.format('expected')} RETURNING executions.execution_id"
    ).bindparams(bindparam("at_rows", type_=Text()))


ADVANCE_ALL = {
    SQLITE: _advance_all("json_each(:at_rows)", "json_each.value ->> '{}'"),
    POSTGRES: _advance_all(
        "json_to_recordset(CAST(:at_rows AS json)) AS r(id text, expected text, status text, expires_ms bigint, "
        "sent_ms bigint, finished_ms bigint, result text)",
        "r.{}",
    ),
}
OPEN_COUNTS = {
    dialect: select(x.device_id, func.count()).where(x.device_id.in_(among), OPEN).group_by(x.device_id)
    for dialect, among in listed().items()
}
OPEN_OF = EXECUTION.select().where(_DEVICE, OPEN).order_by(x.seq)
OPEN_OF_ALL = {dialect: EXECUTION.select().where(x.device_id.in_(among), OPEN) for dialect, among in listed().items()}
ALL_QUEUED = EXECUTION.select().where(QUEUED, x.seq > bindparam("at_after")).order_by(x.seq).limit(_LIMIT)
OVERDUE = (
    EXECUTION.select()
    .where(UNFINISHED, x.expires_ms <= bindparam("at_now"))
    .order_by(x.expires_ms, x.seq)
    .limit(_LIMIT)
)
NEXT_EXPIRY = select(func.min(x.expires_ms)).where(UNFINISHED)
PAGE = EXECUTION.select().where(_DEVICE).order_by(x.seq.desc()).limit(_LIMIT)
PAGE_BEFORE = PAGE.where(x.seq < bindparam("at_before"))
FORGET = forgetting(executions, FINISHED & (x.created_ms < bindparam("at_before")), x.created_ms)


class SqlDefinitions:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def add(self, definition: Definition) -> None:
        if definition.command_id is None:
            raise ValueError("a built-in command is not stored")
        try:
            await self._session.write(ADD_DEFINITION, **DEFINITION.values(definition))
        except Taken:
            raise refusals.command_exists() from None

    async def get(self, account_id: AccountId, command_id: CommandId) -> Definition | None:
        return DEFINITION.maybe(await self._session.read(GET_DEFINITION, at_id=command_id, at_account=account_id))

    async def held(self, account_id: AccountId, command_id: CommandId) -> Definition | None:
        return DEFINITION.maybe(
            await self._session.read(HELD_DEFINITION[self._session.writable], at_id=command_id, at_account=account_id)
        )

    async def of_device(self, device_id: DeviceId) -> Sequence[Definition]:
        return [DEFINITION.of(row) for row in await self._session.read(OF_DEVICE, at_id=device_id)]

    async def of_type(self, device_type_id: DeviceTypeId) -> Sequence[Definition]:
        return [DEFINITION.of(row) for row in await self._session.read(OF_TYPE, at_id=device_type_id)]

    async def of_all(
        self, device_ids: Collection[DeviceId], type_ids: Collection[DeviceTypeId]
    ) -> Sequence[Definition]:
        among = {"at_listed": to_json(sorted(device_ids)), "at_types": to_json(sorted(type_ids))}
        rows = await self._session.read(OF_ALL[self._session.dialect], **among)
        return [DEFINITION.of(row) for row in rows]

    async def save(self, definition: Definition) -> None:
        values = DEFINITION.values(definition, "command_id", "account_id", "created_ms")
        try:
            await self._session.write(SAVE_DEFINITION, at_id=definition.command_id, **values)
        except Taken:
            raise refusals.command_exists() from None

    async def delete(self, command_id: CommandId) -> None:
        await self._session.write(DELETE_DEFINITION, at_id=command_id)


def _moved(after: Execution, expected: ExecutionStatus) -> dict[str, object]:
    return {
        "id": after.execution_id,
        "expected": expected.value,
        "status": after.status.value,
        "expires_ms": after.expires_ms,
        "sent_ms": after.sent_ms,
        "finished_ms": after.finished_ms,
        "result": to_json(after.result),
    }


class SqlExecutions:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def add(self, execution: Execution) -> Execution:
        rows = await self._session.write(ADD, **EXECUTION.values(execution, "seq"))
        return replace(execution, seq=rows[0][0])

    async def add_all(self, executions: Sequence[Execution]) -> None:
        await self._session.pour(ADD_ALL, list(map(_added_row, executions)))

    async def get(self, account_id: AccountId, execution_id: ExecutionId) -> Execution | None:
        return EXECUTION.maybe(await self._session.read(GET, at_id=execution_id, at_account=account_id))

    async def find(self, execution_id: ExecutionId) -> Execution | None:
        return EXECUTION.maybe(await self._session.read(FIND, at_id=execution_id))

    async def find_all(self, execution_ids: Collection[ExecutionId]) -> Sequence[Execution]:
        if not execution_ids:
            return []
        rows = await self._session.read(FIND_ALL[self._session.dialect], at_listed=to_json(sorted(set(execution_ids))))
        return [EXECUTION.of(row) for row in rows]

    async def advance_all(self, moves: Sequence[Move]) -> Collection[ExecutionId]:
        """By id, so that two that move the same ones do not wait for each other crosswise."""
        if not moves:
            return ()
        rows = sorted((_moved(after, expected) for after, expected in moves), key=lambda row: str(row["id"]))
        moved = await self._session.write(ADVANCE_ALL[self._session.dialect], at_rows=to_json(rows))
        return {row[0] for row in moved}

    async def open_counts(self, device_ids: Collection[DeviceId]) -> Mapping[DeviceId, int]:
        among = to_json(sorted(set(device_ids)))
        rows = await self._session.read(OPEN_COUNTS[self._session.dialect], at_listed=among)
        return {row[0]: row[1] for row in rows}

    async def advance(self, execution: Execution, expected: ExecutionStatus) -> bool:
        rows = await self._session.write(
            ADVANCE,
            at_id=execution.execution_id,
            at_status=expected.value,
            status=execution.status.value,
            expires_ms=execution.expires_ms,
            sent_ms=execution.sent_ms,
            finished_ms=execution.finished_ms,
            result=JSON[0](execution.result),
        )
        return bool(rows)

    async def open_of(self, device_id: DeviceId) -> Sequence[Execution]:
        return [EXECUTION.of(row) for row in await self._session.read(OPEN_OF, at_device=device_id)]

    async def open_of_all(self, device_ids: Collection[DeviceId]) -> Mapping[DeviceId, Sequence[Execution]]:
        among = to_json(sorted(set(device_ids)))
        rows = await self._session.read(OPEN_OF_ALL[self._session.dialect], at_listed=among)
        found: dict[DeviceId, list[Execution]] = {}
        for execution in sorted(map(EXECUTION.of, rows), key=lambda execution: execution.seq):
            found.setdefault(execution.device_id, []).append(execution)
        return found

    async def queued(self, limit: int, after_seq: int = 0) -> Sequence[Execution]:
        rows = await self._session.read(ALL_QUEUED, at_after=after_seq, at_limit=limit)
        return [EXECUTION.of(row) for row in rows]

    async def overdue(self, now_ms: int, limit: int) -> Sequence[Execution]:
        return [EXECUTION.of(row) for row in await self._session.read(OVERDUE, at_now=now_ms, at_limit=limit)]

    async def next_expiry_ms(self) -> int | None:
        found: int | None = (await self._session.read(NEXT_EXPIRY))[0][0]
        return found

    async def page(self, device_id: DeviceId, *, limit: int, before_seq: int | None = None) -> Sequence[Execution]:
        if before_seq is None:
            rows = await self._session.read(PAGE, at_device=device_id, at_limit=limit)
        else:
            rows = await self._session.read(PAGE_BEFORE, at_device=device_id, at_limit=limit, at_before=before_seq)
        return [EXECUTION.of(row) for row in rows]

    async def forget_before(self, created_ms: int, limit: int) -> int:
        return len(await self._session.write(FORGET, at_before=created_ms, at_limit=limit))
