"""Types of devices."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, delete, func, insert, select, update

from adapters.storage.sql.rows import Mapper
from adapters.storage.sql.session import POSTGRES, Session
from adapters.storage.sql.tables import device_types, devices
from domain.devices.model import DeviceType
from domain.kernel.ids import AccountId, DeviceTypeId

TYPE = Mapper(device_types, DeviceType)

_TYPE_ID = device_types.c.device_type_id == bindparam("at_id")
ADD_TYPE = insert(device_types)
GET_TYPE = TYPE.select().where(_TYPE_ID, device_types.c.account_id == bindparam("at_account"))
ALONE = GET_TYPE.with_for_update()
"""Not as other rows are held: a device that is given the type must wait too, and only this lock keeps its foreign key waiting."""
STAYS = select(device_types.c.device_type_id).where(_TYPE_ID).with_for_update(read=True)
LIST_TYPES = TYPE.select().where(device_types.c.account_id == bindparam("at_account")).order_by(device_types.c.seq)
SAVE_TYPE = update(device_types).where(_TYPE_ID)
DELETE_TYPE = delete(device_types).where(_TYPE_ID)
IN_USE = select(func.count()).select_from(devices).where(devices.c.device_type_id == bindparam("at_id"))


class SqlDeviceTypes:
    """Definitions go with a type, and its devices keep none, by foreign key."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def add(self, device_type: DeviceType) -> None:
        await self._session.write(ADD_TYPE, **TYPE.values(device_type))

    async def get(self, account_id: AccountId, device_type_id: DeviceTypeId) -> DeviceType | None:
        return TYPE.maybe(await self._session.read(GET_TYPE, at_id=device_type_id, at_account=account_id))

    async def held(self, account_id: AccountId, device_type_id: DeviceTypeId) -> DeviceType | None:
        statement = ALONE if self._session.writable else GET_TYPE
        return TYPE.maybe(await self._session.read(statement, at_id=device_type_id, at_account=account_id))

    async def stays(self, device_type_id: DeviceTypeId) -> None:
        if self._session.writable and self._session.dialect == POSTGRES:
            await self._session.read(STAYS, at_id=device_type_id)  # SQLite has one writer anyway

    async def list(self, account_id: AccountId) -> Sequence[DeviceType]:
        return [TYPE.of(row) for row in await self._session.read(LIST_TYPES, at_account=account_id)]

    async def save(self, device_type: DeviceType) -> None:
        await self._session.write(SAVE_TYPE, at_id=device_type.device_type_id, name=device_type.name)

    async def delete(self, device_type_id: DeviceTypeId) -> None:
        await self._session.write(DELETE_TYPE, at_id=device_type_id)

    async def in_use(self, device_type_id: DeviceTypeId) -> int:
        return int((await self._session.read(IN_USE, at_id=device_type_id))[0][0])
