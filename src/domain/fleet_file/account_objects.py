"""What belongs to the account as a whole: projects, device types, API keys and webhooks; and who may do what with which devices:
groups, and grants on devices, groups and projects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any, ClassVar

from domain.commands.definitions import EDITABLE_FIELDS, CommandDefinitionInput
from domain.commands.model import CommandDefinition
from domain.devices.model import DeviceStatus
from domain.events.model import DEFAULT_TYPES
from domain.fleet_file.model import CreatedFleetObject, DesiredFleetObject, Fields, FleetKind, StoredFleetObject
from domain.fleet_file.reconciler import FleetFileReadContext, FleetFileWriteContext, KindReconciler, defaults_of
from domain.grants.model import AppliesVia, Grant, GrantSubject
from domain.grants.service import GrantInput, GrantService, NewGrantInput
from domain.kernel.caller import Role, require_role
from domain.kernel.dataclasses import service
from domain.kernel.errors import Conflict, ValidationFailed
from domain.kernel.ids import DeviceId, DeviceTypeId, GrantId, GroupId, KeyId, ProjectId
from domain.webhooks.model import WebhookFormat
from domain.webhooks.service import WebhookService

_GRANT_FIELDS = tuple(one.name for one in fields(GrantInput))
_GRANT_KEY = ("api_key", "member", "device", "group", "project")


class ProjectReconciler(KindReconciler):
    kind = FleetKind.PROJECTS
    tag = "Projects"
    is_scoped = False

    async def stored(self, run: FleetFileReadContext, wanted: Sequence[DesiredFleetObject] | None) -> Sequence[StoredFleetObject]:
        found = await run.tx.projects.list_with_device_counts(run.caller.account_id)
        return [StoredFleetObject(each.project_id, ((each.name,),), {"name": each.name}, each) for each, _ in found]

    async def create(self, run: FleetFileWriteContext, wanted: DesiredFleetObject) -> CreatedFleetObject:
        made = await run.writers.projects.create(run.caller, wanted.fields["name"])
        run.names.projects[made.project_id] = made.name
        return CreatedFleetObject(made.project_id)

    async def delete(self, run: FleetFileWriteContext, stored: StoredFleetObject) -> None:
        """Checked now, done once the rows of its last devices are gone."""
        require_role(run.caller, Role.ADMIN)
        if stored.source.is_default:
            raise Conflict("The default project cannot be deleted. Keep it in the file.", code="DEFAULT_PROJECT")
        devices = await run.tx.devices.list(run.caller.account_id, ProjectId(stored.id))
        left = sum(device.status is not DeviceStatus.DELETING for device in devices)
        if left:
            raise Conflict(f"The project has {left} devices that the file does not name.", code="PROJECT_NOT_EMPTY")
        run.postponed.deleted_projects.append(ProjectId(stored.id))


def command_input(definition: CommandDefinition) -> CommandDefinitionInput:
    return CommandDefinitionInput(**{name: getattr(definition, name) for name in EDITABLE_FIELDS})


class DeviceTypeReconciler(KindReconciler):
    kind = FleetKind.DEVICE_TYPES
    tag = "Device types"
    is_scoped = False
    defaults: ClassVar[Fields] = MappingProxyType({"commands": ()})

    async def stored(self, run: FleetFileReadContext, wanted: Sequence[DesiredFleetObject] | None) -> Sequence[StoredFleetObject]:
        types = await run.tx.device_types.list(run.caller.account_id)
        definitions = await run.tx.definitions.list_by_devices_and_types((), [each.device_type_id for each in types])
        by_type: dict[str | None, list[CommandDefinitionInput]] = {}
        for one in definitions:
            by_type.setdefault(one.device_type_id, []).append(command_input(one))
        found: list[StoredFleetObject] = []
        for each in types:
            commands = sorted(by_type.get(each.device_type_id, ()), key=lambda one: one.name)
            fields = {"name": each.name, "commands": tuple(commands)}
            found.append(StoredFleetObject(each.device_type_id, ((each.name,),), fields, each))
        return found

    async def create(self, run: FleetFileWriteContext, wanted: DesiredFleetObject) -> CreatedFleetObject:
        made = await run.writers.device_types.create(run.caller, wanted.fields["name"], wanted.fields["commands"])
        run.names.device_types[made.device_type.device_type_id] = made.device_type.name
        return CreatedFleetObject(made.device_type.device_type_id)

    async def change(self, run: FleetFileWriteContext, stored: StoredFleetObject, changes: Mapping[str, Any]) -> None:
        await run.writers.device_types.update(run.caller, DeviceTypeId(stored.id), None, changes.get("commands"))

    async def delete(self, run: FleetFileWriteContext, stored: StoredFleetObject) -> None:
        """Checked now, done once the rows of its last devices are gone."""
        require_role(run.caller, Role.ADMIN)
        devices = await run.tx.devices.list(run.caller.account_id)
        used = sum(each.device_type_id == stored.id and each.status is not DeviceStatus.DELETING for each in devices)
        if used:
            raise Conflict(f"{used} devices are of this type. Give them another type first.", code="DEVICE_TYPE_IN_USE")
        run.postponed.deleted_types.append(DeviceTypeId(stored.id))


class ApiKeyReconciler(KindReconciler):
    """Keys of one name are told apart by their order. A file with fewer of them than there are could mean another one."""

    kind = FleetKind.API_KEYS
    tag = "API keys"
    is_scoped = False
    may_repeat = True
    defaults: ClassVar[Fields] = MappingProxyType({"enabled": True})

    async def stored(self, run: FleetFileReadContext, wanted: Sequence[DesiredFleetObject] | None) -> Sequence[StoredFleetObject]:
        found = await run.tx.api_keys.list_by_account(run.caller.account_id)
        stored = Counter(key.name for key in found)
        given = Counter(each.fields["name"] for each in wanted or ())
        for each in wanted or ():
            name = each.fields["name"]
            if given[name] < stored[name]:
                message = f"{stored[name]} have the name {name!r}. Rename them so that the file can tell them apart."
                raise ValidationFailed.for_field(each.path, message)
        return [StoredFleetObject(key.key_id, ((key.name,),), {"name": key.name, "enabled": key.enabled}, key) for key in found]

    async def create(self, run: FleetFileWriteContext, wanted: DesiredFleetObject) -> CreatedFleetObject:
        made = await run.writers.keys.create(run.caller, wanted.fields["name"])
        run.names.keys[made.key.key_id] = made.key.name
        if not wanted.fields["enabled"]:
            await run.writers.keys.update(run.caller, made.key.key_id, enabled=False)
        return CreatedFleetObject(made.key.key_id, made.secret)

    async def change(self, run: FleetFileWriteContext, stored: StoredFleetObject, changes: Mapping[str, Any]) -> None:
        await run.writers.keys.update(run.caller, stored.id, **changes)

    async def delete(self, run: FleetFileWriteContext, stored: StoredFleetObject) -> None:
        await run.writers.keys.delete(run.caller, stored.id)
        run.names.keys.pop(KeyId(stored.id), None)


@service
class WebhookReconciler(KindReconciler):
    """Its URL is shown to Admins only."""

    kind = FleetKind.WEBHOOKS
    tag = "Webhooks"
    reader = Role.ADMIN
    is_scoped = False
    may_repeat = True
    defaults: ClassVar[Fields] = MappingProxyType(
        {"enabled": True, "format": WebhookFormat.STANDARD, "types": tuple(sorted(DEFAULT_TYPES))}
    )

    webhooks: WebhookService

    async def stored(self, run: FleetFileReadContext, wanted: Sequence[DesiredFleetObject] | None) -> Sequence[StoredFleetObject]:
        found: list[StoredFleetObject] = []
        for each in await run.tx.webhooks.list_by_account(run.caller.account_id):
            url, key = self.webhooks.visible_url(run.caller, each), run.names.keys.get(each.key_id, "")
            types = tuple(sorted(each.wanted_types))
            fields = {"api_key": key, "url": url, "types": types, "format": each.format, "enabled": each.enabled}
            found.append(StoredFleetObject(each.webhook_id, ((key, url),), fields, each))
        return found

    async def create(self, run: FleetFileWriteContext, wanted: DesiredFleetObject) -> CreatedFleetObject:
        fields = wanted.fields
        key_id = run.names.key_id(fields["api_key"])
        types = fields["types"] if "types" in wanted.given else None
        made = await run.writers.webhooks.create(
            run.caller, key_id=key_id, url=fields["url"], types=types, webhook_format=fields["format"]
        )
        if not fields["enabled"]:
            await run.writers.webhooks.update(run.caller, made.webhook.webhook_id, enabled=False)
        return CreatedFleetObject(made.webhook.webhook_id, made.secret)

    async def change(self, run: FleetFileWriteContext, stored: StoredFleetObject, changes: Mapping[str, Any]) -> None:
        named = {"webhook_format" if name == "format" else name: value for name, value in changes.items()}
        await run.writers.webhooks.update(run.caller, stored.id, **named)

    async def delete(self, run: FleetFileWriteContext, stored: StoredFleetObject) -> None:
        await run.writers.webhooks.delete(run.caller, stored.id)


class GroupReconciler(KindReconciler):
    kind = FleetKind.GROUPS
    tag = "Groups"
    defaults: ClassVar[Fields] = MappingProxyType({"description": None, "devices": ()})

    async def stored(self, run: FleetFileReadContext, wanted: Sequence[DesiredFleetObject] | None) -> Sequence[StoredFleetObject]:
        project_id = None if run.project is None else run.names.project_id(run.project)
        groups = await run.tx.groups.list(run.caller.account_id, project_id)
        members = await run.tx.groups.list_device_ids([each.group_id for each in groups])
        await run.names.load_devices(run.tx, {device_id for _, device_id in members})
        by_group: dict[GroupId, list[DeviceId]] = {}
        for group_id, device_id in members:
            by_group.setdefault(group_id, []).append(device_id)
        found: list[StoredFleetObject] = []
        for group in groups:
            names = map(run.names.device_name, by_group.get(group.group_id, ()))
            devices = tuple(sorted(name for name in names if name is not None))
            project = run.names.projects[group.project_id]
            shown = {"name": group.name, "project": project, "description": group.description, "devices": devices}
            found.append(StoredFleetObject(group.group_id, ((project, group.name),), shown, group))
        return found

    async def resolve(self, run: FleetFileReadContext, wanted: DesiredFleetObject) -> DesiredFleetObject:
        project = wanted.fields["project"] or run.names.default_project
        run.names.project_id(project)
        references = wanted.fields["devices"]
        await run.names.load_devices(run.tx, references)
        found = [run.names.device(f"devices.{index}", each) for index, each in enumerate(references)]
        devices = tuple(sorted({each.external_id or each.device_id for each in found}))
        shown = {**wanted.fields, "project": project, "devices": devices}
        return replace(wanted, key=(project, wanted.fields["name"]), fields=shown)

    async def create(self, run: FleetFileWriteContext, wanted: DesiredFleetObject) -> CreatedFleetObject:
        given = wanted.fields
        view = await run.writers.groups.create(
            run.caller,
            given["name"],
            project_id=run.names.project_id(given["project"]),
            description=given["description"],
            device_ids=_device_ids(run, given["devices"]),
        )
        run.names.groups[view.group.group_id] = view.group
        return CreatedFleetObject(view.group.group_id)

    async def change(self, run: FleetFileWriteContext, stored: StoredFleetObject, changes: Mapping[str, Any]) -> None:
        if "description" in changes:
            await run.writers.groups.update(run.caller, GroupId(stored.id), {"description": changes["description"]})
        if "devices" in changes:
            before, after = _device_ids(run, stored.fields["devices"]), _device_ids(run, changes["devices"])
            await run.writers.groups.change_members(run.caller, GroupId(stored.id), after - before, before - after)

    async def delete(self, run: FleetFileWriteContext, stored: StoredFleetObject) -> None:
        await run.writers.groups.delete(run.caller, GroupId(stored.id))
        run.names.groups.pop(GroupId(stored.id), None)


def _device_ids(run: FleetFileReadContext, names: Sequence[str]) -> set[DeviceId]:
    return {run.names.device("devices", each).device_id for each in names}


class GrantReconciler(KindReconciler):
    """A grant is known by its subject and what it is on; several of one subject on one device are told apart by their order."""

    kind = FleetKind.GRANTS
    tag = "Grants"
    reader = Role.ADMIN
    may_repeat = True
    defaults: ClassVar[Fields] = defaults_of(GrantInput, **dict.fromkeys(_GRANT_KEY))

    async def stored(self, run: FleetFileReadContext, wanted: Sequence[DesiredFleetObject] | None) -> Sequence[StoredFleetObject]:
        found: list[Grant] = []
        for subject in _subjects(run, wanted):
            found += await run.tx.grants.list_by_subject(run.caller.account_id, subject)
        await run.names.load_devices(run.tx, {each.device_id for each in found if each.device_id is not None})
        shown = [stored for each in found if (stored := _stored_grant(run, each)) is not None]
        return [each for each in shown if run.project is None or _project_name(run, each.source) == run.project]

    async def resolve(self, run: FleetFileReadContext, wanted: DesiredFleetObject) -> DesiredFleetObject:
        given = dict(wanted.fields)
        if given["device"] is not None:
            await run.names.load_devices(run.tx, [given["device"]])
            device = run.names.device("device", given["device"])
            given["device"] = device.external_id or device.device_id
        elif given["group"] is not None:
            given["project"] = given["project"] or run.names.default_project
            run.names.group(given["project"], given["group"])
        else:
            run.names.project_id(given["project"])
        return replace(wanted, key=_grant_key(given), fields=given)

    async def create(self, run: FleetFileWriteContext, wanted: DesiredFleetObject) -> CreatedFleetObject:
        given = wanted.fields
        draft = NewGrantInput(
            input=GrantInput(**{name: given[name] for name in _GRANT_FIELDS}),
            key_id=None if given["api_key"] is None else run.names.key_id(given["api_key"]),
            membership_id=None if given["member"] is None else run.names.membership_id(given["member"]),
        )
        if given["device"] is not None:
            made = await run.writers.grants.create(run.caller, run.names.device("device", given["device"]).device_id, draft)
        elif given["group"] is not None:
            group = run.names.group(given["project"], given["group"])
            made = await run.writers.group_grants.create(run.caller, group.group_id, draft)
        else:
            device_id = await _any_device(run, run.names.project_id(given["project"]))
            made = await run.writers.grants.create(run.caller, device_id, replace(draft, applies_via=AppliesVia.PROJECT))
        return CreatedFleetObject(made.grant.grant_id)

    async def change(self, run: FleetFileWriteContext, stored: StoredFleetObject, changes: Mapping[str, Any]) -> None:
        service, place = await _place_of(run, stored.source)
        await service.update(run.caller, place, GrantId(stored.id), changes)

    async def delete(self, run: FleetFileWriteContext, stored: StoredFleetObject) -> None:
        service, place = await _place_of(run, stored.source)
        await service.delete(run.caller, place, GrantId(stored.id))


def _subjects(run: FleetFileReadContext, wanted: Sequence[DesiredFleetObject] | None) -> list[GrantSubject]:
    keys = None if wanted is None else {each.fields["api_key"] for each in wanted}
    members = None if wanted is None else {each.fields["member"] for each in wanted}
    found = [GrantSubject(key_id=each) for each, name in run.names.keys.items() if keys is None or name in keys]
    return [
        *found,
        *(GrantSubject(membership_id=each) for each, email in run.names.members.items() if members is None or email in members),
    ]


def _stored_grant(run: FleetFileReadContext, grant: Grant) -> StoredFleetObject | None:
    """None for a grant on a device that is being deleted."""
    subject, group = grant.subject, None if grant.group_id is None else run.names.groups.get(grant.group_id)
    shown: dict[str, Any] = dict.fromkeys(_GRANT_KEY)
    if subject.key_id is not None:
        shown["api_key"] = run.names.keys.get(subject.key_id)
    elif subject.membership_id is not None:
        shown["member"] = run.names.members.get(subject.membership_id)
    if grant.device_id is not None:
        shown["device"] = run.names.device_name(grant.device_id)
        if shown["device"] is None:
            return None
    else:
        shown |= {"group": None if group is None else group.name, "project": _project_name(run, grant)}
    content = GrantInput.from_grant(grant)
    shown |= {name: getattr(content, name) for name in _GRANT_FIELDS}
    return StoredFleetObject(grant.grant_id, (_grant_key(shown),), shown, grant)


def _grant_key(given: Fields) -> tuple[str, ...]:
    return tuple(given[name] or "" for name in _GRANT_KEY)


def _project_name(run: FleetFileReadContext, grant: Grant) -> str | None:
    if grant.device_id is not None:
        return run.names.projects.get(run.names.device("device", grant.device_id).project_id)
    return None if grant.project_id is None else run.names.projects.get(grant.project_id)


async def _place_of(run: FleetFileWriteContext, grant: Grant) -> tuple[GrantService[Any], DeviceId | GroupId]:
    if grant.group_id is not None:
        return run.writers.group_grants, grant.group_id
    if grant.device_id is not None:
        return run.writers.grants, grant.device_id
    return run.writers.grants, await _any_device(run, grant.project_id)


async def _any_device(run: FleetFileReadContext, project_id: ProjectId | None) -> DeviceId:
    """Grants on a project are made, changed and deleted at one of its devices. Raises Conflict when it has none."""
    for device in await run.tx.devices.list(run.caller.account_id, project_id):
        if device.status is not DeviceStatus.DELETING:
            return device.device_id
    raise Conflict("The project has no device. Register one before you grant anything on the project.", code="PROJECT_EMPTY")


def check_place(given: Fields) -> None:
    """Raises ValidationFailed unless the grant names one subject and one place."""
    if (given["api_key"] is None) == (given["member"] is None):
        raise ValidationFailed.for_field("apiKey", "name exactly one of `apiKey` and `member` (the email address).")
    if given["device"] is not None and (given["group"] is not None or given["project"] is not None):
        raise ValidationFailed.for_field("device", "name `device`, or `project`, or `group` with its `project`; only one place.")
    if given["device"] is None and given["group"] is None and given["project"] is None:
        raise ValidationFailed.for_field("device", "name what it is on: `device`, `group` or `project`.")
