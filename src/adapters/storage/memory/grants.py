"""Grants and the uses that count against their limits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from adapters.storage.memory.shelves import Book, Shelf
from domain.devices.model import Device
from domain.grants.model import Grant, Reach, Subject
from domain.kernel.ids import AccountId, DeviceId, GrantId, KeyId, ProjectId

GRANTS: Shelf[GrantId, Grant] = Shelf("grants")
_DEVICES: Shelf[DeviceId, Device] = Shelf("devices")
USES: Shelf[GrantId, tuple[int, ...]] = Shelf("grant_uses")


class MemoryGrants:
    def __init__(self, book: Book) -> None:
        self._book = book

    async def add(self, grant: Grant) -> None:
        self._book.edit(GRANTS)[grant.grant_id] = grant

    async def get(self, account_id: AccountId, grant_id: GrantId) -> Grant | None:
        grant = self._book.rows(GRANTS).get(grant_id)
        return grant if grant is not None and grant.account_id == account_id else None

    async def held(self, account_id: AccountId, grant_id: GrantId) -> Grant | None:
        return await self.get(account_id, grant_id)

    async def save(self, grant: Grant) -> None:
        rows = self._book.edit(GRANTS)
        if grant.grant_id in rows:
            rows[grant.grant_id] = grant

    async def delete(self, grant_id: GrantId) -> None:
        drop_grants(self._book, lambda grant: grant.grant_id == grant_id)

    async def on_device(self, device: Device) -> Sequence[Grant]:
        return self._chosen(lambda grant: _applies(grant, device.device_id, device.project_id))

    async def of_subject_on(self, subject: Subject, device: Device) -> Sequence[Grant]:
        return [grant for grant in await self.on_device(device) if grant.subject == subject]

    async def of_subject_on_all(self, subject: Subject, devices: Sequence[Device]) -> Sequence[Grant]:
        places = [(device.device_id, device.project_id) for device in devices]
        return self._chosen(lambda grant: grant.subject == subject and any(_applies(grant, *place) for place in places))

    async def of_key(self, account_id: AccountId, key_id: KeyId) -> Sequence[Grant]:
        return await self.of_subject(account_id, Subject(key_id=key_id))

    async def of_subject(self, account_id: AccountId, subject: Subject) -> Sequence[Grant]:
        return self._chosen(lambda grant: grant.account_id == account_id and grant.subject == subject)

    async def reach_of(self, key_ids: Sequence[KeyId]) -> Sequence[Reach]:
        keys = set(key_ids)
        return _reaches(self._chosen(lambda grant: grant.subject.key_id in keys))

    async def reach_on(self, device_ids: Collection[DeviceId]) -> Sequence[Reach]:
        devices = [device for device_id, device in self._book.rows(_DEVICES).items() if device_id in set(device_ids)]
        places = [(device.device_id, device.project_id) for device in devices]
        return _reaches(self._chosen(lambda grant: any(_applies(grant, *place) for place in places)))

    async def recent_uses(self, grant: Grant, since_ms: int, limit: int) -> Sequence[int] | None:
        if self._book.rows(GRANTS).get(grant.grant_id) != grant:
            return None
        return sorted((at for at in self._book.rows(USES).get(grant.grant_id, ()) if at > since_ms), reverse=True)[:limit]

    async def add_use(self, grant_id: GrantId, at_ms: int) -> None:
        uses = self._book.edit(USES)
        uses[grant_id] = (*uses.get(grant_id, ()), at_ms)

    async def forget_uses_before(self, at_ms: int, limit: int) -> int:
        rows, gone = self._book.edit(USES), 0
        for grant_id, uses in list(rows.items()):
            old = sorted(at for at in uses if at < at_ms)[: limit - gone]
            gone += len(old)
            kept = list(uses)
            for at in old:
                kept.remove(at)
            rows[grant_id] = tuple(kept)
        return gone

    def _chosen(self, chosen: Callable[[Grant], bool]) -> list[Grant]:
        return [grant for grant in self._book.rows(GRANTS).values() if chosen(grant)]


def _reaches(grants: Sequence[Grant]) -> list[Reach]:
    return [
        Reach(grant.subject.key_id, grant.device_id, grant.project_id, grant.expires_ms)
        for grant in grants
        if grant.subject.key_id is not None
    ]


def _applies(grant: Grant, device_id: DeviceId, project_id: ProjectId) -> bool:
    return grant.device_id == device_id or (grant.device_id is None and grant.project_id == project_id)


def drop_grants(book: Book, chosen: Callable[[Grant], bool]) -> None:
    gone = [grant.grant_id for grant in book.rows(GRANTS).values() if chosen(grant)]
    book.drop(GRANTS, gone)
    book.drop(USES, gone)
