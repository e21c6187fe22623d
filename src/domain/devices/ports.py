"""What the devices part needs from outside. The link to the devices themselves is in `link.py`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from domain.devices.model import Device, DeviceCredentials, DeviceType
from domain.kernel.ids import AccountId, DeviceId, DeviceTypeId, ProjectId


class DeviceRepository(Protocol):
    async def add(self, device: Device) -> Device:
        """Gives the device its `device_no` (the one passed is ignored): integers from 1, never used twice."""
        ...

    async def get(self, account_id: AccountId, device_id: DeviceId) -> Device | None: ...

    async def get_for_update(self, account_id: AccountId, device_id: DeviceId) -> Device | None:
        """As `get`; in a writing transaction nobody else changes or deletes it until that ends: its type and its project stay."""
        ...

    async def find(self, device_id: DeviceId) -> Device | None:
        """Whatever its account; for the service's own work."""
        ...

    async def list_by_ids(self, device_ids: Collection[DeviceId]) -> Sequence[Device]:
        """Those of them that are there, in no order."""
        ...

    async def list_by_numbers(self, numbers: Collection[int]) -> Sequence[Device]:
        """Those of them that there are, in any order."""
        ...

    async def list(self, account_id: AccountId, project_id: ProjectId | None = None) -> Sequence[Device]:
        """Oldest first."""
        ...

    async def count(self, account_id: AccountId) -> int: ...

    async def save(self, device: Device) -> bool:
        """Writes what people and the lifecycle decide (not relay, presence, revision); counts `version` up.

        False when the stored version is another than the device's."""
        ...

    async def set_relay_many(self, relays: Mapping[DeviceId, bool]) -> None:
        """`set_relay` of many, for who knows what they were."""
        ...

    async def set_online(self, device_id: DeviceId, online: bool) -> bool:
        """True when this changed it: one presence event per change hangs on that."""
        ...

    async def set_online_many(self, device_ids: Collection[DeviceId], online: bool) -> Collection[DeviceId]:
        """`set_online` of many; which of them this changed."""
        ...

    async def update_last_seen(self, seen: Mapping[int, int]) -> None:
        """Device number → newest arrival in Unix ms; never moves `last_seen_ms` back."""
        ...

    async def increment_plan_revisions(self, device_ids: Collection[DeviceId]) -> None:
        """`bump_sched_rev` of many; those that are gone are passed over."""
        ...

    async def set_device_plan_revisions(self, revs: Mapping[DeviceId, int]) -> None:
        """Which revision of its plan each of them holds."""
        ...

    async def list_online(self) -> Sequence[Device]:
        """Every device that is marked online; the service puts that right after a restart."""
        ...

    async def list_deleting(self) -> Sequence[Device]:
        """Devices whose deletion is under way, of all accounts."""
        ...

    async def delete_batch(self, device_id: DeviceId, limit: int) -> int:
        """Delete up to `limit` each of the device's executions and deliveries, which may be many; 0 when none are left."""
        ...

    async def delete(self, device_id: DeviceId, at_ms: int) -> None:
        """Takes schedules, rules, grants, executions, approvals, command definitions, credentials, delivery rows and the
        current values along, and digs a grave for its readings, which go by `ReadingRepository.delete_some` afterwards."""
        ...

    async def list_tombstones(self) -> Sequence[tuple[int, int]]:
        """(device number, deleted when in Unix ms) of devices that may still have readings, oldest first."""
        ...

    async def delete_metrics_and_values(self, device_no: int) -> None:
        """What late messages have brought back of a deleted device beside readings: metrics and last values."""
        ...

    async def delete_tombstone(self, device_no: int) -> None: ...


class DeviceCredentialsRepository(Protocol):
    async def get_for_update(self, device_id: DeviceId) -> DeviceCredentials | None: ...

    async def upsert(self, credentials: DeviceCredentials) -> None: ...

    async def delete(self, device_id: DeviceId) -> None: ...

    async def list_of_active_devices(self) -> Sequence[tuple[Device, DeviceCredentials]]:
        """Every ACTIVE device that may connect, at start."""
        ...

    async def page(self, after: DeviceId | None, limit: int) -> Sequence[DeviceCredentials]:
        """For re-encryption after a key rotation, by device id."""
        ...

    async def count(self) -> int: ...

    async def rekey(self, device_id: DeviceId, before: bytes, after: bytes) -> bool:
        """The same password under another key. False, and nothing done, when what is stored is no longer `before`."""
        ...


class DeviceTypeRepository(Protocol):
    async def add(self, device_type: DeviceType) -> None: ...

    async def get(self, account_id: AccountId, device_type_id: DeviceTypeId) -> DeviceType | None: ...

    async def get_for_update(self, account_id: AccountId, device_type_id: DeviceTypeId) -> DeviceType | None:
        """As `get`; in a writing transaction nobody else changes it, looks it up by `held` or `stays`, or gives it to a device,
        until that ends. Who changes its commands must have read it so."""
        ...

    async def lock_for_share(self, device_type_id: DeviceTypeId) -> None:
        """In a writing transaction its commands are from here on what they are until that ends."""
        ...

    async def list(self, account_id: AccountId) -> Sequence[DeviceType]: ...

    async def save(self, device_type: DeviceType) -> None: ...

    async def delete(self, device_type_id: DeviceTypeId) -> None:
        """Its definitions go with it; devices of this type keep none."""
        ...

    async def count_devices(self, device_type_id: DeviceTypeId) -> int: ...


class HasDevices(Protocol):
    @property
    def devices(self) -> DeviceRepository: ...


class HasDeviceCredentials(Protocol):
    @property
    def credentials(self) -> DeviceCredentialsRepository: ...


class HasDeviceTypes(Protocol):
    @property
    def device_types(self) -> DeviceTypeRepository: ...


class Vault(Protocol):
    """AES-GCM under a key ring. `bound_to` is associated data: a ciphertext moved to another row does not open."""

    def seal(self, secret: str, bound_to: str) -> bytes: ...

    def open(self, sealed: bytes, bound_to: str) -> str:
        """Raises SecretUnreadable when no key of the ring opens it."""
        ...

    def needs_rekey(self, sealed: bytes) -> bool:
        """Whether it was sealed under another key than the newest."""
        ...
