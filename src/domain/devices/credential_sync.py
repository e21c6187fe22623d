"""Copy device credentials from the database to the link.

A change is committed first and synced before the request is answered. Two changes of one device may overtake each other, so the
sync reads the stored state each time, one device at a time, instead of passing the change on. If the link fails, the device stays
pending and is retried; startup syncs every device. A device whose password no key of the ring can decrypt is not admitted; the
others are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import field
from typing import Protocol

from domain.devices.device_link import BrokerCredentialUpdater
from domain.devices.model import Device, DeviceCredentials, DeviceStatus
from domain.devices.ports import HasDeviceCredentials, HasDevices
from domain.devices.recent_credential_changes import RecentCredentialChanges
from domain.kernel.dataclasses import service
from domain.kernel.errors import SecretUnreadable
from domain.kernel.ids import DeviceId
from domain.kernel.ports import Vault
from domain.kernel.unit_of_work import EngineCommitLock, UnitOfWork

BATCH_SIZE = 100


class CredentialSyncTx(HasDeviceCredentials, HasDevices, Protocol): ...


@service
class CredentialSyncService:
    """`wake` wakes the worker that calls `retry_pending`. `on_synced`: removing a device from the link drops its retained
    messages, so its schedule plan must be published again. `lock` belongs to this object alone. `changes`: told of every
    change, in a cluster."""

    uow: UnitOfWork[CredentialSyncTx]
    link: BrokerCredentialUpdater
    vault: Vault
    lock: EngineCommitLock
    wake: Callable[[], None]
    on_synced: Callable[[DeviceId], None]
    changes: RecentCredentialChanges | None = None
    _pending: set[DeviceId] = field(default_factory=set, init=False)
    unreadable_count: int = field(default=0, init=False)
    """Devices that the last startup could not admit, because the keys of their passwords are lost."""

    @property
    def pending(self) -> Collection[DeviceId]:
        """Devices whose stored state has not reached the link yet."""
        return tuple(self._pending)

    async def refuse(self, device_id: DeviceId) -> None:
        """Remove the device from the link until its stored state can be read."""
        self._pending.add(device_id)
        await self.link.remove_device(device_id)

    async def sync(self, device_id: DeviceId) -> bool:
        """Bring the link in line with the database. False when the link failed; the sync is retried later."""
        try:
            async with self.lock:
                await self._sync_device(device_id)
        except Exception:  # any error of a link or broker: the change is stored, and the request must be answered
            self._pending.add(device_id)
            self.wake()
            return False
        self._pending.discard(device_id)
        return True

    async def retry_pending(self) -> bool:
        """Retry a batch of failed devices. True when none is pending any more."""
        for device_id in list(self._pending)[:BATCH_SIZE]:
            if not await self.sync(device_id):
                return False
        return not self._pending

    async def sync_all(self) -> int:
        """At startup: sync every ACTIVE device. Returns how many were admitted. Raises what the link raises."""
        async with self.uow.read() as tx:
            stored = await tx.credentials.list_of_active_devices()
        synced = [await self._upsert_credentials(device, credentials) for device, credentials in stored]
        if self.changes is not None:
            self.changes.on_start(credentials for _, credentials in stored)
        self.unreadable_count = synced.count(False)
        return synced.count(True)

    async def _sync_device(self, device_id: DeviceId) -> None:
        async with self.uow.read() as tx:
            device = await tx.devices.find(device_id)
            credentials = await tx.credentials.get_for_update(device_id)
        is_active = device is not None and device.status is DeviceStatus.ACTIVE
        if device and credentials and is_active and await self._upsert_credentials(device, credentials):
            self.on_synced(device_id)
            if self.changes is not None:
                self.changes.on_admitted(credentials)
            return
        await self.link.remove_device(device_id)
        never_admitted = device is not None and device.status is DeviceStatus.PENDING
        if self.changes is not None and not never_admitted:
            self.changes.on_refused(device_id)

    async def _upsert_credentials(self, device: Device, credentials: DeviceCredentials) -> bool:
        try:
            password = self.vault.open(credentials.sealed, device.device_id)
        except SecretUnreadable:
            return False
        await self.link.upsert_credentials(device.device_id, device.device_no, password, device.profile)
        return True
