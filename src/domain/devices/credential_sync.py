"""Copy device credentials from the database to the link.

A change is committed first and synced before the request is answered. Two changes of one device may overtake each other, so the
sync reads the stored state each time, one device at a time, instead of passing the change on. If the link fails, the device stays
pending and is retried; startup syncs every device. A device whose password no key of the ring can decrypt is not admitted; the
others are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import field

from domain.devices.link import BrokerCredentialUpdater
from domain.devices.model import Device, DeviceCredentials, DeviceStatus
from domain.devices.ports import DevicesTx
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.errors import SecretUnreadable
from domain.kernel.ids import DeviceId
from domain.kernel.ports import Vault
from domain.kernel.unit_of_work import EngineCommitLock, UnitOfWork

BATCH_SIZE = 100


@service
class CredentialSyncService:
    """`wake` wakes the worker that calls `retry_pending`. `on_synced`: removing a device from the link drops its retained
    messages, so its schedule plan must be published again. `lock` belongs to this object alone. `changes`: told of every
    change, in a cluster."""

    uow: UnitOfWork[DevicesTx]
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


MAX_CHANGES = 10_000


class RecentCredentialChanges:
    """The devices whose credentials this instance has taken away or replaced lately, for the other instances of a cluster: one
    that does not reach the database cannot read which devices were revoked, and asks the others."""

    def __init__(self, clock: Clock, limit: int = MAX_CHANGES) -> None:
        self._clock = clock
        self._changes: deque[tuple[int, DeviceId]] = deque(maxlen=limit)
        """(when, monotonic ms; device), oldest first."""
        self._admitted: dict[DeviceId, int] = {}
        """The hash of the sealed password with which each device may connect."""

    def on_admitted(self, credentials: DeviceCredentials) -> None:
        """The device may connect with this password. That is a change only if it had another one: other instances may still know
        that. A renamed device keeps its password."""
        device_id, sealed = credentials.device_id, hash(credentials.sealed)
        if self._admitted.get(device_id, sealed) != sealed:
            self._add(device_id)
        self._admitted[device_id] = sealed

    def on_start(self, admitted: Iterable[DeviceCredentials]) -> None:
        """These devices may connect since the start."""
        self._admitted.update({each.device_id: hash(each.sealed) for each in admitted})

    def on_refused(self, device_id: DeviceId) -> None:
        """The device may not connect any more."""
        self._admitted.pop(device_id, None)
        self._add(device_id)

    def of_last(self, period_ms: int) -> Sequence[DeviceId] | None:
        """The devices that changed within the period; None if there were more changes than are kept."""
        since_ms = self._clock.monotonic_ms() - period_ms
        is_full = len(self._changes) == self._changes.maxlen
        if is_full and self._changes[0][0] >= since_ms:
            return None
        return sorted({device_id for at_ms, device_id in self._changes if at_ms >= since_ms})

    def _add(self, device_id: DeviceId) -> None:
        self._changes.append((self._clock.monotonic_ms(), device_id))
