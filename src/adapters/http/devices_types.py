"""Device types over HTTP: commands that many devices share."""

from __future__ import annotations

from quart import Blueprint

from adapters.http import commands_schema as schema
from adapters.http.auth import Access, current_session
from adapters.http.operation import operation
from adapters.http.schema import Done
from domain.commands.device_types import DeviceTypeService
from domain.kernel.ids import DeviceTypeId

TAG = "Device types"
MISSING = {404: "NOT_FOUND"}


def device_types_blueprint(types: DeviceTypeService) -> Blueprint:
    bp = Blueprint("device_types", __name__, url_prefix="/api/v1")
    _reading(bp, types)
    _writing(bp, types)
    return bp


def _reading(bp: Blueprint, types: DeviceTypeService) -> None:
    @operation(bp, "GET", "/device-types", tag=TAG, access=Access.SESSION, summary="List device types")
    async def list_device_types() -> list[schema.DeviceTypeReply]:
        """Each with its commands."""
        return [schema.DeviceTypeReply.of(one) for one in await types.list(current_session())]

    @operation(
        bp, "GET", "/device-types/<device_type_id>", tag=TAG, access=Access.SESSION, summary="Get a device type",
        errors=MISSING,
    )  # fmt: skip
    async def get_device_type(device_type_id: str) -> schema.DeviceTypeReply:
        """With its commands."""
        return schema.DeviceTypeReply.of(await types.get(current_session(), DeviceTypeId(device_type_id)))


def _writing(bp: Blueprint, types: DeviceTypeService) -> None:
    @operation(
        bp, "POST", "/device-types", tag=TAG, access=Access.SESSION, summary="Create a device type", status=201,
        errors={403: "ROLE_REQUIRED", 409: "DEVICE_TYPE_EXISTS"}, idempotent=True,
    )  # fmt: skip
    async def create_device_type(body: schema.NewDeviceType) -> schema.DeviceTypeReply:
        """Its commands hold for every device of the type; a device may override them."""
        drafts = [command.draft() for command in body.commands]
        return schema.DeviceTypeReply.of(await types.create(current_session(), body.name, drafts))

    @operation(
        bp, "PATCH", "/device-types/<device_type_id>", tag=TAG, access=Access.SESSION, summary="Change a device type",
        errors={403: "ROLE_REQUIRED", 404: "NOT_FOUND", 409: "DEVICE_TYPE_EXISTS"},
    )  # fmt: skip
    async def update_device_type(device_type_id: str, body: schema.DeviceTypeChanges) -> schema.DeviceTypeReply:
        """`commands` replaces the whole list."""
        drafts = None if body.commands is None else [command.draft() for command in body.commands]
        return schema.DeviceTypeReply.of(
            await types.edit(current_session(), DeviceTypeId(device_type_id), body.name, drafts)
        )

    @operation(
        bp, "DELETE", "/device-types/<device_type_id>", tag=TAG, access=Access.SESSION, summary="Delete a device type",
        errors={403: "ROLE_REQUIRED", 404: "NOT_FOUND", 409: "DEVICE_TYPE_IN_USE"},
    )  # fmt: skip
    async def delete_device_type(device_type_id: str) -> Done:
        """Refused while devices are of this type."""
        await types.delete(current_session(), DeviceTypeId(device_type_id))
        return Done()
