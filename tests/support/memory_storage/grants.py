"""Grants and the uses that count against their limits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from domain.devices.model import Device
from domain.grants.model import ApiKeyReadAccess, Grant, GrantSubject
from domain.kernel.ids import AccountId, DeviceId, GrantId, GroupId, KeyId
from support.memory_storage.tables import Database, Table

GRANTS: Table[GrantId, Grant] = Table("grants")
_DEVICES: Table[DeviceId, Device] = Table("devices")
GRANT_USES: Table[GrantId, tuple[int, ...]] = Table("grant_uses")


class MemoryGrantRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, grant: Grant) -> None:
        self._database.writable_rows(GRANTS)[grant.grant_id] = grant

    async def get(self, account_id: AccountId, grant_id: GrantId) -> Grant | None:
        grant = self._database.rows(GRANTS).get(grant_id)
        return grant if grant is not None and grant.account_id == account_id else None

    async def get_for_update(self, account_id: AccountId, grant_id: GrantId) -> Grant | None:
        return await self.get(account_id, grant_id)

    async def save(self, grant: Grant) -> None:
        rows = self._database.writable_rows(GRANTS)
        if grant.grant_id in rows:
            rows[grant.grant_id] = grant

    async def delete(self, grant_id: GrantId) -> None:
        delete_grants(self._database, lambda grant: grant.grant_id == grant_id)

    async def list_by_device(self, device: Device) -> Sequence[Grant]:
        return self._filter(lambda grant: grant.applies_to(self._current(device)))

    async def list_by_group(self, group_id: GroupId) -> Sequence[Grant]:
        return self._filter(lambda grant: grant.group_id == group_id)

    async def list_by_subject_and_device(self, subject: GrantSubject, device: Device) -> Sequence[Grant]:
        return [grant for grant in await self.list_by_device(device) if grant.subject == subject]

    async def list_by_subject_and_devices(self, subject: GrantSubject, devices: Sequence[Device]) -> Sequence[Grant]:
        places = {place for device in devices for place in self._current(device).places}
        return self._filter(lambda grant: grant.subject == subject and grant.place in places)

    async def list_by_key(self, account_id: AccountId, key_id: KeyId) -> Sequence[Grant]:
        return await self.list_by_subject(account_id, GrantSubject(key_id=key_id))

    async def list_by_subject(self, account_id: AccountId, subject: GrantSubject) -> Sequence[Grant]:
        return self._filter(lambda grant: grant.account_id == account_id and grant.subject == subject)

    async def list_read_access_by_keys(self, key_ids: Sequence[KeyId]) -> Sequence[ApiKeyReadAccess]:
        keys = set(key_ids)
        return _reach_of_grants(self._filter(lambda grant: grant.subject.key_id in keys))

    async def list_read_access_by_devices(self, device_ids: Collection[DeviceId]) -> Sequence[ApiKeyReadAccess]:
        devices = [device for device_id, device in self._database.rows(_DEVICES).items() if device_id in set(device_ids)]
        places = {place for device in devices for place in device.places}
        return _reach_of_grants(self._filter(lambda grant: grant.place in places))

    async def lock_for_share(self, grant: Grant) -> bool:
        return True

    async def lock_membership(self, grant: Grant, device_id: DeviceId) -> bool:
        return True

    async def list_recent_uses(self, grant: Grant, since_ms: int, until_ms: int, limit: int) -> Sequence[int] | None:
        if self._database.rows(GRANTS).get(grant.grant_id) != grant:
            return None
        uses = self._database.rows(GRANT_USES).get(grant.grant_id, ())
        return sorted((at for at in uses if since_ms < at <= until_ms), reverse=True)[:limit]

    async def add_use(self, grant_id: GrantId, at_ms: int) -> None:
        uses = self._database.writable_rows(GRANT_USES)
        uses[grant_id] = (*uses.get(grant_id, ()), at_ms)

    async def delete_uses_older_than(self, at_ms: int, limit: int) -> int:
        rows, gone = self._database.writable_rows(GRANT_USES), 0
        for grant_id, uses in list(rows.items()):
            old = sorted(at for at in uses if at < at_ms)[: limit - gone]
            gone += len(old)
            kept = list(uses)
            for at in old:
                kept.remove(at)
            rows[grant_id] = tuple(kept)
        return gone

    def _current(self, device: Device) -> Device:
        """With the groups that the device is a member of now, as a database looks."""
        return self._database.rows(_DEVICES).get(device.device_id, device)

    def _filter(self, chosen: Callable[[Grant], bool]) -> list[Grant]:
        return [grant for grant in self._database.rows(GRANTS).values() if chosen(grant)]


def _reach_of_grants(grants: Sequence[Grant]) -> list[ApiKeyReadAccess]:
    return [
        ApiKeyReadAccess(grant.subject.key_id, grant.device_id, grant.project_id, grant.expires_ms, grant.group_id)
        for grant in grants
        if grant.subject.key_id is not None
    ]


def delete_grants(database: Database, chosen: Callable[[Grant], bool]) -> None:
    gone = [grant.grant_id for grant in database.rows(GRANTS).values() if chosen(grant)]
    database.delete(GRANTS, gone)
    database.delete(GRANT_USES, gone)
