"""Devices, their credentials and their types."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from adapters.storage.memory.commands import EXECUTIONS
from adapters.storage.memory.erasure import drop_definitions, drop_device, drop_values
from adapters.storage.memory.shelves import Book, Shelf
from adapters.storage.memory.telemetry import GRAVES
from adapters.storage.memory.webhooks import DELIVERIES, drop_deliveries
from domain.devices.model import Device, DeviceCredentials, DeviceStatus, DeviceType
from domain.kernel.errors import NotFound
from domain.kernel.ids import AccountId, DeviceId, DeviceTypeId, ProjectId

DEVICES: Shelf[DeviceId, Device] = Shelf("devices")
CREDENTIALS: Shelf[DeviceId, DeviceCredentials] = Shelf("credentials")
TYPES: Shelf[DeviceTypeId, DeviceType] = Shelf("device_types")


class MemoryDevices:
    def __init__(self, book: Book) -> None:
        self._book = book

    async def add(self, device: Device) -> Device:
        stored = replace(device, device_no=self._book.next("device_no"))
        self._book.edit(DEVICES)[device.device_id] = stored
        return stored

    async def get(self, account_id: AccountId, device_id: DeviceId) -> Device | None:
        device = self._book.rows(DEVICES).get(device_id)
        return device if device is not None and device.account_id == account_id else None

    async def held(self, account_id: AccountId, device_id: DeviceId) -> Device | None:
        return await self.get(account_id, device_id)

    async def find(self, device_id: DeviceId) -> Device | None:
        return self._book.rows(DEVICES).get(device_id)

    async def find_all(self, device_ids: Collection[DeviceId]) -> Sequence[Device]:
        rows = self._book.rows(DEVICES)
        return [rows[device_id] for device_id in set(device_ids) if device_id in rows]

    async def numbered(self, numbers: Collection[int]) -> Sequence[Device]:
        return [device for device in self._all() if device.device_no in numbers]

    async def list(self, account_id: AccountId, project_id: ProjectId | None = None) -> Sequence[Device]:
        return [d for d in self._all() if d.account_id == account_id and project_id in (None, d.project_id)]

    async def count(self, account_id: AccountId) -> int:
        return sum(device.account_id == account_id for device in self._all())

    async def save(self, device: Device) -> bool:
        rows = self._book.edit(DEVICES)
        stored = rows.get(device.device_id)
        if stored is None or stored.version != device.version:
            return False
        rows[device.device_id] = replace(
            device,
            device_no=stored.device_no,
            account_id=stored.account_id,
            created_ms=stored.created_ms,
            version=stored.version + 1,
            relay=stored.relay,
            is_online=stored.is_online,
            last_seen_ms=stored.last_seen_ms,
            sched_rev=stored.sched_rev,
            sched_rev_device=stored.sched_rev_device,
        )
        return True

    async def set_relay(self, device_id: DeviceId, relay: bool) -> bool:
        rows = self._book.edit(DEVICES)
        device = rows.get(device_id)
        if device is None or device.relay is relay:
            return False
        rows[device_id] = replace(device, relay=relay)
        return True

    async def set_relays(self, relays: Mapping[DeviceId, bool]) -> None:
        for device_id, relay in relays.items():
            await self.set_relay(device_id, relay)

    async def set_online(self, device_id: DeviceId, online: bool) -> bool:
        rows = self._book.edit(DEVICES)
        device = rows.get(device_id)
        if device is None or device.is_online is online:
            return False
        rows[device_id] = replace(device, is_online=online)
        return True

    async def set_online_all(self, device_ids: Collection[DeviceId], online: bool) -> Collection[DeviceId]:
        return [device_id for device_id in device_ids if await self.set_online(device_id, online)]

    async def touch(self, seen: Mapping[int, int]) -> None:
        rows = self._book.edit(DEVICES)
        for device in list(rows.values()):
            at_ms = seen.get(device.device_no)
            if at_ms is not None and (device.last_seen_ms is None or at_ms > device.last_seen_ms):
                rows[device.device_id] = replace(device, last_seen_ms=at_ms)

    async def deleting(self) -> Sequence[Device]:
        return [device for device in self._all() if device.status is DeviceStatus.DELETING]

    async def bump_sched_rev(self, device_id: DeviceId) -> int:
        rows = self._book.edit(DEVICES)
        device = rows.get(device_id)
        if device is None:
            raise NotFound.of("device", device_id)
        rows[device_id] = replace(device, sched_rev=device.sched_rev + 1)
        return device.sched_rev + 1

    async def bump_sched_revs(self, device_ids: Collection[DeviceId]) -> None:
        for device in await self.find_all(device_ids):
            await self.bump_sched_rev(device.device_id)

    async def set_sched_revs_device(self, revs: Mapping[DeviceId, int]) -> None:
        rows = self._book.edit(DEVICES)
        for device_id in revs.keys() & rows.keys():
            rows[device_id] = replace(rows[device_id], sched_rev_device=revs[device_id])

    async def online(self) -> Sequence[Device]:
        return [device for device in self._all() if device.is_online]

    async def shed(self, device_id: DeviceId, limit: int) -> int:
        executions = [key for key, e in self._book.rows(EXECUTIONS).items() if e.device_id == device_id][:limit]
        deliveries = [d.no for d in self._book.rows(DELIVERIES).values() if d.device_id == device_id][:limit]
        drop_deliveries(self._book, deliveries)
        return self._book.drop(EXECUTIONS, executions) + len(deliveries)

    async def delete(self, device_id: DeviceId, at_ms: int) -> None:
        device = self._book.rows(DEVICES).get(device_id)
        if device is not None:
            drop_device(self._book, device)
            self._book.edit(GRAVES).setdefault(device.device_no, at_ms)
        self._book.drop(CREDENTIALS, [device_id])
        self._book.drop(DEVICES, [device_id])

    async def graves(self) -> Sequence[tuple[int, int]]:
        return sorted(self._book.rows(GRAVES).items())

    async def forget_values(self, device_no: int) -> None:
        drop_values(self._book, device_no)

    async def close_grave(self, device_no: int) -> None:
        self._book.drop(GRAVES, [device_no])

    def _all(self) -> Sequence[Device]:
        return list(self._book.rows(DEVICES).values())


class MemoryCredentials:
    def __init__(self, book: Book) -> None:
        self._book = book

    async def get(self, device_id: DeviceId) -> DeviceCredentials | None:
        return self._book.rows(CREDENTIALS).get(device_id)

    async def put(self, credentials: DeviceCredentials) -> None:
        self._book.edit(CREDENTIALS)[credentials.device_id] = credentials

    async def delete(self, device_id: DeviceId) -> None:
        self._book.drop(CREDENTIALS, [device_id])

    async def admitted(self) -> Sequence[tuple[Device, DeviceCredentials]]:
        credentials = self._book.rows(CREDENTIALS)
        return [
            (device, credentials[device.device_id])
            for device in self._book.rows(DEVICES).values()
            if device.status is DeviceStatus.ACTIVE and device.device_id in credentials
        ]

    async def page(self, after: DeviceId | None, limit: int) -> Sequence[DeviceCredentials]:
        rows = self._book.rows(CREDENTIALS)
        return [rows[key] for key in sorted(rows) if after is None or key > after][:limit]

    async def count(self) -> int:
        return len(self._book.rows(CREDENTIALS))

    async def reseal(self, device_id: DeviceId, before: bytes, after: bytes) -> bool:
        rows = self._book.edit(CREDENTIALS)
        if device_id not in rows or rows[device_id].sealed != before:
            return False
        rows[device_id] = replace(rows[device_id], sealed=after)
        return True


class MemoryDeviceTypes:
    def __init__(self, book: Book) -> None:
        self._book = book

    async def add(self, device_type: DeviceType) -> None:
        self._book.edit(TYPES)[device_type.device_type_id] = device_type

    async def get(self, account_id: AccountId, device_type_id: DeviceTypeId) -> DeviceType | None:
        found = self._book.rows(TYPES).get(device_type_id)
        return found if found is not None and found.account_id == account_id else None

    async def held(self, account_id: AccountId, device_type_id: DeviceTypeId) -> DeviceType | None:
        return await self.get(account_id, device_type_id)

    async def stays(self, device_type_id: DeviceTypeId) -> None:
        """One writes at a time."""

    async def list(self, account_id: AccountId) -> Sequence[DeviceType]:
        return [found for found in self._book.rows(TYPES).values() if found.account_id == account_id]

    async def save(self, device_type: DeviceType) -> None:
        rows = self._book.edit(TYPES)
        if device_type.device_type_id in rows:
            rows[device_type.device_type_id] = device_type

    async def delete(self, device_type_id: DeviceTypeId) -> None:
        drop_definitions(self._book, lambda definition: definition.device_type_id == device_type_id)
        devices = self._book.edit(DEVICES)
        for key, device in devices.items():
            if device.device_type_id == device_type_id:
                devices[key] = replace(device, device_type_id=None)
        self._book.drop(TYPES, [device_type_id])

    async def in_use(self, device_type_id: DeviceTypeId) -> int:
        return sum(device.device_type_id == device_type_id for device in self._book.rows(DEVICES).values())
