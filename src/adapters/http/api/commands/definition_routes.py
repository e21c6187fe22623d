"""The commands that are defined for a device."""

from __future__ import annotations

from adapters.http.api.commands import schemas as schema
from adapters.http.core.caller_authentication import AllowedCallers, current_caller, current_session
from adapters.http.core.operation import ApiBlueprint
from domain.commands.definitions import CommandDefinitionService
from domain.kernel.ids import CommandId, DeviceId

READ_ERRORS = {403: "GRANT_MISSING GRANT_EXPIRED"}
DEFINITION_ERRORS = {403: "ROLE_REQUIRED", 409: "COMMAND_EXISTS"}


def add_definition_routes(bp: ApiBlueprint, definitions: CommandDefinitionService) -> None:
    @bp.operation("GET /devices/<device_id>/commands", AllowedCallers.KEY, "List a device's commands", errors=READ_ERRORS)
    async def list_commands(device_id: DeviceId) -> list[schema.CommandDefinitionResponse]:
        """Built-in commands first. One entry per name: the device's definition, or its type's, or the built-in one."""
        found = await definitions.list(current_caller(), device_id)
        return [schema.CommandDefinitionResponse.of(one) for one in found]

    @bp.operation(
        "POST /devices/<device_id>/commands",
        AllowedCallers.SESSION,
        "Create a command definition",
        status=201,
        errors=DEFINITION_ERRORS,
        idempotent=True,
    )
    async def create_command(
        device_id: DeviceId, body: schema.CommandDefinitionCreateRequest
    ) -> schema.CommandDefinitionCreatedResponse:
        """A definition with the name of a built-in command, or of a command of the device type, overrides it for this device."""
        made = await definitions.create(current_session(), device_id, body.to_input())
        return schema.CommandDefinitionCreatedResponse(command_id=made.command_id or "")

    @bp.operation(
        "PATCH /devices/<device_id>/commands/<command_id>",
        AllowedCallers.SESSION,
        "Change a command definition",
        errors=DEFINITION_ERRORS,
    )
    async def update_command(device_id: DeviceId, command_id: CommandId, body: schema.CommandDefinitionUpdateRequest) -> None:
        """Omitted fields keep their value. Only an Owner or Admin can change a command that needs approval."""
        await definitions.update(current_session(), device_id, command_id, body.to_changes())

    @bp.operation(
        "DELETE /devices/<device_id>/commands/<command_id>",
        AllowedCallers.SESSION,
        "Delete a command definition",
        errors=DEFINITION_ERRORS,
    )
    async def delete_command(device_id: DeviceId, command_id: CommandId) -> None:
        """The definition that it overrode applies again."""
        await definitions.delete(current_session(), device_id, command_id)
