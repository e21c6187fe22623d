"""Searching a fleet: by text, state and project, sorted and in pages. Only lists of devices use it; thus it is apart."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from domain.kernel.ids import GroupId, ProjectId

MAX_SEARCH_WORDS = 8


class DeviceStateFilter(StrEnum):
    """`online` and `offline` are of ACTIVE devices."""

    ONLINE = "online"
    OFFLINE = "offline"
    ON = "on"
    OFF = "off"
    PENDING = "pending"
    DISABLED = "disabled"
    REVOKED = "revoked"


class DeviceSort(StrEnum):
    """Ties, and `created` itself: oldest first. A device that was never seen is the longest silent one."""

    CREATED = "created"
    NAME = "name"
    LAST_SEEN = "lastSeen"
    LAST_SEEN_NEWEST = "-lastSeen"


@dataclass(frozen=True, slots=True)
class DeviceSearch:
    """`words`: each must be in the name, id, location, tags or application, whatever the case of a–z. `limit` None: all."""

    words: tuple[str, ...] = ()
    state: DeviceStateFilter | None = None
    project_id: ProjectId | None = None
    external_id: str | None = None
    group_id: GroupId | None = None
    tag: str | None = None
    """A whole tag, exactly."""
    sort: DeviceSort = DeviceSort.CREATED
    limit: int | None = None
    offset: int = 0

    @classmethod
    def words_of(cls, text: str) -> tuple[str, ...]:
        return tuple(text.lower().split()[:MAX_SEARCH_WORDS])


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
