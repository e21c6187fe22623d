"""What one command is decided by, in one look: the device, what it can be told, what of that is open, the grants on it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BindParameter, Select, and_, bindparam, func, or_, select

from adapters.storage.sql.repositories.commands import DEFINITION
from adapters.storage.sql.repositories.devices import GET, device_of
from adapters.storage.sql.repositories.grants import GRANT_COLUMNS, grant_of
from adapters.storage.sql.session import Question, Session
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


class SqlFacing:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def of(self, account_id: AccountId, device_id: DeviceId, subject: Subject | None) -> Facing | None:
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
        if not found:
            return None
        return Facing(
            device_of(found[0]),
            [DEFINITION.of(row) for row in own],
            opened,
            [grant_of(row) for row in rest[0]] if rest else [],
        )
