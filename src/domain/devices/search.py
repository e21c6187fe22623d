"""Searching a fleet: by text, state and project, sorted and in pages. Only lists of devices use it; thus it is apart."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from domain.devices.model import Device
from domain.kernel.cursors import Position
from domain.kernel.folding import fold, search_terms, search_text
from domain.kernel.ids import GroupId, ProjectId


class DeviceStateFilter(StrEnum):
    """ONLINE and OFFLINE are of ACTIVE devices."""

    ONLINE = "ONLINE"
    OFFLINE = "OFFLINE"
    ON = "ON"
    OFF = "OFF"
    PENDING = "PENDING"
    DISABLED = "DISABLED"
    REVOKED = "REVOKED"


class DeviceSort(StrEnum):
    """Ties, and `created` itself: oldest first. A device that was never seen is the longest silent one."""

    CREATED = "created"
    NAME = "name"
    LAST_SEEN = "lastSeen"
    LAST_SEEN_NEWEST = "-lastSeen"


@dataclass(frozen=True, slots=True)
class DeviceSearch:
    """`words`: each, a word or a phrase, must be in `text_of` the device. `sort` None: the devices in which all of them begin
    words first; then as `created`. `limit` None: all."""

    words: tuple[str, ...] = ()
    state: DeviceStateFilter | None = None
    project_id: ProjectId | None = None
    external_id: str | None = None
    group_id: GroupId | None = None
    tag: str | None = None
    """A whole tag, exactly."""
    sort: DeviceSort | None = None
    limit: int | None = None
    after: Position | None = None
    """Behind which the page begins: a `position_of` a device."""

    @classmethod
    def words_of(cls, text: str) -> tuple[str, ...]:
        return search_terms(text)

    @property
    def position_types(self) -> tuple[type, ...]:
        if self.sort is DeviceSort.NAME:
            return str, int
        is_by_number = self.sort is DeviceSort.CREATED or (self.sort is None and not self.words)
        return (int,) if is_by_number else (int, int)

    def position_of(self, device: Device) -> Position:
        """Its sort key: unique, and ascending in every order."""
        number, seen_ms = device.device_no, device.last_seen_ms or 0
        match self.sort:
            case DeviceSort.NAME:
                return fold(device.name), number
            case DeviceSort.LAST_SEEN:
                return seen_ms, number
            case DeviceSort.LAST_SEEN_NEWEST:
                return -seen_ms, number
            case None if self.words:
                text = self.text_of(device)
                return int(not all(word in text for word in self.words)), number
        return (number,)

    @staticmethod
    def text_of(device: Device) -> str:
        """What a device is found by, as a search text (domain/kernel/folding.py)."""
        about = device.about
        names = (device.name, device.device_id, device.external_id, about.location, *about.tags, device.app_type)
        return search_text((*names, device.app_type_other))


@dataclass(frozen=True, slots=True)
class DeviceCounts:
    """Devices of an account by state; a device counts in several."""

    total: int
    online: int
    offline: int
    on: int
    off: int
    pending: int
    disabled: int
    revoked: int
    dead_letters: int = 0
    """Messages of these devices that are set aside because the database refused them."""
