"""Ports of the grants part."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from domain.audit.seals import AuditTx
from domain.devices.model import Device
from domain.grants.model import ApiKeyReadAccess, Grant, GrantSubject
from domain.kernel.ids import AccountId, DeviceId, GrantId, GroupId, KeyId


class GrantRepository(Protocol):
    async def add(self, grant: Grant) -> None: ...

    async def get_for_update(self, account_id: AccountId, grant_id: GrantId) -> Grant | None:
        """In a writing transaction, locks the grant until the transaction ends. Read a grant this way before you save it."""

    async def save(self, grant: Grant) -> None: ...

    async def delete(self, grant_id: GrantId) -> None: ...

    async def list_by_device(self, device: Device) -> Sequence[Grant]:
        """Every grant that applies to the device, those on its project and groups included, oldest first."""

    async def list_by_group(self, group_id: GroupId) -> Sequence[Grant]:
        """The grants on the group, oldest first."""

    async def list_by_subject_and_device(self, subject: GrantSubject, device: Device) -> Sequence[Grant]:
        """The subject's grants that apply to the device, oldest first, expired ones included."""

    async def list_by_subject_and_devices(self, subject: GrantSubject, devices: Sequence[Device]) -> Sequence[Grant]:
        """The subject's grants on any of the devices, their projects or groups, oldest first, expired ones included."""

    async def list_by_key(self, account_id: AccountId, key_id: KeyId) -> Sequence[Grant]: ...

    async def list_by_subject(self, account_id: AccountId, subject: GrantSubject) -> Sequence[Grant]: ...

    async def list_read_access_by_keys(self, key_ids: Sequence[KeyId]) -> Sequence[ApiKeyReadAccess]:
        """The read access of all grants of these keys, expired ones included."""

    async def list_read_access_by_devices(self, device_ids: Collection[DeviceId]) -> Sequence[ApiKeyReadAccess]:
        """The read access that any key's grants give on these devices, their projects or groups, expired ones included."""

    async def lock_for_share(self, grant: Grant) -> bool:
        """Keep the grant as it is until the write transaction ends. False when the stored one differs or is deleted."""

    async def lock_membership(self, grant: Grant, device_id: DeviceId) -> bool:
        """Keep the device a member of the grant's group until the write transaction ends. False when it is none any more; True
        for a grant that is on no group."""

    async def list_recent_uses(self, grant: Grant, since_ms: int, until_ms: int, limit: int) -> Sequence[int] | None:
        """Unix ms of the newest `limit` uses after `since_ms`, up to `until_ms`. In a write transaction, locks the grant and its
        uses until the transaction ends. None when the stored grant differs from `grant` or is deleted."""

    async def add_use(self, grant_id: GrantId, at_ms: int) -> None: ...

    async def delete_uses_older_than(self, at_ms: int, limit: int) -> int: ...


class GrantsTx(AuditTx, Protocol):
    """The repositories of this part and of those below it."""

    @property
    def grants(self) -> GrantRepository: ...
