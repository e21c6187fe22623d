"""Devices, their credentials and their types."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from domain.devices.channels import UNKNOWN_STATE, Channel, ChannelInput, ChannelState, DeclaredChannel
from domain.devices.lookup import external_id_taken_error
from domain.devices.model import Device, DeviceCredentials, DeviceStatus, DeviceType, FirmwareProfile
from domain.kernel.ids import AccountId, DeviceId, DeviceTypeId, ProjectId
from support.memory_storage.arrivals import LATE
from support.memory_storage.cascade_delete import delete_definitions, delete_device_dependants, delete_device_values
from support.memory_storage.commands import EXECUTIONS
from support.memory_storage.tables import Database, Table
from support.memory_storage.telemetry import TOMBSTONES
from support.memory_storage.webhooks import DELIVERIES, delete_deliveries

DEVICES: Table[DeviceId, Device] = Table("devices")
CREDENTIALS: Table[DeviceId, DeviceCredentials] = Table("credentials")
DEVICE_TYPES: Table[DeviceTypeId, DeviceType] = Table("device_types")


class MemoryDeviceRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, device: Device) -> Device:
        self._check_external_id(device)
        stored = replace(device, device_no=self._database.next_value("device_no"))
        self._database.writable_rows(DEVICES)[device.device_id] = stored
        return stored

    async def add_many(self, new: Sequence[Device]) -> Sequence[Device]:
        return [await self.add(device) for device in new]

    async def save_deferred(self, device: Device) -> bool:
        return await self.save(device)

    async def get(self, account_id: AccountId, device_id: DeviceId) -> Device | None:
        device = self._database.rows(DEVICES).get(device_id)
        return device if device is not None and device.account_id == account_id else None

    async def get_for_update(self, account_id: AccountId, device_id: DeviceId) -> Device | None:
        return await self.get(account_id, device_id)

    async def get_to_cut_off(self, account_id: AccountId, device_id: DeviceId) -> Device | None:
        return await self.get(account_id, device_id)

    async def find(self, device_id: DeviceId) -> Device | None:
        return self._database.rows(DEVICES).get(device_id)

    async def list_by_ids(self, device_ids: Collection[DeviceId]) -> Sequence[Device]:
        rows = self._database.rows(DEVICES)
        return [rows[device_id] for device_id in set(device_ids) if device_id in rows]

    async def list_by_external_ids(self, account_id: AccountId, external_ids: Collection[str]) -> Sequence[Device]:
        return [d for d in self._all() if d.account_id == account_id and d.external_id in external_ids]

    async def list_by_hardware_id(self, account_id: AccountId, hardware_id: str) -> Sequence[Device]:
        wanted = hardware_id.upper()
        mine = [d for d in self._all() if d.account_id == account_id and (d.external_id or "").isascii()]
        return [d for d in mine if (d.external_id or "").upper() == wanted]

    def _check_external_id(self, device: Device) -> None:
        taken = self._all() if device.external_id is not None else ()
        if any(
            (d.account_id, d.external_id) == (device.account_id, device.external_id) and d.device_id != device.device_id
            for d in taken
        ):
            raise external_id_taken_error(device.external_id)

    async def list_by_numbers(self, numbers: Collection[int]) -> Sequence[Device]:
        return [device for device in self._all() if device.device_no in numbers]

    async def list(self, account_id: AccountId, project_id: ProjectId | None = None) -> Sequence[Device]:
        return [d for d in self._all() if d.account_id == account_id and project_id in (None, d.project_id)]

    async def count(self, account_id: AccountId) -> int:
        return sum(device.account_id == account_id for device in self._all())

    async def save(self, device: Device) -> bool:
        rows = self._database.writable_rows(DEVICES)
        stored = rows.get(device.device_id)
        if stored is None or stored.version != device.version:
            return False
        self._check_external_id(device)
        rows[device.device_id] = replace(
            device,
            device_no=stored.device_no,
            account_id=stored.account_id,
            created_ms=stored.created_ms,
            version=stored.version + 1,
            relay=stored.relay,
            relay_ms=stored.relay_ms,
            channels=stored.channels,
            is_online=stored.is_online,
            last_seen_ms=stored.last_seen_ms,
            sched_rev=stored.sched_rev,
            sched_rev_device=stored.sched_rev_device,
            group_ids=stored.group_ids,
        )
        return True

    async def set_relay_many(self, relays: Mapping[DeviceId, bool], at_ms: int) -> None:
        for device_id, relay in relays.items():
            rows = self._database.writable_rows(DEVICES)
            if device_id in rows and rows[device_id].relay is not relay:
                rows[device_id] = replace(rows[device_id], relay=relay, relay_ms=at_ms)

    async def declare_channels(
        self, device_id: DeviceId, declared: Sequence[tuple[int, DeclaredChannel]], *, is_complete: bool
    ) -> None:
        known = self._channels_of(device_id)
        if is_complete:
            known = {number: replace(each, is_declared=False) for number, each in known.items()}
        for number, each in declared:
            before = known.get(number, Channel(number, each.kind))
            others = {before.component, each.component}
            if before.kind is not each.kind:
                before = replace(before, kind=each.kind, state=UNKNOWN_STATE, reported_ms=None)
            known[number] = replace(
                before,
                firmware_name=each.name or (before.firmware_name if None in others or len(others) == 1 else None),
                component=each.component or before.component,
                is_declared=True,
            )
        self._set_channels(device_id, known)

    async def describe_channels(self, device_id: DeviceId, channels: Sequence[ChannelInput]) -> None:
        before, given = self._channels_of(device_id), {each.channel: each for each in channels}
        known = {number: replace(each, given_name=None) for number, each in before.items() if each.is_declared}
        known |= {number: before[number] for number in given if number in before}
        for number, each in given.items():
            channel = known.get(number, Channel(number, each.kind))
            if channel.kind is not each.kind and not channel.is_declared:
                channel = replace(channel, kind=each.kind, state=UNKNOWN_STATE, reported_ms=None)
            known[number] = replace(channel, given_name=each.name)
        self._set_channels(device_id, known)

    async def set_channel_states(self, states: Mapping[tuple[DeviceId, int], ChannelState], at_ms: int) -> None:
        for (device_id, number), state in states.items():
            known = self._channels_of(device_id)
            if number in known:
                known[number] = replace(known[number], state=state, reported_ms=at_ms)
                self._set_channels(device_id, known)

    def _channels_of(self, device_id: DeviceId) -> dict[int, Channel]:
        device = self._database.writable_rows(DEVICES).get(device_id)
        return {} if device is None else {each.channel: each for each in device.channels}

    def _set_channels(self, device_id: DeviceId, known: Mapping[int, Channel]) -> None:
        rows = self._database.writable_rows(DEVICES)
        if device_id in rows:
            rows[device_id] = replace(rows[device_id], channels=tuple(known[number] for number in sorted(known)))

    async def set_online(self, device_id: DeviceId, online: bool) -> bool:
        rows = self._database.writable_rows(DEVICES)
        device = rows.get(device_id)
        if device is None or device.is_online is online:
            return False
        rows[device_id] = replace(device, is_online=online)
        return True

    async def set_online_many(self, device_ids: Collection[DeviceId], online: bool) -> Collection[DeviceId]:
        return [device_id for device_id in device_ids if await self.set_online(device_id, online)]

    async def update_last_seen(self, seen: Mapping[int, int]) -> None:
        rows = self._database.writable_rows(DEVICES)
        for device in list(rows.values()):
            at_ms = seen.get(device.device_no)
            if at_ms is not None and (device.last_seen_ms is None or at_ms > device.last_seen_ms):
                rows[device.device_id] = replace(device, last_seen_ms=at_ms)

    async def list_deleting(self) -> Sequence[Device]:
        return [device for device in self._all() if device.status is DeviceStatus.DELETING]

    async def increment_plan_revisions(self, device_ids: Collection[DeviceId]) -> None:
        for device in await self.list_by_ids(device_ids):
            self._database.writable_rows(DEVICES)[device.device_id] = replace(device, sched_rev=device.sched_rev + 1)

    async def skip_plan_revisions(self, count: int) -> None:
        rows = self._database.writable_rows(DEVICES)
        for device in list(rows.values()):
            if device.sched_rev > 0 or device.profile is FirmwareProfile.NATIVE:
                rows[device.device_id] = replace(device, sched_rev=device.sched_rev + count)

    async def set_device_plan_revisions(self, revs: Mapping[DeviceId, int]) -> None:
        rows = self._database.writable_rows(DEVICES)
        for device_id in revs.keys() & rows.keys():
            rows[device_id] = replace(rows[device_id], sched_rev_device=revs[device_id])

    async def list_online(self) -> Sequence[Device]:
        return [device for device in self._all() if device.is_online]

    async def delete_batch(self, device_id: DeviceId, limit: int) -> int:
        executions = [key for key, e in self._database.rows(EXECUTIONS).items() if e.device_id == device_id][:limit]
        deliveries = [d.no for d in self._database.rows(DELIVERIES).values() if d.device_id == device_id][:limit]
        delete_deliveries(self._database, deliveries)
        return self._database.delete(EXECUTIONS, executions) + len(deliveries)

    async def delete(self, device_id: DeviceId, at_ms: int) -> None:
        device = self._database.rows(DEVICES).get(device_id)
        if device is not None:
            delete_device_dependants(self._database, device)
            self._database.writable_rows(TOMBSTONES).setdefault(device.device_no, at_ms)
        self._database.delete(CREDENTIALS, [device_id])
        self._database.delete(DEVICES, [device_id])

    async def list_tombstones(self) -> Sequence[tuple[int, int]]:
        return sorted(self._database.rows(TOMBSTONES).items())

    async def delete_reported_data(self, device_no: int) -> None:
        delete_device_values(self._database, device_no)
        for key in [key for key in self._database.rows(LATE) if key[0] == device_no]:
            self._database.delete(LATE, [key])

    async def delete_tombstone(self, device_no: int) -> None:
        self._database.delete(TOMBSTONES, [device_no])

    def _all(self) -> Sequence[Device]:
        return list(self._database.rows(DEVICES).values())


class MemoryDeviceCredentialsRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def get_for_update(self, device_id: DeviceId) -> DeviceCredentials | None:
        return self._database.rows(CREDENTIALS).get(device_id)

    async def upsert(self, credentials: DeviceCredentials) -> None:
        self._database.writable_rows(CREDENTIALS)[credentials.device_id] = credentials

    async def delete(self, device_id: DeviceId) -> None:
        self._database.delete(CREDENTIALS, [device_id])

    async def list_of_active_devices(self) -> Sequence[tuple[Device, DeviceCredentials]]:
        credentials = self._database.rows(CREDENTIALS)
        return [
            (device, credentials[device.device_id])
            for device in self._database.rows(DEVICES).values()
            if device.status is DeviceStatus.ACTIVE and device.device_id in credentials
        ]

    async def page(self, after: DeviceId | None, limit: int) -> Sequence[DeviceCredentials]:
        rows = self._database.rows(CREDENTIALS)
        return [rows[key] for key in sorted(rows) if after is None or key > after][:limit]

    async def count(self) -> int:
        return len(self._database.rows(CREDENTIALS))

    async def rekey(self, device_id: DeviceId, before: bytes, after: bytes) -> bool:
        rows = self._database.writable_rows(CREDENTIALS)
        if device_id not in rows or rows[device_id].sealed != before:
            return False
        rows[device_id] = replace(rows[device_id], sealed=after)
        return True


class MemoryDeviceTypeRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, device_type: DeviceType) -> None:
        self._database.writable_rows(DEVICE_TYPES)[device_type.device_type_id] = device_type

    async def get(self, account_id: AccountId, device_type_id: DeviceTypeId) -> DeviceType | None:
        found = self._database.rows(DEVICE_TYPES).get(device_type_id)
        return found if found is not None and found.account_id == account_id else None

    async def get_for_update(self, account_id: AccountId, device_type_id: DeviceTypeId) -> DeviceType | None:
        return await self.get(account_id, device_type_id)

    async def lock_for_share(self, device_type_id: DeviceTypeId) -> None:
        """One writes at a time."""

    async def list(self, account_id: AccountId) -> Sequence[DeviceType]:
        return [found for found in self._database.rows(DEVICE_TYPES).values() if found.account_id == account_id]

    async def save(self, device_type: DeviceType) -> None:
        rows = self._database.writable_rows(DEVICE_TYPES)
        if device_type.device_type_id in rows:
            rows[device_type.device_type_id] = device_type

    async def delete(self, device_type_id: DeviceTypeId) -> None:
        delete_definitions(self._database, lambda definition: definition.device_type_id == device_type_id)
        devices = self._database.writable_rows(DEVICES)
        for key, device in devices.items():
            if device.device_type_id == device_type_id:
                devices[key] = replace(device, device_type_id=None)
        self._database.delete(DEVICE_TYPES, [device_type_id])

    async def count_devices(self, device_type_id: DeviceTypeId) -> int:
        return sum(device.device_type_id == device_type_id for device in self._database.rows(DEVICES).values())
