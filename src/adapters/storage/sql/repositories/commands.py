"""Command definitions and executions. An execution changes status only if it still has the status that its caller read.

Everything that one command is decided by: the device, its command definitions, the number of open executions, the grants.

PostgreSQL reads it in one statement, because each statement of a writing transaction sees what others have committed by then. If
a device changed its type between two statements, it would be read with the old type and without its definitions, so without the
approvals that they require. One statement also saves three round trips.

Approvals. `decide_if_pending` is a compare-and-set on the row's status.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from itertools import chain, islice
from operator import attrgetter
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Select,
    Text,
    TextClause,
    and_,
    bindparam,
    case,
    cast,
    delete,
    func,
    literal_column,
    or_,
    select,
    text,
    update,
)

from adapters.storage.errors import command_exists_error
from adapters.storage.sql.mapping import (
    JSON,
    SHORT_TUPLE,
    AccountEntityStatements,
    EmbeddedDataclassColumns,
    EntityStatements,
    RowMapper,
    SqlAccountEntityRepository,
    SqlRepository,
    SqlStoredEntityRepository,
    enum_converter,
    from_json,
    to_json,
)
from adapters.storage.sql.repositories.devices import DEVICE
from adapters.storage.sql.repositories.devices import GET as GET_DEVICE
from adapters.storage.sql.repositories.devices import LIST_BY_IDS as LIST_DEVICES
from adapters.storage.sql.repositories.grants import GRANT, ON_PROJECT
from adapters.storage.sql.session import POSTGRES, SQLITE, Query, Row
from adapters.storage.sql.statements import (
    behind,
    bulk_insert,
    delete_batch,
    during,
    for_update,
    listed,
    page_start,
    position_parameters,
    without_none,
)
from adapters.storage.sql.tables import approvals, definitions, devices, executions, grants, group_members
from adapters.storage.sql.tables.commands import FINISHED, OPEN, PENDING_APPROVAL, QUEUED, UNFINISHED
from domain.approvals.model import Approval, ApprovalStatus, Requester
from domain.commands.model import (
    CommandContext,
    CommandDefinition,
    CommandKind,
    CommandWidget,
    Execution,
    ExecutionStatus,
    TriggeredBy,
)
from domain.commands.ports import ExecutionTransition
from domain.devices.model import Device
from domain.grants.model import GrantSubject
from domain.kernel.clock import ANY_TIME, TimeSpan
from domain.kernel.cursors import Position
from domain.kernel.ids import AccountId, CommandId, DeviceId, DeviceTypeId, ExecutionId, KeyId, MembershipId

DEFINITION = RowMapper(
    definitions,
    CommandDefinition,
    {"kind": enum_converter(CommandKind), "shape": enum_converter(CommandWidget), "params_schema": JSON, "channels": SHORT_TUPLE},
    always=("channels",),
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
GET = for_update(EXECUTION.select().where(_ID, x.account_id == bindparam("at_account")))
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
LIST_QUEUED_BY_ACCOUNT = LIST_QUEUED.where(x.account_id == bindparam("at_account"))
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
_UNTIL_MS = bindparam("at_until", type_=x.expires_ms.type)
EXTEND_SENT = (
    update(executions)
    .where(UNFINISHED, x.sent_ms.is_not(None), x.expires_ms < _UNTIL_MS)
    .values(expires_ms=_UNTIL_MS)
    .returning(x.execution_id)
)
PAGE = EXECUTION.select().where(_DEVICE).order_by(x.created_ms.desc(), x.seq.desc()).limit(_LIMIT)
PAGE_BEHIND = PAGE.where(behind(x.created_ms, x.seq, descending=True))
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
        return await self._first(EXECUTION, GET[self._session.locks_reads], at_id=execution_id, at_account=account_id)

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

    async def extend_sent(self, expires_ms: int) -> int:
        return await self._count_changed(EXTEND_SENT, at_until=expires_ms)

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

    async def list_queued_by_account(self, account_id: AccountId, limit: int, after_seq: int = 0) -> Sequence[Execution]:
        return await self._list(EXECUTION, LIST_QUEUED_BY_ACCOUNT, at_account=account_id, at_after=after_seq, at_limit=limit)

    async def list_expired(self, now_ms: int, limit: int) -> Sequence[Execution]:
        return await self._list(EXECUTION, LIST_EXPIRED, at_now=now_ms, at_limit=limit)

    async def next_expiry_ms(self) -> int | None:
        return await self._number_or_none(NEXT_EXPIRY)

    async def shift_expiry(self, step_ms: int, now_ms: int, unshifted_from_ms: int) -> None:
        await self._session.write(SHIFT_EXPIRY, at_step=step_ms, at_now=now_ms, at_unshifted=unshifted_from_ms)

    async def page(
        self, device_id: DeviceId, *, limit: int, before: Position | None = None, created: TimeSpan = ANY_TIME
    ) -> Sequence[Execution]:
        start, rest = page_start(before, created)
        statement, span = during(PAGE if start is None else PAGE_BEHIND, x.created_ms, rest)
        params = position_parameters(start or ())
        return await self._list(EXECUTION, statement, at_device=device_id, at_limit=limit, **params, **span)

    async def delete_older_than(self, created_ms: int, limit: int) -> int:
        return await self._count_changed(DELETE_OLDER_THAN, at_before=created_ms, at_limit=limit)


_DEVICE_ID: BindParameter[str] = bindparam("at_device")
_DEVICE_TYPE_ID = select(devices.c.device_type_id).where(devices.c.device_id == _DEVICE_ID).scalar_subquery()
_PROJECT_ID = select(devices.c.project_id).where(devices.c.device_id == _DEVICE_ID).scalar_subquery()

g = grants.c
APPLYING_DEFINITIONS = (
    DEFINITION.select().where(or_(d.device_id == _DEVICE_ID, d.device_type_id == _DEVICE_TYPE_ID)).order_by(d.seq)
)
COUNT_OPEN = select(func.count()).select_from(executions).where(executions.c.device_id == _DEVICE_ID, OPEN)


def _grants_by_subject(subject: Any) -> Select[Any]:
    around = and_(g.project_id == _PROJECT_ID, ON_PROJECT)
    in_group = g.group_id.in_(select(group_members.c.group_id).where(group_members.c.device_id == _DEVICE_ID))
    covering = or_(g.device_id == _DEVICE_ID, around, in_group)
    return GRANT.select().where(subject == bindparam("at_subject"), covering).order_by(g.seq)


GRANTS_BY_KEY = _grants_by_subject(g.key_id)
GRANTS_BY_MEMBERSHIP = _grants_by_subject(g.membership_id)


def _as_json_array(rows: Select[Any]) -> ColumnElement[Any]:
    """All rows of a SELECT, in order, as one JSON array of arrays."""
    inner = rows.subquery()
    every = func.coalesce(func.json_agg(func.json_build_array(*inner.c)), text("'[]'"))
    return select(cast(every, Text)).select_from(inner).scalar_subquery()


def _single_statement(*grants_of: Select[Any]) -> dict[bool, Select[Any]]:
    """By whether the transaction may write. Then it holds the device, so that nobody revokes, disables or deletes it meanwhile;
    its reports of state are not held up."""
    one = GET_DEVICE.add_columns(
        COUNT_OPEN.scalar_subquery(), *[_as_json_array(rows) for rows in (APPLYING_DEFINITIONS, *grants_of)]
    )
    return {False: one, True: one.with_for_update(read=True, key_share=True, of=devices)}


CONTEXT, CONTEXT_WITH_KEY_GRANTS, CONTEXT_WITH_MEMBERSHIP_GRANTS = (
    _single_statement(),
    _single_statement(GRANTS_BY_KEY),
    _single_statement(GRANTS_BY_MEMBERSHIP),
)


class SqlCommandContextRepository(SqlRepository):
    async def get(self, account_id: AccountId, device_id: DeviceId, subject: GrantSubject | None) -> CommandContext | None:
        if self._session.dialect == POSTGRES:
            return await self._get_in_one_statement(account_id, device_id, subject)
        found, own, [[opened]], *rest = await self._session.read_batch(*_context_queries(account_id, device_id, subject))
        return _context_from_rows(found[0], own, opened, rest[0] if rest else ()) if found else None

    async def get_many(
        self, account_id: AccountId, device_ids: Sequence[DeviceId], subject: GrantSubject | None
    ) -> Mapping[DeviceId, CommandContext]:
        if not device_ids:
            return {}
        if self._session.dialect == POSTGRES:
            each = [await self._get_in_one_statement(account_id, device_id, subject) for device_id in device_ids]
            return {context.device.device_id: context for context in each if context is not None}
        queries = [_context_queries(account_id, device_id, subject) for device_id in device_ids]
        rows = iter(await self._session.read_batch(*chain.from_iterable(queries)))
        contexts: dict[DeviceId, CommandContext] = {}
        for device_id, own_queries in zip(device_ids, queries, strict=True):
            found, own, [[opened]], *rest = islice(rows, len(own_queries))
            if found:
                contexts[device_id] = _context_from_rows(found[0], own, opened, rest[0] if rest else ())
        return contexts

    async def list_reported(
        self, device_ids: Collection[DeviceId], execution_ids: Collection[ExecutionId]
    ) -> tuple[Sequence[Device], Sequence[Execution]]:
        queries: list[Query] = [(LIST_DEVICES, {"at_listed": to_json(sorted(set(device_ids)))})]
        if execution_ids:
            queries.append((LIST_BY_IDS, {"at_listed": to_json(sorted(set(execution_ids)))}))
        found, *named = await self._session.read_batch(*queries)
        return list(map(DEVICE.from_row, found)), [EXECUTION.from_row(row) for rows in named for row in rows]

    async def _get_in_one_statement(
        self, account_id: AccountId, device_id: DeviceId, subject: GrantSubject | None
    ) -> CommandContext | None:
        params = {"at_id": device_id, "at_account": account_id, "at_device": device_id}
        statement = CONTEXT
        if subject is not None:
            statement = CONTEXT_WITH_KEY_GRANTS if subject.key_id is not None else CONTEXT_WITH_MEMBERSHIP_GRANTS
            params["at_subject"] = subject.key_id or subject.membership_id or ""
        rows = await self._session.read(statement[self._session.writable], **params)
        if not rows:
            return None
        opened, own, *rest = rows[0][len(DEVICE.columns) :]
        return _context_from_rows(rows[0][: len(DEVICE.columns)], from_json(own), opened, from_json(rest[0]) if rest else ())


def _context_queries(account_id: AccountId, device_id: DeviceId, subject: GrantSubject | None) -> list[Query]:
    here = {"at_device": device_id}
    questions: list[Query] = [
        (GET_DEVICE, {"at_id": device_id, "at_account": account_id}),
        (APPLYING_DEFINITIONS, here),
        (COUNT_OPEN, here),
    ]
    if subject is not None:
        held = GRANTS_BY_KEY if subject.key_id is not None else GRANTS_BY_MEMBERSHIP
        questions.append((held, here | {"at_subject": subject.key_id or subject.membership_id}))
    return questions


def _context_from_rows(device: Row, own: Sequence[Row], opened: int, held: Sequence[Row]) -> CommandContext:
    return CommandContext.from_definitions(
        DEVICE.from_row(device), [DEFINITION.from_row(row) for row in own], opened, [GRANT.from_row(row) for row in held]
    )


APPROVAL = RowMapper(
    approvals,
    Approval,
    {"params": JSON, "status": enum_converter(ApprovalStatus)},
    always=("params",),
    nested={"requested_by": EmbeddedDataclassColumns(Requester, "requester_")},
    computed={"seq": approvals.c.seq},
)
APPROVALS = AccountEntityStatements(APPROVAL, "approval_id")

a = approvals.c
_SELECT = APPROVAL.select()
DECIDE = APPROVALS.save.where(PENDING_APPROVAL).returning(a.seq)
_PENDING_IN_ACCOUNT = (APPROVALS.in_account, PENDING_APPROVAL)
COUNT_PENDING_BY_DEVICE = select(func.count()).where(*_PENDING_IN_ACCOUNT, a.device_id == bindparam("at_device"))
COUNT_ALL_PENDING = select(func.count()).select_from(approvals).where(PENDING_APPROVAL)
LIST_EXPIRED_APPROVALS = (
    _SELECT.where(PENDING_APPROVAL, a.expires_ms <= bindparam("at_now"))
    .order_by(a.expires_ms, a.seq)
    .limit(bindparam("at_limit"))
)
_OLDEST_BATCH_END = select(func.min(a.seq)).scalar_subquery() + bindparam("at_limit", type_=a.seq.type)
DELETE_APPROVALS_OLDER_THAN = (
    delete(approvals)
    .where(a.seq < _OLDEST_BATCH_END, a.created_ms < bindparam("at_before"), a.status != ApprovalStatus.PENDING.value)
    .returning(a.seq)
)
"""Deletes in insertion order, so it needs no index of its own; a pending approval expires within a day."""
NEXT_APPROVAL_EXPIRY = select(func.min(a.expires_ms)).where(PENDING_APPROVAL)
LIST_PENDING_BY_KEY, LIST_PENDING_BY_MEMBERSHIP = (
    _SELECT.where(*_PENDING_IN_ACCOUNT, requester == bindparam("at_requester")).order_by(a.created_ms, a.seq)
    for requester in (a.requester_key_id, a.requester_membership_id)
)
LIST_PENDING_DEVICES = select(a.device_id).where(*_PENDING_IN_ACCOUNT, a.requester_key_id == bindparam("at_requester"))
LIST_PENDING_COMMANDS = select(a.device_id, a.cmd, a.channel).where(*_PENDING_IN_ACCOUNT)


@cache
def list_statement(device: bool, status: bool, before: bool = False) -> Select[Any]:
    statement = _SELECT.where(APPROVALS.in_account)
    if device:  # the account in a form that no index has: SQLite could prefer its index, and read the approvals of all devices
        in_account = func.coalesce(a.account_id, literal_column("''")) == bindparam("at_account")
        statement = _SELECT.where(in_account, a.device_id == bindparam("at_device"))
    if status:
        statement = statement.where(a.status == bindparam("at_status"))
    if before:
        statement = statement.where(behind(a.created_ms, a.seq, descending=True))
    return statement.order_by(a.created_ms.desc(), a.seq.desc()).limit(bindparam("at_limit"))


class SqlApprovalRepository(SqlAccountEntityRepository[Approval]):
    statements = APPROVALS

    async def list_newest(
        self,
        account_id: AccountId,
        *,
        device_id: DeviceId | None = None,
        status: ApprovalStatus | None = None,
        limit: int = 200,
        before: Position | None = None,
        created: TimeSpan = ANY_TIME,
    ) -> Sequence[Approval]:
        start, rest = page_start(before, created)
        filters = without_none(at_device=device_id, at_status=status and status.value) | position_parameters(start or ())
        statement = list_statement(device_id is not None, status is not None, start is not None)
        statement, span = during(statement, a.created_ms, rest)
        return await self._list(APPROVAL, statement, at_account=account_id, at_limit=limit, **filters, **span)

    async def list_pending_by_requester(
        self, account_id: AccountId, *, key_id: KeyId | None, membership_id: MembershipId | None
    ) -> Sequence[Approval]:
        statement = LIST_PENDING_BY_MEMBERSHIP if key_id is None else LIST_PENDING_BY_KEY
        return await self._list(APPROVAL, statement, at_account=account_id, at_requester=key_id or membership_id)

    async def list_pending_devices(self, account_id: AccountId, key_id: KeyId) -> Sequence[DeviceId]:
        rows = await self._session.read(LIST_PENDING_DEVICES, at_account=account_id, at_requester=key_id)
        return [row[0] for row in rows]

    async def list_pending_commands(self, account_id: AccountId) -> Sequence[tuple[DeviceId, str, int]]:
        return [(row[0], row[1], row[2]) for row in await self._session.read(LIST_PENDING_COMMANDS, at_account=account_id)]

    async def decide_if_pending(self, approval: Approval) -> bool:
        values = APPROVAL.values(approval)
        decision = {name: values[name] for name in ("status", "decided_by", "decided_ms", "execution_id", "note")}
        return bool(await self._session.write(DECIDE, at_id=approval.approval_id, **decision))

    async def count_pending(self, account_id: AccountId, device_id: DeviceId) -> int:
        return await self._number(COUNT_PENDING_BY_DEVICE, at_account=account_id, at_device=device_id)

    async def count_all_pending(self) -> int:
        return await self._number(COUNT_ALL_PENDING)

    async def list_expired(self, now_ms: int, limit: int) -> Sequence[Approval]:
        return await self._list(APPROVAL, LIST_EXPIRED_APPROVALS, at_now=now_ms, at_limit=limit)

    async def delete_older_than(self, created_ms: int, limit: int) -> int:
        return await self._count_changed(DELETE_APPROVALS_OLDER_THAN, at_before=created_ms, at_limit=limit)

    async def next_expiry_ms(self) -> int | None:
        return await self._number_or_none(NEXT_APPROVAL_EXPIRY)
