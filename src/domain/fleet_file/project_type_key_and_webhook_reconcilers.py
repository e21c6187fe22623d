"""What belongs to the account as a whole: projects, device types, API keys, webhooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from domain.commands.definitions import EDITABLE_FIELDS, CommandDefinitionInput
from domain.commands.model import CommandDefinition
from domain.devices.model import DeviceStatus
from domain.events.model import DEFAULT_TYPES
from domain.fleet_file.model import CreatedFleetObject, DesiredFleetObject, Fields, FleetKind, StoredFleetObject
from domain.fleet_file.reconciler import FleetFileKindReconciler, FleetFileReadContext, FleetFileWriteContext
from domain.kernel.caller import Role, require_role
from domain.kernel.errors import Conflict
from domain.kernel.ids import DeviceTypeId, KeyId, ProjectId
from domain.webhooks.model import WebhookFormat
from domain.webhooks.service import WebhookService


class FleetFileProjectReconciler(FleetFileKindReconciler):
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


class FleetFileDeviceTypeReconciler(FleetFileKindReconciler):
    kind = FleetKind.DEVICE_TYPES
    tag = "Device types"
    is_scoped = False
    defaults: ClassVar[Fields] = MappingProxyType({"commands": ()})

    async def stored(self, run: FleetFileReadContext, wanted: Sequence[DesiredFleetObject] | None) -> Sequence[StoredFleetObject]:
        types = await run.tx.device_types.list(run.caller.account_id)
        definitions = await run.tx.definitions.list_by_devices_and_types((), [each.device_type_id for each in types])
        found: list[StoredFleetObject] = []
        for each in types:
            own = [command_input(one) for one in definitions if one.device_type_id == each.device_type_id]
            fields = {"name": each.name, "commands": tuple(sorted(own, key=lambda one: one.name))}
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


class FleetFileApiKeyReconciler(FleetFileKindReconciler):
    kind = FleetKind.API_KEYS
    tag = "API keys"
    is_scoped = False
    defaults: ClassVar[Fields] = MappingProxyType({"enabled": True})

    async def stored(self, run: FleetFileReadContext, wanted: Sequence[DesiredFleetObject] | None) -> Sequence[StoredFleetObject]:
        found = await run.tx.api_keys.list_by_account(run.caller.account_id)
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


class FleetFileWebhookReconciler(FleetFileKindReconciler):
    """Its URL is shown to Admins only."""

    kind = FleetKind.WEBHOOKS
    tag = "Webhooks"
    reader = Role.ADMIN
    is_scoped = False
    may_repeat = True
    defaults: ClassVar[Fields] = MappingProxyType(
        {"enabled": True, "format": WebhookFormat.STANDARD, "types": tuple(sorted(DEFAULT_TYPES))}
    )

    def __init__(self, webhooks: WebhookService) -> None:
        super().__init__()
        self._webhooks = webhooks

    async def stored(self, run: FleetFileReadContext, wanted: Sequence[DesiredFleetObject] | None) -> Sequence[StoredFleetObject]:
        found: list[StoredFleetObject] = []
        for each in await run.tx.webhooks.list_by_account(run.caller.account_id):
            url, key = self._webhooks.visible_url(run.caller, each), run.names.keys.get(each.key_id, "")
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
