"""Device types."""

from __future__ import annotations

from sqlalchemy import bindparam, func, select

from adapters.storage.sql.entity_repository import AccountEntityStatements, SqlAccountEntityRepository
from adapters.storage.sql.row_mapper import RowMapper
from adapters.storage.sql.tables import device_types, devices
from domain.devices.model import DeviceType
from domain.kernel.ids import DeviceTypeId

DEVICE_TYPE = RowMapper(device_types, DeviceType)

TYPES = AccountEntityStatements(
    DEVICE_TYPE,
    "device_type_id",
    unchanged=("account_id", "created_ms"),
    lock=lambda one: {False: one, True: one.with_for_update()},
)
"""A stronger lock than for other rows: only this one makes a device that gets the type wait, through its foreign key."""
LOCK_TYPE_SHARED = select(device_types.c.device_type_id).where(TYPES.is_id).with_for_update(read=True)
COUNT_DEVICES = select(func.count()).select_from(devices).where(devices.c.device_type_id == bindparam("at_id"))


class SqlDeviceTypeRepository(SqlAccountEntityRepository[DeviceType]):
    """Deleting a type deletes its definitions and clears the type of its devices, by foreign key."""

    statements = TYPES
    list = SqlAccountEntityRepository.list_by_account

    async def lock_for_share(self, device_type_id: DeviceTypeId) -> None:
        if self._takes_locks:
            await self._session.read(LOCK_TYPE_SHARED, at_id=device_type_id)  # SQLite has only one writer

    async def count_devices(self, device_type_id: DeviceTypeId) -> int:
        return await self._number(COUNT_DEVICES, at_id=device_type_id)
