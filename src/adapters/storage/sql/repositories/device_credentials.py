"""The MQTT credentials of devices."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, delete, func, select, update

from adapters.storage.sql.entity_repository import SqlRepository
from adapters.storage.sql.repositories.devices import DEVICE
from adapters.storage.sql.row_mapper import RowMapper
from adapters.storage.sql.statement_builders import upsert
from adapters.storage.sql.tables import credentials, devices
from domain.devices.model import Device, DeviceCredentials, DeviceStatus
from domain.kernel.ids import DeviceId

CREDENTIALS = RowMapper(credentials, DeviceCredentials)

GET_CREDENTIALS = CREDENTIALS.select().where(credentials.c.device_id == bindparam("at_id"))
UPSERT_CREDENTIALS = upsert(credentials, "sealed", "created_ms")
DELETE_CREDENTIALS = delete(credentials).where(credentials.c.device_id == bindparam("at_id"))
LIST_ACTIVE_WITH_CREDENTIALS = (
    select(*DEVICE.columns, *CREDENTIALS.columns)
    .join(credentials, credentials.c.device_id == devices.c.device_id)
    .where(devices.c.status == DeviceStatus.ACTIVE.value)
    .order_by(devices.c.device_no)
)
PAGE_CREDENTIALS = (
    CREDENTIALS.select()
    .where(credentials.c.device_id > bindparam("at_after"))
    .order_by(credentials.c.device_id)
    .limit(bindparam("at_limit"))
)
COUNT_CREDENTIALS = select(func.count()).select_from(credentials)
REKEY_CREDENTIALS = (
    update(credentials)
    .where(credentials.c.device_id == bindparam("at_id"), credentials.c.sealed == bindparam("at_before"))
    .values(sealed=bindparam("at_after"))
    .returning(credentials.c.device_id)
)


class SqlDeviceCredentialsRepository(SqlRepository):
    async def get_for_update(self, device_id: DeviceId) -> DeviceCredentials | None:
        return await self._first(CREDENTIALS, GET_CREDENTIALS, at_id=device_id)

    async def upsert(self, credentials: DeviceCredentials) -> None:
        await self._session.write(UPSERT_CREDENTIALS, **CREDENTIALS.values(credentials))

    async def delete(self, device_id: DeviceId) -> None:
        await self._session.write(DELETE_CREDENTIALS, at_id=device_id)

    async def list_of_active_devices(self) -> Sequence[tuple[Device, DeviceCredentials]]:
        width = len(DEVICE.columns)
        rows = await self._session.read(LIST_ACTIVE_WITH_CREDENTIALS)
        return [(DEVICE.from_row(row), CREDENTIALS.from_row(row[width:])) for row in rows]

    async def page(self, after: DeviceId | None, limit: int) -> Sequence[DeviceCredentials]:
        return await self._list(CREDENTIALS, PAGE_CREDENTIALS, at_after=after or "", at_limit=limit)

    async def count(self) -> int:
        return await self._number(COUNT_CREDENTIALS)

    async def rekey(self, device_id: DeviceId, before: bytes, after: bytes) -> bool:
        return bool(await self._session.write(REKEY_CREDENTIALS, at_id=device_id, at_before=before, at_after=after))
