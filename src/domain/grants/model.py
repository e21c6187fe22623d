"""A grant allows one subject (an API key or a membership) named commands on one device, on the members of a
group, or on all devices of a project.

It can be limited by an expiry, weekdays, a daily window in its own time zone and a rolling 60-second rate. Grants only add
permissions: of several, one that allows the call is enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from domain.devices.model import Device
from domain.grants.grant_window import WeeklyGrantWindow
from domain.kernel.dataclasses import fast_frozen
from domain.kernel.ids import AccountId, DeviceId, GrantId, GroupId, KeyId, MembershipId, ProjectId

ANY_COMMAND = "*"


class Scope(StrEnum):
    """READ covers reads and QUERY commands; WRITE adds ACTION commands; FULL is everything a grant can allow."""

    READ = "READ"
    WRITE = "WRITE"
    FULL = "FULL"


class AppliesVia(StrEnum):
    DEVICE = "device"
    GROUP = "group"
    PROJECT = "project"


@dataclass(frozen=True, slots=True)
class GrantSubject:
    """Exactly one of the two is set."""

    key_id: KeyId | None = None
    membership_id: MembershipId | None = None


@dataclass(frozen=True, slots=True)
class ApiKeyReadAccess:
    """The read permission that a grant gives an API key: on which device, group or project, as in `Grant`, and until when."""

    key_id: KeyId
    device_id: DeviceId | None
    project_id: ProjectId | None
    expires_ms: int | None
    group_id: GroupId | None = None

    @property
    def place(self) -> str:
        return self.device_id or self.group_id or self.project_id or ""


@fast_frozen
@dataclass(frozen=True, slots=True)
class Grant:
    """`device_id` is set for a device grant, `project_id` for a project grant. A group grant has `group_id`, and the group's
    project."""

    grant_id: GrantId
    account_id: AccountId
    subject: GrantSubject
    device_id: DeviceId | None
    project_id: ProjectId | None
    commands: tuple[str, ...]
    scope: Scope
    expires_ms: int | None
    window: WeeklyGrantWindow
    rate_limit_per_minute: int | None
    created_ms: int
    created_by: str
    changed_by: tuple[str, ...] = ()
    """The labels of those who have changed it since."""

    group_id: GroupId | None = None

    @property
    def applies_via(self) -> AppliesVia:
        if self.device_id is not None:
            return AppliesVia.DEVICE
        return AppliesVia.PROJECT if self.group_id is None else AppliesVia.GROUP

    @property
    def place(self) -> str:
        """The id of the device, group or project that it is on."""
        return self.device_id or self.group_id or self.project_id or ""

    def applies_to(self, device: Device) -> bool:
        """Whether the grant covers the device, directly or through a group or its project."""
        return self.place in device.places

    def covers_command(self, command: str) -> bool:
        return ANY_COMMAND in self.commands or command in self.commands

    def is_expired(self, now_ms: int) -> bool:
        return self.expires_ms is not None and now_ms >= self.expires_ms
