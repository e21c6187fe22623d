"""Use cases of groups: list, make, rename and delete them, and choose their members.

A grant on a group covers its members, so whoever changes the members changes permissions: that needs the role Admin, and while a
request of a key with such a grant waits for approval, only an Owner gives the key another device.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from domain.accounts.model import Project
from domain.devices.lookup import get_device, name_taken_error
from domain.devices.model import Device, DeviceGroup, DeviceStatus
from domain.devices.ports import MAX_GROUP_DEVICES, get_group
from domain.grants.authorizer import Authorizer
from domain.kernel.caller import ApiKeyCaller, Role, SessionCaller
from domain.kernel.checks import check_capacity
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import EventKind, Json, event_of
from domain.kernel.errors import Conflict, NotFound, ValidationFailed
from domain.kernel.folding import fold
from domain.kernel.ids import AccountId, DeviceId, GroupId, IdAndSecretGenerator, IdPrefix, ProjectId
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.ports import RulesTx
from domain.schedules.ports import SchedulesTx
from domain.team.service_sessions import check_operation

Viewer = SessionCaller | ApiKeyCaller


@dataclass(frozen=True, slots=True)
class GroupWithMembers:
    """A group with the members that the caller may see."""

    group: DeviceGroup
    devices: Sequence[Device]


@dataclass(frozen=True, slots=True)
class GroupMembershipChangeCounts:
    """How many devices were added and removed, and how many the group has now."""

    added: int
    removed: int
    total: int


class GroupsTx(RulesTx, SchedulesTx, Protocol):
    """The repositories of the parts below."""


@service
class DeviceGroupService:
    """`on_access_changed` is called after the commit of a change of members."""

    uow: UnitOfWork[GroupsTx]
    clock: Clock
    ids: IdAndSecretGenerator
    authorizer: Authorizer
    on_access_changed: Callable[[AccountId], None]

    async def list(self, caller: Viewer, project_id: ProjectId | None = None) -> Sequence[GroupWithMembers]:
        """Oldest first. An API key sees the groups of the devices that its grants cover."""
        async with self.uow.read() as tx:
            groups = await tx.groups.list(caller.account_id, project_id)
            members = await tx.groups.list_device_ids([group.group_id for group in groups])
            devices = {device.device_id: device for device in await self._visible(tx, caller, {each for _, each in members})}
        found: dict[GroupId, list[Device]] = {group.group_id: [] for group in groups}
        for group_id, device_id in members:
            if device_id in devices:
                found[group_id].append(devices[device_id])
        views = [GroupWithMembers(group, sorted(found[group.group_id], key=_registration_order)) for group in groups]
        return [view for view in views if view.devices or not isinstance(caller, ApiKeyCaller)]

    async def get(self, caller: Viewer, group_id: GroupId) -> GroupWithMembers:
        """Raises NotFound."""
        async with self.uow.read() as tx:
            return await self.view(tx, caller, group_id)

    async def view(
        self, tx: GroupsTx, caller: Viewer, group_id: GroupId, among: Collection[DeviceId] | None = None
    ) -> GroupWithMembers:
        """`get` as a part of a transaction; with the members `among` these only. Oldest device first. Raises NotFound, for a key
        also if it sees no member."""
        group = await get_group(tx, caller.account_id, group_id)
        members = {device_id for _, device_id in await tx.groups.list_device_ids([group_id])}
        devices = await self._visible(tx, caller, members if among is None else members & {*among})
        if not devices and among is None and isinstance(caller, ApiKeyCaller):
            raise NotFound.for_resource("group", group_id)
        return GroupWithMembers(group, devices)

    async def create(
        self,
        caller: SessionCaller,
        name: str,
        *,
        project_id: ProjectId | None = None,
        description: str | None = None,
        device_ids: Collection[DeviceId] = (),
    ) -> GroupWithMembers:
        """Raises PermissionDenied, NotFound, ValidationFailed, Conflict `GROUP_EXISTS`, `GROUP_LIMIT`."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.ADMIN, locks_account=True) as tx:
            project = await _get_project(tx, caller.account_id, project_id)
            existing = await tx.groups.list(caller.account_id)
            check_capacity(len(existing), "GROUP_LIMIT", "An account has at most {limit} groups")
            group_id = GroupId(self.ids.new_id(IdPrefix.GROUP))
            group = DeviceGroup(group_id, caller.account_id, project.project_id, name, description, now_ms)
            _check_name_is_free(group, existing)
            await tx.groups.add(group)
            self._emit(tx, caller, "group_created", f"Group {name} was created", groupId=group_id)
            await self._add(tx, caller, group, set(device_ids), now_ms)
            return await self.view(tx, caller, group_id)

    async def update(self, caller: SessionCaller, group_id: GroupId, changes: Mapping[str, Any]) -> DeviceGroup:
        """`changes`: `name`, `description`. Raises PermissionDenied, NotFound, Conflict `GROUP_EXISTS`."""
        async with self.uow.write(caller, Role.ADMIN, locks_account="name" in changes) as tx:
            before = await get_group(tx, caller.account_id, group_id, for_update=True)
            group = replace(before, **changes)
            if group.name != before.name:
                _check_name_is_free(group, await tx.groups.list(caller.account_id, group.project_id))
            await tx.groups.save(group)
            self._emit(tx, caller, "group_updated", f"Group {group.name} was changed", groupId=group_id)
        return group

    async def delete(self, caller: SessionCaller, group_id: GroupId) -> None:
        """Also deletes the grants on it. Raises PermissionDenied, NotFound."""
        async with self.uow.write(caller, Role.ADMIN) as tx:
            group = await get_group(tx, caller.account_id, group_id, for_update=True)
            await tx.groups.remove_devices(group_id, [each for _, each in await tx.groups.list_device_ids([group_id])])
            await tx.groups.delete(group_id)
            self._emit(tx, caller, "group_deleted", f"Group {group.name} was deleted", groupId=group_id)

    async def change_members(
        self, caller: SessionCaller, group_id: GroupId, add: Collection[DeviceId], remove: Collection[DeviceId]
    ) -> GroupMembershipChangeCounts:
        """Devices that are members already, or no members, are left out of the counts.

        Raises PermissionDenied; NotFound for an unknown group or device; ValidationFailed for a device of another project or of
        both lists; Conflict `GROUP_FULL`, `REQUEST_PENDING`."""
        if both := set(add) & set(remove):
            raise ValidationFailed.for_field("remove", f"{min(both)} is also in `add`. Name each device once.")
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.ADMIN) as tx:
            group = await get_group(tx, caller.account_id, group_id, for_update=True)
            members = {device_id for _, device_id in await tx.groups.list_device_ids([group_id])}
            gone = members & set(remove)
            if gone:
                await tx.groups.remove_devices(group_id, gone)
            added = await self._add(tx, caller, group, set(add) - members, now_ms, others=len(members - gone))
            if added or gone:
                text = f"Group {group.name}: {len(added)} devices added, {len(gone)} removed"
                lists: dict[str, Json] = {"added": [*sorted(added)], "removed": [*sorted(gone)]}
                self._emit(tx, caller, "group_members_changed", text, groupId=group_id, **lists)
        return GroupMembershipChangeCounts(len(added), len(gone), len(members) - len(gone) + len(added))

    async def _add(
        self, tx: GroupsTx, caller: SessionCaller, group: DeviceGroup, device_ids: set[DeviceId], now_ms: int, *, others: int = 0
    ) -> set[DeviceId]:
        if others + len(device_ids) > MAX_GROUP_DEVICES:
            raise Conflict(
                f"A group has at most {MAX_GROUP_DEVICES} devices. Make another group for the rest.", code="GROUP_FULL"
            )
        for device_id in sorted(device_ids):
            device = await get_device(tx, caller.account_id, device_id, for_update=True)  # it stays in its project
            if device.project_id != group.project_id:
                message = f"device {device_id} is in another project than the group. Move it to {group.project_id} first."
                raise ValidationFailed.for_field("add", message)
        if device_ids:
            if await tx.grants.list_by_group(group.group_id):
                check_operation(caller, "grants", is_read=False)  # they reach the new members
            await _check_no_pending_request(tx, caller, group, device_ids)
            await tx.groups.add_devices(group.group_id, device_ids, caller.label, now_ms)
        return device_ids

    async def _visible(self, tx: GroupsTx, caller: Viewer, device_ids: Collection[DeviceId]) -> Sequence[Device]:
        found = [each for each in await tx.devices.list_by_ids(device_ids) if each.status is not DeviceStatus.DELETING]
        return await self.authorizer.filter_readable(tx, caller, sorted(found, key=_registration_order), self.clock.now_ms())

    def _emit(self, tx: GroupsTx, caller: SessionCaller, kind: EventKind, text: str, **data: Json) -> None:
        tx.emit(event_of(caller, kind, text, self.clock.now_ms(), **data))
        tx.after_commit(lambda: self.on_access_changed(caller.account_id))


def _check_name_is_free(wanted: DeviceGroup, existing: Sequence[DeviceGroup]) -> None:
    """Call it in a transaction that locks the account. Names that differ only in case look like one."""
    for group in existing:
        is_other = group.group_id != wanted.group_id and group.project_id == wanted.project_id
        if is_other and fold(group.name) == fold(wanted.name):
            raise name_taken_error(group)


async def _get_project(tx: GroupsTx, account_id: AccountId, project_id: ProjectId | None) -> Project:
    """The default project for None. Raises NotFound."""
    if project_id is None:
        return await tx.projects.get_default(account_id)
    project = await tx.projects.get(account_id, project_id)
    if project is None:
        raise NotFound.for_resource("project", project_id)
    return project


async def _check_no_pending_request(tx: GroupsTx, caller: SessionCaller, group: DeviceGroup, device_ids: set[DeviceId]) -> None:
    """While a request of a key waits for approval, an Admin does not give the key more on that device; an Owner may.

    Raises Conflict `REQUEST_PENDING`."""
    if caller.role is Role.OWNER:
        return
    keys = {grant.subject.key_id for grant in await tx.grants.list_by_group(group.group_id)} - {None}
    for key_id in keys:
        if key_id is not None and device_ids & set(await tx.approvals.list_pending_devices(caller.account_id, key_id)):
            raise Conflict(
                "A request of an API key with a grant on this group waits for approval on one of the devices. Have the request "
                "decided first, or ask an Owner.",
                code="REQUEST_PENDING",
            )


def _registration_order(device: Device) -> int:
    return device.device_no
