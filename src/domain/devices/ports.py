"""Ports of the devices part: its repositories, among them groups of devices, and which instance of a cluster holds the connection
of a device. The link to the devices is in `link.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from domain.devices.channels import ChannelInput, ChannelState, DeclaredChannel
from domain.devices.model import (
    Device,
    DeviceCredentials,
    DeviceGroup,
    DeviceHealth,
    DeviceType,
    DroppedMessages,
    NewConnectionsSummary,
)
from domain.devices.search import DeviceCounts, DeviceSearch
from domain.kernel.errors import NotFound
from domain.kernel.ids import AccountId, DeviceId, DeviceTypeId, GroupId, KeyId, ProjectId
from domain.keys.ports import KeysTx


class DeviceRepository(Protocol):
    async def add(self, device: Device) -> Device:
        """Assign `device_no` (the one passed is ignored): integers from 1, never reused. Raises Conflict `EXTERNAL_ID_TAKEN`."""

    async def add_many(self, new: Sequence[Device]) -> Sequence[Device]:
        """`add` of each, in this order. SQLite needs one thread hop for all."""

    async def get(self, account_id: AccountId, device_id: DeviceId) -> Device | None: ...

    async def get_for_update(self, account_id: AccountId, device_id: DeviceId) -> Device | None:
        """Lock the row until the writing transaction ends: its type and project stay the same."""

    async def get_to_cut_off(self, account_id: AccountId, device_id: DeviceId) -> Device | None:
        """Lock the row until the writing transaction ends, against commands too: those that are being accepted are stored first,
        others find what this transaction leaves."""

    async def find(self, device_id: DeviceId) -> Device | None:
        """Of any account; for internal use."""

    async def list_by_ids(self, device_ids: Collection[DeviceId]) -> Sequence[Device]:
        """Those that exist, in no particular order."""

    async def list_by_external_ids(self, account_id: AccountId, external_ids: Collection[str]) -> Sequence[Device]:
        """Those that exist, in no particular order."""

    async def list_by_hardware_id(self, account_id: AccountId, hardware_id: str) -> Sequence[Device]:
        """Those whose `external_id` is this one (ASCII) in any case."""

    async def list_by_numbers(self, numbers: Collection[int]) -> Sequence[Device]:
        """Those that exist, in no particular order."""

    async def list(self, account_id: AccountId, project_id: ProjectId | None = None) -> Sequence[Device]:
        """Oldest first."""

    async def count(self, account_id: AccountId) -> int: ...

    async def save_deferred(self, device: Device) -> bool:
        """`save` of a device that this transaction has read or added, with the `external_id` that it had. On SQLite it costs no
        thread hop, and a device that was saved since is told later: the transaction ends with Conflict, and nothing is done."""

    async def save(self, device: Device) -> bool:
        """Write the fields that people and the lifecycle decide (not relay, presence, plan revision) and increase `version`.

        False, and nothing written, when the stored version differs from the device's. Raises Conflict `EXTERNAL_ID_TAKEN`."""

    async def set_relay_many(self, relays: Mapping[DeviceId, bool], at_ms: int) -> None:
        """Set the relay states, reported at `at_ms`; unknown devices are ignored."""

    async def declare_channels(
        self, device_id: DeviceId, declared: Sequence[tuple[int, DeclaredChannel]], *, is_complete: bool
    ) -> None:
        """What the firmware names, with its number. `is_complete`: all others are declared no more; they stay, for the slots,
        rules and grants that refer to them. A kind that changes forgets the state."""

    async def describe_channels(self, device_id: DeviceId, channels: Sequence[ChannelInput]) -> None:
        """What a person says: of a declared channel its name, of others the kind too. Those that are not listed lose their name;
        the undeclared of them are deleted."""

    async def set_channel_states(self, states: Mapping[tuple[DeviceId, int], ChannelState], at_ms: int) -> None:
        """The states of channels, reported at `at_ms`; unknown ones are ignored. Whether channel 1 is on is its relay."""

    async def set_online(self, device_id: DeviceId, online: bool) -> bool:
        """True when this call changed it: each change emits one presence event."""

    async def set_online_many(self, device_ids: Collection[DeviceId], online: bool) -> Collection[DeviceId]:
        """`set_online` of many. Returns those that this call changed."""

    async def update_last_seen(self, seen: Mapping[int, int]) -> None:
        """Device number → newest arrival in Unix ms; never moves `last_seen_ms` back."""

    async def increment_plan_revisions(self, device_ids: Collection[DeviceId]) -> None:
        """Increase `sched_rev` by one; unknown devices are ignored."""

    async def skip_plan_revisions(self, count: int) -> None:
        """Increase the revision of every plan by `count`, and of the plans that native firmware does not have: it may hold one
        that this database does not know."""

    async def set_device_plan_revisions(self, revs: Mapping[DeviceId, int]) -> None:
        """Store the plan revision that each device has reported."""

    async def list_online(self) -> Sequence[Device]:
        """Every device that is stored as online, for the recovery after a restart."""

    async def list_deleting(self) -> Sequence[Device]:
        """DELETING devices of all accounts."""

    async def delete_batch(self, device_id: DeviceId, limit: int) -> int:
        """Delete up to `limit` each of the device's executions and deliveries, which may be many; 0 when none are left."""

    async def delete(self, device_id: DeviceId, at_ms: int) -> None:
        """Delete the device with its schedules, rules, grants, executions, approvals, command definitions, credentials, delivery
        rows and current values, and insert a tombstone. `ReadingRepository.delete_batch` deletes its readings afterwards."""

    async def list_tombstones(self) -> Sequence[tuple[int, int]]:
        """(device number, deletion time in Unix ms) of deleted devices that may still have readings, oldest first."""

    async def delete_reported_data(self, device_no: int) -> None:
        """Delete the metrics, last values and health that late messages of a deleted device have stored."""

    async def delete_tombstone(self, device_no: int) -> None: ...


class DeviceCredentialsRepository(Protocol):
    async def get_for_update(self, device_id: DeviceId) -> DeviceCredentials | None: ...

    async def upsert(self, credentials: DeviceCredentials) -> None: ...

    async def delete(self, device_id: DeviceId) -> None: ...

    async def list_of_active_devices(self) -> Sequence[tuple[Device, DeviceCredentials]]:
        """Every ACTIVE device with its credentials."""

    async def page(self, after: DeviceId | None, limit: int) -> Sequence[DeviceCredentials]:
        """By device id, for re-encryption after a key rotation."""

    async def count(self) -> int: ...

    async def rekey(self, device_id: DeviceId, before: bytes, after: bytes) -> bool:
        """Replace the ciphertext `before` by `after`. False, and nothing written, when `before` is no longer stored."""


class DeviceTypeRepository(Protocol):
    async def add(self, device_type: DeviceType) -> None: ...

    async def get(self, account_id: AccountId, device_type_id: DeviceTypeId) -> DeviceType | None: ...

    async def get_for_update(self, account_id: AccountId, device_type_id: DeviceTypeId) -> DeviceType | None:
        """Lock the row until the writing transaction ends: concurrent `get_for_update` and `lock_for_share` wait, and no device
        can be given this type. Read it this way before changing its commands."""

    async def lock_for_share(self, device_type_id: DeviceTypeId) -> None:
        """Keep the type's commands unchanged until the writing transaction ends."""

    async def list(self, account_id: AccountId) -> Sequence[DeviceType]: ...

    async def save(self, device_type: DeviceType) -> None: ...

    async def delete(self, device_type_id: DeviceTypeId) -> None:
        """Delete the type and its definitions; its devices have no type then."""

    async def count_devices(self, device_type_id: DeviceTypeId) -> int: ...


class PendingApprovals(Protocol):
    """What the devices and grants parts need to know of the requests that wait for approval. The approvals part, a higher layer,
    implements it."""

    async def count_pending(self, account_id: AccountId, device_id: DeviceId) -> int:
        """The number of the device's requests that wait."""

    async def list_pending_devices(self, account_id: AccountId, key_id: KeyId) -> Sequence[DeviceId]:
        """The devices for which a request of this key waits."""


MAX_GROUP_DEVICES = 200
"""What is done to a group is done in one transaction, which must stay short."""


class DeviceGroupRepository(Protocol):
    """A device can be a member of many groups; grants on a group cover its members."""

    async def add(self, group: DeviceGroup) -> None:
        """Raises Conflict `GROUP_EXISTS`."""

    async def get(self, account_id: AccountId, group_id: GroupId) -> DeviceGroup | None: ...

    async def get_for_update(self, account_id: AccountId, group_id: GroupId) -> DeviceGroup | None:
        """Lock the row until the writing transaction ends. Read a group this way before you change it or its members."""

    async def list(self, account_id: AccountId, project_id: ProjectId | None = None) -> Sequence[DeviceGroup]:
        """Oldest first."""

    async def save(self, group: DeviceGroup) -> None:
        """Raises Conflict `GROUP_EXISTS`."""

    async def delete(self, group_id: GroupId) -> None:
        """Also deletes the grants on it."""

    async def add_devices(self, group_id: GroupId, device_ids: Collection[DeviceId], added_by: str, at_ms: int) -> None:
        """`added_by`: the label of the caller. Devices that are members already keep theirs."""

    async def remove_devices(self, group_id: GroupId, device_ids: Collection[DeviceId]) -> None:
        """Waits for every transaction that uses a grant on the group for one of these devices."""

    async def remove_from_all(self, device_id: DeviceId) -> None:
        """`remove_devices` of every group that the device is a member of."""

    async def list_device_ids(self, group_ids: Collection[GroupId]) -> Sequence[tuple[GroupId, DeviceId]]:
        """The members, in order of the ids."""

    async def list_adders(self, device_id: DeviceId) -> Mapping[GroupId, str]:
        """The groups of the device, each with the label of who added the device to it."""


async def get_group(tx: DevicesTx, account_id: AccountId, group_id: GroupId, *, for_update: bool = False) -> DeviceGroup:
    """Raises NotFound, also for a group of another account."""
    find = tx.groups.get_for_update if for_update else tx.groups.get
    group = await find(account_id, group_id)
    if group is None:
        raise NotFound.for_resource("group", group_id)
    return group


NO_FRONT = ""
"""The instance of a device whose instance has died; its grace period runs."""


class DeviceConnectionHolderRepository(Protocol):
    """A device that moves to another instance goes offline nowhere."""

    async def attach(self, connected: Mapping[int, int], front: str) -> Collection[int]:
        """These devices, by number, have connected to the instance `front` at these Unix ms. Returns those that had another
        instance until now."""

    async def detach(self, device_nos: Collection[int], front: str) -> None:
        """These devices are offline, unless they have connected to another instance than `front` since."""

    async def fronts(self, device_nos: Collection[int]) -> Mapping[int, str]:
        """Device number → instance, of those that have one. The rows stay as they are until a writing transaction ends."""

    async def connected_since(self, device_nos: Collection[int], live: Collection[str]) -> Mapping[int, int]:
        """Device number → Unix ms of its last connection, of those that are connected to an instance among `live`."""

    async def abandon(self, live: Collection[str]) -> Sequence[int]:
        """Set NO_FRONT for the devices of all instances that are not among `live`. Returns the numbers of all that have it."""


class PossiblySentCommands(Protocol):
    async def mark_possibly_sent(self, at_ms: int, device_ids: Collection[DeviceId] | None = None) -> int:
        """What is queued for these devices may have been sent by an instance that is gone. Returns how many."""


class DeviceHealthRepository(Protocol):
    async def list_by_numbers(self, numbers: Collection[int]) -> Mapping[int, DeviceHealth]:
        """Of those devices about which anything is known."""

    async def add_connections(self, connections: Mapping[int, NewConnectionsSummary]) -> None: ...

    async def set_firmware(self, versions: Mapping[int, str]) -> None: ...

    async def set_clock_offsets(self, offsets_ms: Mapping[int, int]) -> None: ...

    async def add_drops(self, drops: Sequence[DroppedMessages]) -> None:
        """Count the drops and refusals, and remember when the last one of each reason was."""

    async def take_unannounced_drops(
        self, numbers: Collection[int], announced_before_ms: int, now_ms: int
    ) -> Sequence[DroppedMessages]:
        """Of these devices, the counts of each reason that were not announced yet, and whose last announcement, if any, was at or
        before `announced_before_ms`. They count as announced at `now_ms` then."""


class DeviceSearchRepository(Protocol):
    """Devices that are being deleted are never found."""

    async def find(self, account_id: AccountId, search: DeviceSearch) -> Sequence[Device]: ...

    async def count(self, account_id: AccountId, search: DeviceSearch) -> int:
        """How many `find` without `limit` and `offset` would return."""

    async def count_by_state(self, account_id: AccountId) -> DeviceCounts: ...


BatchEnd = tuple[int, int] | None
"""The key of the last reading that a batch deleted; None before the first batch."""


class ErasableDeviceRowsRepository(Protocol):
    """Implemented by the repositories of roll-ups, due marks and dead letters."""

    async def delete_batch(self, device_no: int, limit: int) -> int: ...


class ErasableReadings(Protocol):
    """Implemented by the repository of readings: of millions, each batch begins where the last one ended."""

    async def delete_next_batch(self, device_no: int, limit: int, after: BatchEnd) -> tuple[int, BatchEnd]: ...


class DevicesTx(KeysTx, Protocol):
    """The repositories of this part and of those below it."""

    @property
    def readings(self) -> ErasableReadings: ...

    @property
    def due_rollups(self) -> ErasableDeviceRowsRepository: ...

    @property
    def rollups(self) -> ErasableDeviceRowsRepository: ...

    @property
    def dead_letters(self) -> ErasableDeviceRowsRepository: ...

    @property
    def device_search(self) -> DeviceSearchRepository: ...

    @property
    def devices(self) -> DeviceRepository: ...

    @property
    def credentials(self) -> DeviceCredentialsRepository: ...

    @property
    def device_types(self) -> DeviceTypeRepository: ...

    @property
    def groups(self) -> DeviceGroupRepository: ...

    @property
    def device_sessions(self) -> DeviceConnectionHolderRepository: ...

    @property
    def executions(self) -> PossiblySentCommands: ...

    @property
    def device_health(self) -> DeviceHealthRepository: ...

    @property
    def approvals(self) -> PendingApprovals: ...
