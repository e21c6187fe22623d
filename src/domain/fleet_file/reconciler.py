"""Compares a section of a file with what is stored, and makes it so. A `KindReconciler` says of one kind of objects how they are
stored, made, changed and deleted; `FleetNameIndex` has the names by which a file refers to objects.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

from domain.devices.model import Device, DeviceGroup, DeviceStatus
from domain.devices.registration import BulkCredentials
from domain.fleet_file.model import (
    CreatedFleetObject,
    DesiredFleetObject,
    Fields,
    FleetAction,
    FleetAfterApplyWork,
    FleetFileWriteServices,
    FleetKind,
    FleetObjectOutcome,
    Key,
    PlannedFieldChange,
    StoredFleetObject,
    display_name,
    with_place,
)
from domain.groups.service import GroupsTx
from domain.kernel.caller import Role, SessionCaller, require_role
from domain.kernel.dataclasses import service
from domain.kernel.errors import DomainError, ValidationFailed
from domain.kernel.ids import AccountId, DeviceId, DeviceTypeId, GroupId, IdPrefix, KeyId, MembershipId, ProjectId, has_id_format
from domain.kernel.unit_of_work import give_way, in_steps
from domain.team.service_sessions import check_operation

Id = TypeVar("Id", bound=str)


@service
class FleetNameIndex:
    """Names and the ids behind them, as of the transaction."""

    account_id: AccountId
    default_project: str = field(default="", init=False)
    """The name of the project of what names none."""
    projects: dict[ProjectId, str] = field(default_factory=dict, init=False)
    device_types: dict[DeviceTypeId, str] = field(default_factory=dict, init=False)
    keys: dict[KeyId, str] = field(default_factory=dict, init=False)
    members: dict[MembershipId, str] = field(default_factory=dict, init=False)
    groups: dict[GroupId, DeviceGroup] = field(default_factory=dict, init=False)
    _devices: dict[str, Device] = field(default_factory=dict, init=False)
    _device_count: int | None = field(default=None, init=False)

    async def load(self, tx: GroupsTx, project: str | None) -> None:
        """Raises ValidationFailed when there is no project of the name `project`."""
        for each, _ in await tx.projects.list_with_device_counts(self.account_id):
            self.projects[each.project_id] = each.name
        self.device_types = {each.device_type_id: each.name for each in await tx.device_types.list(self.account_id)}
        self.keys = {each.key_id: each.name for each in await tx.api_keys.list_by_account(self.account_id)}
        for member in await tx.memberships.list_members(self.account_id):
            self.members[member.membership.membership_id] = member.user.email
        self.groups = {each.group_id: each for each in await tx.groups.list(self.account_id)}
        default = (await tx.projects.get_default(self.account_id)).project_id
        self.default_project = self.projects[default if project is None else self.project_id(project)]

    async def load_devices(self, tx: GroupsTx, references: Iterable[str]) -> None:
        """Before `device`: one query for many."""
        wanted = set(references) - self._devices.keys()
        ids = {DeviceId(each) for each in wanted if has_id_format(IdPrefix.DEVICE, each)}
        for device in await tx.devices.list_by_ids(ids) if ids else ():
            self.add_device(device)
        others = wanted - self._devices.keys()
        for device in await tx.devices.list_by_external_ids(self.account_id, others) if others else ():
            self.add_device(device)

    async def count_new_device(self, tx: GroupsTx) -> int:
        """How many devices the account has before one more is registered; they are counted once for all."""
        found = await tx.devices.count(self.account_id) if self._device_count is None else self._device_count
        self._device_count = found + 1
        return found

    def add_device(self, device: Device) -> None:
        if device.account_id == self.account_id and device.status is not DeviceStatus.DELETING:
            self._devices[device.device_id] = device
            if device.external_id is not None:
                self._devices.setdefault(device.external_id, device)

    def device(self, field: str, reference: str) -> Device:
        """By its `externalId` or `deviceId`, after `load_devices`. Raises ValidationFailed."""
        found = self._devices.get(reference)
        if found is None:
            raise ValidationFailed.for_field(
                field, f"there is no device {reference!r}. Add it to `devices`, or correct the name."
            )
        return found

    def device_name(self, device_id: DeviceId) -> str | None:
        """How a file refers to it; None for one that is not loaded or does not exist."""
        found = self._devices.get(device_id)
        return None if found is None else found.external_id or found.device_id

    def project_id(self, name: str) -> ProjectId:
        return _id_of("project", "projects", name, self.projects)

    def device_type_id(self, name: str) -> DeviceTypeId:
        return _id_of("deviceType", "deviceTypes", name, self.device_types)

    def key_id(self, name: str) -> KeyId:
        return _id_of("apiKey", "apiKeys", name, self.keys)

    def membership_id(self, email: str) -> MembershipId:
        return _id_of("member", "the members of the account", email, self.members)

    def group(self, project: str, name: str) -> DeviceGroup:
        project_id = self.project_id(project)
        for group in self.groups.values():
            if group.project_id == project_id and group.name == name:
                return group
        raise ValidationFailed.for_field("group", f"there is no group {name!r} in project {project!r}. Add it to `groups`.")


def _id_of(field: str, section: str, name: str, names: Mapping[Id, str]) -> Id:
    found = [each for each, known in names.items() if known == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise ValidationFailed.for_field(
            field, f"{len(found)} have the name {name!r}. Rename them so that the file can tell them apart."
        )
    raise ValidationFailed.for_field(field, f"there is no {name!r} in {section}. Add it, or correct the name.")


@dataclass(frozen=True, slots=True)
class FleetFileReadContext:
    """One look at an account, in one transaction. `project`: the only one that it is about."""

    tx: GroupsTx
    caller: SessionCaller
    names: FleetNameIndex
    now_ms: int
    project: str | None = None


@dataclass(frozen=True, slots=True)
class FleetFileWriteContext(FleetFileReadContext):
    """A run that changes the account."""

    writers: FleetFileWriteServices = field(kw_only=True)
    only_compares: bool = False
    postponed: FleetAfterApplyWork = field(kw_only=True)
    prune: bool = False
    credentials: BulkCredentials = BulkCredentials.NONE

    def check_may_differ(self) -> None:
        """Before each change. Raises FleetDiffersError in a run that only compares."""
        if self.only_compares:
            raise FleetDiffersError


class FleetDiffersError(Exception):
    """Not a failure: ends a run that only compares."""


@service
class KindReconciler(ABC):
    """`tag`: the group of operations that act on these objects; `reader` and `writer`: the lowest roles that may
    read them all, and change one."""

    kind: ClassVar[FleetKind]
    tag: ClassVar[str]
    reader: ClassVar[Role] = Role.VIEWER
    writer: ClassVar[Role] = Role.ADMIN
    defaults: ClassVar[Fields] = MappingProxyType({})
    """What an export leaves out."""
    is_scoped: ClassVar[bool] = True
    """Whether its objects belong to projects."""
    may_repeat: ClassVar[bool] = False
    """Whether several objects may have one key; then they are matched in their order."""

    owner: str | None = None
    """The name of the device that the objects belong to, if they do."""

    @classmethod
    def check_readable(cls, caller: SessionCaller) -> None:
        """Raises PermissionDenied."""
        require_role(caller, cls.reader)
        check_operation(caller, cls.tag, is_read=True)

    @classmethod
    def check_writable(cls, caller: SessionCaller) -> None:
        """Raises PermissionDenied."""
        require_role(caller, cls.writer)
        check_operation(caller, cls.tag, is_read=False)

    @abstractmethod
    async def stored(self, run: FleetFileReadContext, wanted: Sequence[DesiredFleetObject] | None) -> Sequence[StoredFleetObject]:
        """Those that `wanted` may match; None: all of them."""

    async def resolve(self, run: FleetFileReadContext, wanted: DesiredFleetObject) -> DesiredFleetObject:
        """With its references in the form that `stored` has them. Raises ValidationFailed."""
        return wanted

    @abstractmethod
    async def create(self, run: FleetFileWriteContext, wanted: DesiredFleetObject) -> CreatedFleetObject: ...

    async def change(self, run: FleetFileWriteContext, stored: StoredFleetObject, changes: Mapping[str, Any]) -> None:
        """`changes`: only fields that differ."""
        raise NotImplementedError

    @abstractmethod
    async def delete(self, run: FleetFileWriteContext, stored: StoredFleetObject) -> None: ...


def defaults_of(model: type[Any], **more: Any) -> Fields:
    """The default values of a dataclass, by field."""
    return {one.name: one.default for one in fields(model) if one.default is not MISSING} | more


async def reconcile(
    reconciler: KindReconciler, run: FleetFileWriteContext, wanted: Sequence[DesiredFleetObject]
) -> list[FleetObjectOutcome]:
    """Make and change what the file wants."""
    _check_distinct(reconciler, wanted)
    found = _UnmatchedObjects(await reconciler.stored(run, wanted))
    outcomes: list[FleetObjectOutcome] = []
    for step in in_steps(wanted):
        for each in step:
            try:
                resolved = await reconciler.resolve(run, each)
                outcomes.append(await _reconcile_one(reconciler, run, resolved, found.pop(resolved.key)))
            except DomainError as error:
                raise with_place(error, each.path) from None
        await give_way()
    return outcomes


async def prune(
    reconciler: KindReconciler, run: FleetFileWriteContext, keep: Collection[str], path: str
) -> list[FleetObjectOutcome]:
    """Delete the stored objects whose ids are not in `keep`."""
    outcomes: list[FleetObjectOutcome] = []
    for stored in reversed(await reconciler.stored(run, None)):
        if stored.id in keep:
            continue
        run.check_may_differ()
        try:
            check_operation(run.caller, reconciler.tag, is_read=False)
            await reconciler.delete(run, stored)
        except DomainError as error:
            raise with_place(error, f"{path} (delete {stored.name})") from None
        outcomes.append(FleetObjectOutcome(reconciler.kind, FleetAction.DELETE, path, stored.name, stored.id, reconciler.owner))
    return outcomes


async def _reconcile_one(
    reconciler: KindReconciler, run: FleetFileWriteContext, wanted: DesiredFleetObject, stored: StoredFleetObject | None
) -> FleetObjectOutcome:
    outcome = FleetObjectOutcome(reconciler.kind, FleetAction.NONE, wanted.path, display_name(wanted.key), "", reconciler.owner)
    if stored is None:
        run.check_may_differ()
        check_operation(run.caller, reconciler.tag, is_read=False)
        made = await reconciler.create(run, wanted)
        return replace(outcome, action=FleetAction.CREATE, id=made.id, secret=made.secret)
    changes = _find_changes(wanted, stored)
    if not changes:
        return replace(outcome, id=stored.id)
    run.check_may_differ()
    check_operation(run.caller, reconciler.tag, is_read=False)
    await reconciler.change(run, stored, {change.name: change.after for change in changes})
    return replace(outcome, action=FleetAction.CHANGE, id=stored.id, changes=changes)


def _find_changes(wanted: DesiredFleetObject, stored: StoredFleetObject) -> tuple[PlannedFieldChange, ...]:
    return tuple(
        PlannedFieldChange(name, stored.fields.get(name), value)
        for name, value in wanted.fields.items()
        if name in wanted.given and stored.fields.get(name) != value
    )


class _UnmatchedObjects:
    def __init__(self, found: Iterable[StoredFleetObject]) -> None:
        self._by_key: dict[Key, deque[StoredFleetObject]] = {}
        self._matched: set[int] = set()
        for each in found:
            for key in each.keys:
                self._by_key.setdefault(key, deque()).append(each)

    def pop(self, key: Key) -> StoredFleetObject | None:
        """The first with this key, which then matches nothing else."""
        found = self._by_key.get(key)
        while found:
            stored = found.popleft()
            if id(stored) not in self._matched:
                self._matched.add(id(stored))
                return stored
        return None


def _check_distinct(reconciler: KindReconciler, wanted: Sequence[DesiredFleetObject]) -> None:
    first: dict[Key, str] = {}
    for each in wanted:
        if each.key in first and not reconciler.may_repeat:
            message = f"{display_name(each.key)!r} is in the file twice: also at {first[each.key]}. Give each its own name."
            raise ValidationFailed.for_field(each.path, message)
        first.setdefault(each.key, each.path)
