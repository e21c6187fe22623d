"""A fleet as a file: the objects that a file wants, the stored ones that they are compared with, what came of each, and the
services with which a file is applied.

An object is matched by its key, which is what its readers call it: a project by its name, a device by its `externalId`, a
schedule by its slot. Fields have the names and values of the domain's inputs; a reference to another object is that object's key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from domain.accounts.projects import ProjectService
from domain.commands.definitions import CommandDefinitionService
from domain.commands.device_types import DeviceTypeAdminService
from domain.devices.credentials import CredentialIssuer, RevealedCredentials
from domain.devices.model import Device
from domain.devices.service import DeviceService
from domain.grants.service import GrantService, GroupGrantService
from domain.groups.service import DeviceGroupService, GroupsTx
from domain.kernel.errors import Conflict, DomainError, FieldError, NotFound, ValidationFailed
from domain.kernel.ids import DeviceId, DeviceTypeId, ProjectId
from domain.kernel.unit_of_work import JoinedUnitOfWork
from domain.keys.service import ApiKeyService
from domain.rules.service import RuleService
from domain.schedules.service import ScheduleService
from domain.webhooks.service import WebhookService

MAX_OBJECTS = 2_500
"""An apply is one transaction, which must stay short."""

Key: TypeAlias = tuple[str | int, ...]
Fields: TypeAlias = Mapping[str, Any]

DEVICE_KEYS = ("externalId", "deviceId")
"""The first part of a device's key."""


class FleetKind(StrEnum):
    """The kinds of objects, in the order in which they are made. The value names the section of the file."""

    PROJECTS = "projects"
    DEVICE_TYPES = "deviceTypes"
    DEVICES = "devices"
    COMMANDS = "commands"
    SCHEDULES = "schedules"
    RULES = "rules"
    GROUPS = "groups"
    API_KEYS = "apiKeys"
    GRANTS = "grants"
    WEBHOOKS = "webhooks"


class FleetAction(StrEnum):
    CREATE = "CREATE"
    CHANGE = "CHANGE"
    DELETE = "DELETE"
    NONE = "NONE"


@dataclass(frozen=True, slots=True)
class DesiredFleetObject:
    """An object as the file wants it. `path`: its place in the request, such as `document.devices.3.rules.0`. `fields`:
    those of a new object; `given`: the ones that the file names, all others of a stored object keep their value. `children`: the
    sections of a device that the file names."""

    path: str
    key: Key
    fields: Fields
    given: frozenset[str]
    children: Mapping[FleetKind, Sequence[DesiredFleetObject]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FleetDocument:
    """The sections that the file names; the objects of other sections are left alone. `project`: the name of the one project
    that it is about, if it is; then devices, groups and grants of other projects do not count as missing in it."""

    sections: Mapping[FleetKind, Sequence[DesiredFleetObject]]
    project: str | None = None

    def kinds(self) -> frozenset[FleetKind]:
        inner = {kind for wanted in self.sections.get(FleetKind.DEVICES, ()) for kind in wanted.children}
        return frozenset(self.sections) | inner

    def count(self) -> int:
        return sum(1 + sum(map(len, each.children.values())) for section in self.sections.values() for each in section)


@dataclass(frozen=True, slots=True)
class StoredFleetObject:
    """`keys`: what it can be matched by. `fields`: with those that make up its key, as an export writes them."""

    id: str
    keys: tuple[Key, ...]
    fields: Fields
    source: Any
    children: Mapping[FleetKind, Sequence[StoredFleetObject]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return display_name(self.keys[0])


@dataclass(frozen=True, slots=True)
class PlannedFieldChange:
    name: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class CreatedFleetObject:
    """`secret` is shown once: the text of an API key or of a webhook's secret."""

    id: str
    secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class FleetObjectOutcome:
    """Of one object. `id` is the one that a rehearsal has made up for a new object, too."""

    kind: FleetKind
    action: FleetAction
    path: str
    name: str
    id: str
    owner: str | None = None
    """The name of the device that a command, schedule or rule belongs to."""
    changes: tuple[PlannedFieldChange, ...] = ()
    secret: str | None = field(default=None, repr=False)
    credentials: RevealedCredentials | None = None


def display_name(key: Key) -> str:
    shown = key[1:] if key[0] in DEVICE_KEYS else key
    return " / ".join(str(part) for part in shown if part != "")


def with_place(error: DomainError, path: str) -> DomainError:
    """The same error, which says where in the file its cause is."""
    details = [FieldError(f"{path}.{fault.field}", fault.message) for fault in error.details] or [FieldError(path, error.message)]
    message = f"{path}: {error.message}" if not error.details else f"{details[0].field}: {details[0].message}"
    if isinstance(error, ValidationFailed | Conflict | NotFound):
        kind = ValidationFailed if isinstance(error, NotFound) else type(error)
        return kind(message, code=error.code, details=details)
    error.message, error.details = message, tuple(details)
    return error


@dataclass(slots=True)
class FleetAfterApplyWork:
    """What services do about a device after their commit, kept until the whole apply is committed."""

    synced: list[DeviceId] = field(default_factory=list)
    erased: list[Device] = field(default_factory=list)
    deleted_projects: list[ProjectId] = field(default_factory=list)
    deleted_types: list[DeviceTypeId] = field(default_factory=list)
    """Both can be deleted when their last devices are erased."""

    async def sync(self, device_id: DeviceId) -> bool:
        self.synced.append(device_id)
        return True

    async def erase(self, device: Device) -> bool:
        self.erased.append(device)
        return True


@dataclass(frozen=True, slots=True)
class FleetFileWriteServices:
    """Those of the single calls, so that every check and every event is theirs."""

    projects: ProjectService
    device_types: DeviceTypeAdminService
    devices: DeviceService
    issuer: CredentialIssuer
    definitions: CommandDefinitionService
    schedules: ScheduleService
    rules: RuleService
    groups: DeviceGroupService
    keys: ApiKeyService[GroupsTx]
    grants: GrantService[GroupsTx]
    group_grants: GroupGrantService[GroupsTx]
    webhooks: WebhookService


MakeWriters: TypeAlias = Callable[[JoinedUnitOfWork[GroupsTx], FleetAfterApplyWork], FleetFileWriteServices]
