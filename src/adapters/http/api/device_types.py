"""Device type routes. A device type is a set of commands that many devices share.

Request and response models of device types.
"""

from __future__ import annotations

from pydantic import Field

from adapters.http.api.commands import CommandDefinitionCreateRequest, CommandDefinitionResponse, Label
from adapters.http.core.callers import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint
from adapters.http.core.schemas import PatchBody, RequestBodyModel, ResponseModel
from domain.commands.device_types import DeviceTypeAdminService, DeviceTypeWithCommands
from domain.kernel.ids import DeviceTypeId


class DeviceTypeCreateRequest(RequestBodyModel):
    name: Label
    commands: list[CommandDefinitionCreateRequest] = Field(default_factory=list, max_length=100)


class DeviceTypeUpdateRequest(PatchBody):
    """`commands` replaces the whole list; a command whose name is unchanged keeps its id."""

    name: Label | None = None
    commands: list[CommandDefinitionCreateRequest] | None = Field(default=None, max_length=100)


class DeviceTypeResponse(ResponseModel):
    device_type_id: str
    name: str
    commands: list[CommandDefinitionResponse]


def device_types_blueprint(types: DeviceTypeAdminService) -> ApiBlueprint:
    bp = ApiBlueprint("device_types", "Device types")

    @bp.operation("GET /device-types", AllowedCallers.SESSION, "List device types")
    async def list_device_types() -> list[DeviceTypeResponse]:
        """Each device type includes its commands."""
        return [_shown(one) for one in await types.list(current_session())]

    @bp.operation("GET /device-types/<device_type_id>", AllowedCallers.SESSION, "Get a device type")
    async def get_device_type(device_type_id: DeviceTypeId) -> DeviceTypeResponse:
        """Includes its commands."""
        return _shown(await types.get(current_session(), device_type_id))

    @bp.operation(
        "POST /device-types",
        AllowedCallers.SESSION,
        "Create a device type",
        status=201,
        errors={403: "ROLE_REQUIRED", 409: "DEVICE_TYPE_EXISTS"},
        idempotent=True,
    )
    async def create_device_type(body: DeviceTypeCreateRequest) -> DeviceTypeResponse:
        """Its commands apply to every device of the type; a device can override them."""
        drafts = [command.to_input() for command in body.commands]
        return _shown(await types.create(current_session(), body.name, drafts))

    @bp.operation(
        "PATCH /device-types/<device_type_id>",
        AllowedCallers.SESSION,
        "Change a device type",
        errors={403: "ROLE_REQUIRED", 409: "DEVICE_TYPE_EXISTS"},
    )
    async def update_device_type(device_type_id: DeviceTypeId, body: DeviceTypeUpdateRequest) -> DeviceTypeResponse:
        """`commands` replaces the whole list."""
        drafts = None if body.commands is None else [command.to_input() for command in body.commands]
        return _shown(await types.update(current_session(), device_type_id, body.name, drafts))

    @bp.operation(
        "DELETE /device-types/<device_type_id>",
        AllowedCallers.SESSION,
        "Delete a device type",
        errors={403: "ROLE_REQUIRED", 409: "DEVICE_TYPE_IN_USE"},
    )
    async def delete_device_type(device_type_id: DeviceTypeId) -> None:
        """Fails while any device has this type."""
        await types.delete(current_session(), device_type_id)

    return bp


def _shown(found: DeviceTypeWithCommands) -> DeviceTypeResponse:
    return DeviceTypeResponse.of(found.device_type, found)
