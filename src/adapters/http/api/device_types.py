"""Device types: sets of commands that many devices share."""

from __future__ import annotations

from pydantic import Field

from adapters.http.api.commands import CommandDefinitionCreateRequest, CommandDefinitionResponse
from adapters.http.core.callers import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint, HttpHandlerResult
from adapters.http.core.paging import PageQueryParameters, list_response
from adapters.http.core.schemas import PatchBody, RequestBodyModel, ResponseModel, ShortText
from adapters.http.core.turns import TurnKind
from domain.commands.device_types import DeviceTypeAdminService, DeviceTypeWithCommands
from domain.kernel.ids import DeviceTypeId


class DeviceTypeCreateRequest(RequestBodyModel):
    name: ShortText
    commands: list[CommandDefinitionCreateRequest] = Field(default_factory=list, max_length=100)


class DeviceTypeUpdateRequest(PatchBody):
    """`commands` replaces the whole list; a command whose name is unchanged keeps its id."""

    name: ShortText | None = None
    commands: list[CommandDefinitionCreateRequest] | None = Field(default=None, max_length=100)


class DeviceTypeResponse(ResponseModel):
    device_type_id: str
    name: str
    commands: list[CommandDefinitionResponse]

    @classmethod
    def from_domain(cls, found: DeviceTypeWithCommands) -> DeviceTypeResponse:
        return cls.of(found.device_type, found)


def device_types_blueprint(types: DeviceTypeAdminService) -> ApiBlueprint:
    bp = ApiBlueprint("device_types", "Device types")

    @bp.operation("GET /device-types", AllowedCallers.SESSION, "List device types")
    async def list_device_types(query: PageQueryParameters) -> HttpHandlerResult[list[DeviceTypeResponse]]:
        """Oldest first. Each device type includes its commands."""
        found = await types.list(current_session())
        return list_response(
            found, query, DeviceTypeResponse.from_domain, lambda one: (one.device_type.created_ms, one.device_type.device_type_id)
        )

    @bp.operation("GET /device-types/<device_type_id>", AllowedCallers.SESSION, "Get a device type")
    async def get_device_type(device_type_id: DeviceTypeId) -> DeviceTypeResponse:
        """Includes its commands."""
        return DeviceTypeResponse.from_domain(await types.get(current_session(), device_type_id))

    @bp.operation(
        "POST /device-types",
        AllowedCallers.SESSION,
        "Create a device type",
        turn=TurnKind.BULK,
        status=201,
        errors={403: "ROLE_REQUIRED", 409: "DEVICE_TYPE_EXISTS TOO_MANY_DEVICE_TYPES"},
        idempotent=True,
    )
    async def create_device_type(body: DeviceTypeCreateRequest) -> DeviceTypeResponse:
        """Its commands apply to every device of the type; a device can override them."""
        drafts = [command.to_input() for command in body.commands]
        return DeviceTypeResponse.from_domain(await types.create(current_session(), body.name, drafts))

    @bp.operation(
        "PATCH /device-types/<device_type_id>",
        AllowedCallers.SESSION,
        "Change a device type",
        turn=TurnKind.BULK,
        errors={403: "ROLE_REQUIRED", 409: "DEVICE_TYPE_EXISTS REQUEST_PENDING"},
    )
    async def update_device_type(device_type_id: DeviceTypeId, body: DeviceTypeUpdateRequest) -> DeviceTypeResponse:
        """`commands` replaces the whole list."""
        drafts = None if body.commands is None else [command.to_input() for command in body.commands]
        return DeviceTypeResponse.from_domain(await types.update(current_session(), device_type_id, body.name, drafts))

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
