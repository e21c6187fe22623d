"""Device types."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, delete, func, insert, select, update

from adapters.storage.sql.db_session import POSTGRES, DbSession
from adapters.storage.sql.row_mapper import RowMapper
from adapters.storage.sql.tables import device_types, devices
from domain.devices.model import DeviceType
from domain.kernel.ids import AccountId, DeviceTypeId

DEVICE_TYPE = RowMapper(device_types, DeviceType)

_TYPE_ID = device_types.c.device_type_id == bindparam("at_id")
ADD_TYPE = insert(device_types)
GET_TYPE = DEVICE_TYPE.select().where(_TYPE_ID, device_types.c.account_id == bindparam("at_account"))
GET_TYPE_FOR_UPDATE = GET_TYPE.with_for_update()
"""A stronger lock than for other rows: only this one makes a device that gets the type wait, through its foreign key."""
LOCK_TYPE_SHARED = select(device_types.c.device_type_id).where(_TYPE_ID).with_for_update(read=True)
LIST_TYPES = DEVICE_TYPE.select().where(device_types.c.account_id == bindparam("at_account")).order_by(device_types.c.seq)
SAVE_TYPE = update(device_types).where(_TYPE_ID)
DELETE_TYPE = delete(device_types).where(_TYPE_ID)
COUNT_DEVICES = select(func.count()).select_from(devices).where(devices.c.device_type_id == bindparam("at_id"))


class SqlDeviceTypeRepository:
    """Deleting a type deletes its definitions and clears the type of its devices, by foreign key."""

    def __init__(self, session: DbSession) -> None:
        self._session = session

    async def add(self, device_type: DeviceType) -> None:
        await self._session.write(ADD_TYPE, **DEVICE_TYPE.values(device_type))

    async def get(self, account_id: AccountId, device_type_id: DeviceTypeId) -> DeviceType | None:
        return DEVICE_TYPE.first_or_none(await self._session.read(GET_TYPE, at_id=device_type_id, at_account=account_id))

    async def get_for_update(self, account_id: AccountId, device_type_id: DeviceTypeId) -> DeviceType | None:
        statement = GET_TYPE_FOR_UPDATE if self._session.writable else GET_TYPE
        return DEVICE_TYPE.first_or_none(await self._session.read(statement, at_id=device_type_id, at_account=account_id))

    async def lock_for_share(self, device_type_id: DeviceTypeId) -> None:
        if self._session.writable and self._session.dialect == POSTGRES:
            await self._session.read(LOCK_TYPE_SHARED, at_id=device_type_id)  # SQLite has only one writer

    async def list(self, account_id: AccountId) -> Sequence[DeviceType]:
        return [DEVICE_TYPE.from_row(row) for row in await self._session.read(LIST_TYPES, at_account=account_id)]

    async def save(self, device_type: DeviceType) -> None:
        await self._session.write(SAVE_TYPE, at_id=device_type.device_type_id, name=device_type.name)

    async def delete(self, device_type_id: DeviceTypeId) -> None:
        await self._session.write(DELETE_TYPE, at_id=device_type_id)

    async def count_devices(self, device_type_id: DeviceTypeId) -> int:
        return int((await self._session.read(COUNT_DEVICES, at_id=device_type_id))[0][0])
