"""Searching devices."""

from __future__ import annotations

from collections.abc import Sequence

from domain.devices.model import Device, DeviceStatus
from domain.devices.search import DeviceCounts, DeviceSearch, DeviceStateFilter
from domain.kernel.folding import inside
from domain.kernel.ids import AccountId
from support.memory_storage.dead_letters import DEAD_LETTERS
from support.memory_storage.devices import MemoryDeviceRepository
from support.memory_storage.tables import Database

_STATUS = {
    DeviceStateFilter.PENDING: DeviceStatus.PENDING,
    DeviceStateFilter.DISABLED: DeviceStatus.DISABLED,
    DeviceStateFilter.REVOKED: DeviceStatus.REVOKED,
}


class MemoryDeviceSearchRepository:
    def __init__(self, devices: MemoryDeviceRepository, database: Database) -> None:
        self._devices = devices
        self._database = database

    async def find(self, account_id: AccountId, search: DeviceSearch) -> Sequence[Device]:
        found = [each for each in await self._devices.list(account_id, search.project_id) if _matches(each, search)]
        found.sort(key=search.position_of)
        return [each for each in found if search.after is None or search.position_of(each) > search.after][: search.limit]

    async def count(self, account_id: AccountId, search: DeviceSearch) -> int:
        return sum(_matches(each, search) for each in await self._devices.list(account_id, search.project_id))

    async def count_by_state(self, account_id: AccountId) -> DeviceCounts:
        devices = [each for each in await self._devices.list(account_id) if each.status is not DeviceStatus.DELETING]
        by_state = {state.value.lower(): sum(_has_state(each, state) for each in devices) for state in DeviceStateFilter}
        own = {each.device_id for each in devices}
        letters = sum(letter.device_id in own for letter in self._database.rows(DEAD_LETTERS).values())
        return DeviceCounts(len(devices), **by_state, dead_letters=letters)


def _matches(device: Device, search: DeviceSearch) -> bool:
    about, text = device.about, DeviceSearch.text_of(device)
    return (
        device.status is not DeviceStatus.DELETING
        and search.external_id in (None, device.external_id)
        and (search.group_id is None or search.group_id in device.group_ids)
        and (search.tag is None or search.tag in about.tags)
        and all(inside(word) in text for word in search.words)
        and (search.state is None or _has_state(device, search.state))
    )


def _has_state(device: Device, state: DeviceStateFilter) -> bool:
    if state in _STATUS:
        return device.status is _STATUS[state]
    if state in (DeviceStateFilter.ON, DeviceStateFilter.OFF):
        return device.relay is (state is DeviceStateFilter.ON)
    return device.status is DeviceStatus.ACTIVE and device.is_online is (state is DeviceStateFilter.ONLINE)
