"""Everything that one command is decided by: the device, its command definitions, the number of open executions, the grants.

PostgreSQL reads it in one statement, because each statement of a writing transaction sees what others have committed by then. If
a device changed its type between two statements, it would be read with the old type and without its definitions, so without the
approvals that they require. One statement also saves three round trips.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import BindParameter, ColumnElement, Select, Text, and_, bindparam, cast, func, or_, select, text

from adapters.storage.sql.entity_repository import SqlRepository
from adapters.storage.sql.repositories.command_definitions_and_executions import DEFINITION, EXECUTION, d
from adapters.storage.sql.repositories.command_definitions_and_executions import LIST_BY_IDS as LIST_EXECUTIONS
from adapters.storage.sql.repositories.devices import DEVICE
from adapters.storage.sql.repositories.devices import GET as GET_DEVICE
from adapters.storage.sql.repositories.devices import LIST_BY_IDS as LIST_DEVICES
from adapters.storage.sql.repositories.grants import GRANT, ON_PROJECT
from adapters.storage.sql.row_mapper import from_json, to_json
from adapters.storage.sql.sql_session_port import POSTGRES, Query, Row
from adapters.storage.sql.tables import devices, executions, grants, group_members
from adapters.storage.sql.tables.commands import OPEN
from domain.commands.model import CommandContext, Execution
from domain.devices.model import Device
from domain.grants.model import GrantSubject
from domain.kernel.ids import AccountId, DeviceId, ExecutionId

_DEVICE_ID: BindParameter[str] = bindparam("at_device")
_DEVICE_TYPE_ID = select(devices.c.device_type_id).where(devices.c.device_id == _DEVICE_ID).scalar_subquery()
_PROJECT_ID = select(devices.c.project_id).where(devices.c.device_id == _DEVICE_ID).scalar_subquery()

g = grants.c
DEFINITIONS = DEFINITION.select().where(or_(d.device_id == _DEVICE_ID, d.device_type_id == _DEVICE_TYPE_ID)).order_by(d.seq)
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


def _single_statement(*grants_of: Select[Any]) -> Select[Any]:
    return GET_DEVICE.add_columns(COUNT_OPEN.scalar_subquery(), *[_as_json_array(rows) for rows in (DEFINITIONS, *grants_of)])


CONTEXT, CONTEXT_WITH_KEY_GRANTS, CONTEXT_WITH_MEMBERSHIP_GRANTS = (
    _single_statement(),
    _single_statement(GRANTS_BY_KEY),
    _single_statement(GRANTS_BY_MEMBERSHIP),
)


class SqlCommandContextRepository(SqlRepository):
    async def get(self, account_id: AccountId, device_id: DeviceId, subject: GrantSubject | None) -> CommandContext | None:
        if self._session.dialect == POSTGRES:
            return await self._get_in_one_statement(account_id, device_id, subject)
        here = {"at_device": device_id}
        questions: list[Query] = [
            (GET_DEVICE, {"at_id": device_id, "at_account": account_id}),
            (DEFINITIONS, here),
            (COUNT_OPEN, here),
        ]
        if subject is not None:
            held = GRANTS_BY_KEY if subject.key_id is not None else GRANTS_BY_MEMBERSHIP
            questions.append((held, here | {"at_subject": subject.key_id or subject.membership_id}))
        found, own, [[opened]], *rest = await self._session.read_batch(*questions)
        return _context_from_rows(found[0], own, opened, rest[0] if rest else ()) if found else None

    async def list_reported(
        self, device_ids: Collection[DeviceId], execution_ids: Collection[ExecutionId]
    ) -> tuple[Sequence[Device], Sequence[Execution]]:
        queries: list[Query] = [(LIST_DEVICES, {"at_listed": to_json(sorted(set(device_ids)))})]
        if execution_ids:
            queries.append((LIST_EXECUTIONS, {"at_listed": to_json(sorted(set(execution_ids)))}))
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
        rows = await self._session.read(statement, **params)
        if not rows:
            return None
        opened, own, *rest = rows[0][len(DEVICE.columns) :]
        return _context_from_rows(rows[0][: len(DEVICE.columns)], from_json(own), opened, from_json(rest[0]) if rest else ())


def _context_from_rows(device: Row, own: Sequence[Row], opened: int, held: Sequence[Row]) -> CommandContext:
    return CommandContext.from_definitions(
        DEVICE.from_row(device), [DEFINITION.from_row(row) for row in own], opened, [GRANT.from_row(row) for row in held]
    )
