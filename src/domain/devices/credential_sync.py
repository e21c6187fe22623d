"""Who may connect, told to the link: always from what is stored, never from what somebody meant to change.

A change is committed first and carried to the link before it is answered. Two changes of one device may overtake each other on
the way, so the link is not told the change but the state: read and told one at a time. A link that fails loses nothing: the
device stays in the link's debt and is told again later, and a start tells everything. A device whose password no key of the ring
opens cannot be let in, and is no reason to let nobody in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from domain.devices.link import DeviceLink
from domain.devices.model import Device, DeviceCredentials, DeviceStatus
from domain.devices.ports import HasDeviceCredentials, HasDevices, Vault
from domain.kernel.errors import SecretUnreadable
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import EngineCommitLock, UnitOfWork

BATCH_SIZE = 100


class CredentialSyncTx(HasDeviceCredentials, HasDevices, Protocol): ...


class CredentialSync:
    def __init__(
        self,
        *,
        uow: UnitOfWork[CredentialSyncTx],
        link: DeviceLink,
        vault: Vault,
        lock: EngineCommitLock,
        wake: Callable[[], None],
        on_synced: Callable[[DeviceId], None],
    ) -> None:
        """`bell` wakes whoever calls `settle_owed`. `on_admitted`: an expelled device's retained messages are gone, so what the
        link should hold for it (the schedule plan) must be told anew. `turnstile` is the admission's own."""
        self._uow = uow
        self._link = link
        self._vault = vault
        self._lock = lock
        self._wake = wake
        self._on_synced = on_synced
        self._pending: set[DeviceId] = set()
        self.failure_count = 0
        self.unreadable_count = 0
        """Devices that the last start could not let in, because their passwords were sealed with keys that are lost."""

    @property
    def pending_count(self) -> int:
        """Devices whose stored state the link does not know yet."""
        return len(self._pending)

    async def sync(self, device_id: DeviceId) -> bool:
        """Bring the link in line with the database. False when the link failed; it will be told again."""
        try:
            async with self._lock:
                await self._sync_device(device_id)
        except Exception:  # whatever a link or its broker may raise: the stored change holds, and must be answered
            self.failure_count += 1
            self._pending.add(device_id)
            self._wake()
            return False
        self._pending.discard(device_id)
        return True

    async def retry_pending(self) -> bool:
        """Try again for some that failed. True when nothing is owed any more."""
        for device_id in list(self._pending)[:BATCH_SIZE]:
            if not await self.sync(device_id):
                return False
        return not self._pending

    async def sync_all(self) -> int:
        """At start: every device that may connect. Returns how many. Raises what the link raises."""
        async with self._uow.read() as tx:
            stored = await tx.credentials.list_of_active_devices()
        admitted = [await self._upsert_credentials(device, credentials) for device, credentials in stored]
        self.unreadable_count = admitted.count(False)
        return admitted.count(True)

    async def _sync_device(self, device_id: DeviceId) -> None:
        async with self._uow.read() as tx:
            device = await tx.devices.find(device_id)
            credentials = await tx.credentials.get_for_update(device_id)
        if device is None or credentials is None or device.status is not DeviceStatus.ACTIVE:
            await self._link.remove_device(device_id)
        elif await self._upsert_credentials(device, credentials):
            self._on_synced(device_id)
        else:
            await self._link.remove_device(device_id)

    async def _upsert_credentials(self, device: Device, credentials: DeviceCredentials) -> bool:
        try:
            password = self._vault.open(credentials.sealed, device.device_id)
        except SecretUnreadable:
            return False
        await self._link.upsert_credentials(device.device_id, device.device_no, password, device.profile)
        return True
