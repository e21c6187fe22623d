"""What one command is decided by, in one look: the device, what it can be told, what of that is open, the grants on it.

On PostgreSQL the look is one statement, because there each statement of a writing transaction sees what others have committed by
then: a device that changes its type between two of them would be seen with the old type and without its commands, and with them
without the approvals they ask for. It saves three journeys, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BindParameter, ColumnElement, Select, Text, and_, bindparam, cast, func, or_, select, text

from adapters.storage.sql.repositories.commands import DEFINITION
from adapters.storage.sql.repositories.devices import COLUMNS, GET, device_of
from adapters.storage.sql.repositories.grants import GRANT_COLUMNS, grant_of
from adapters.storage.sql.rows import from_json
from adapters.storage.sql.session import POSTGRES, Question, Row, Session
from adapters.storage.sql.tables import definitions, devices, executions, grants
from adapters.storage.sql.tables.fleet import OPEN
from domain.commands.ports import Facing
from domain.grants.model import Subject
from domain.kernel.ids import AccountId, DeviceId

_HERE: BindParameter[str] = bindparam("at_device")
_TYPE = select(devices.c.device_type_id).where(devices.c.device_id == _HERE).scalar_subquery()
_PROJECT = select(devices.c.project_id).where(devices.c.device_id == _HERE).scalar_subquery()

d, g = definitions.c, grants.c
DEFINITIONS = DEFINITION.select().where(or_(d.device_id == _HERE, d.device_type_id == _TYPE)).order_by(d.seq)
COUNT = select(func.count()).select_from(executions).where(executions.c.device_id == _HERE, OPEN)


def _held(subject: Any) -> Select[Any]:
    around = and_(g.project_id == _PROJECT, g.device_id.is_(None))
    return select(*GRANT_COLUMNS).where(subject == bindparam("at_subject"), or_(g.device_id == _HERE, around)).order_by(g.seq)


OF_KEY = _held(g.key_id)
OF_MEMBERSHIP = _held(g.membership_id)


def _as_one(rows: Select[Any]) -> ColumnElement[Any]:
    """All rows of a SELECT as one JSON array of arrays, in their order."""
    inner = rows.subquery()
    every = func.coalesce(func.json_agg(func.json_build_array(*inner.c)), text("'[]'"))
    return select(cast(every, Text)).select_from(inner).scalar_subquery()


def _whole(*grants_of: Select[Any]) -> Select[Any]:
    return GET.add_columns(COUNT.scalar_subquery(), *[_as_one(rows) for rows in (DEFINITIONS, *grants_of)])


WHOLE, WHOLE_OF_KEY, WHOLE_OF_MEMBERSHIP = _whole(), _whole(OF_KEY), _whole(OF_MEMBERSHIP)


class SqlFacing:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def of(self, account_id: AccountId, device_id: DeviceId, subject: Subject | None) -> Facing | None:
        if self._session.dialect == POSTGRES:
            return await self._of_one(account_id, device_id, subject)
        here = {"at_device": device_id}
        questions: list[Question] = [
            (GET, {"at_id": device_id, "at_account": account_id}),
            (DEFINITIONS, here),
            (COUNT, here),
        ]
        if subject is not None:
            held = OF_KEY if subject.key_id is not None else OF_MEMBERSHIP
            questions.append((held, here | {"at_subject": subject.key_id or subject.membership_id}))
        found, own, [[opened]], *rest = await self._session.read_all(*questions)
        return _facing(found[0], own, opened, rest[0] if rest else ()) if found else None

    async def _of_one(self, account_id: AccountId, device_id: DeviceId, subject: Subject | None) -> Facing | None:
        params = {"at_id": device_id, "at_account": account_id, "at_device": device_id}
        statement = WHOLE
        if subject is not None:
            statement = WHOLE_OF_KEY if subject.key_id is not None else WHOLE_OF_MEMBERSHIP
            params["at_subject"] = subject.key_id or subject.membership_id or ""
        rows = await self._session.read(statement, **params)
        if not rows:
            return None
        opened, own, *rest = rows[0][len(COLUMNS) :]
        return _facing(rows[0][: len(COLUMNS)], from_json(own), opened, from_json(rest[0]) if rest else ())


def _facing(device: Row, own: Sequence[Row], opened: int, held: Sequence[Row]) -> Facing:
    return Facing(device_of(device), [DEFINITION.of(row) for row in own], opened, [grant_of(row) for row in held])
