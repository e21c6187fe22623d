"""Devices over HTTP. Everything but the list needs a session; the list is also the Device Control family's."""

from __future__ import annotations

from quart import request

from adapters.http.api.devices import schemas as schema
from adapters.http.core.caller_authentication import AllowedCallers, current_caller, current_session
from adapters.http.core.operation import ApiBlueprint
from adapters.http.core.operation_handling import HttpHandlerResult
from adapters.http.core.paging import next_link
from adapters.http.core.schemas import OkResponse
from domain.commands.queries import DeviceAndExecutionQueryService
from domain.devices.service import DeviceService
from domain.kernel.errors import VersionMismatch
from domain.kernel.ids import DeviceId

WRITE_ERRORS = {403: "ROLE_REQUIRED", 409: "CONFLICT"}


def devices_blueprint(devices: DeviceService, control: DeviceAndExecutionQueryService) -> ApiBlueprint:
    bp = ApiBlueprint("devices", "Devices")

    @bp.operation("GET /devices", AllowedCallers.KEY, "List devices", errors={404: "NOT_FOUND"}, paged=True)
    async def list_devices(query: schema.DevicesQueryParameters) -> HttpHandlerResult[list[schema.DeviceResponse]]:
        """Oldest first, all of them, unless the query says otherwise. An API key sees only the devices its grants cover. The
        header `X-Total-Count` has the number of matching devices."""
        page = await control.list_devices(current_caller(), query.to_search())
        headers = {"X-Total-Count": str(page.total)}
        if query.limit is not None and query.offset + query.limit < page.total:
            headers["Link"] = next_link("offset", str(query.offset + query.limit))
        return HttpHandlerResult([schema.DeviceResponse.from_domain(one) for one in page.devices], headers=headers)

    @bp.operation("GET /devices/summary", AllowedCallers.SESSION, "Count devices by state")
    async def summarize_devices() -> schema.DeviceCountsResponse:
        """How many devices the account has, and how many in each state."""
        return schema.DeviceCountsResponse.of(await control.count_devices(current_session()))

    @bp.operation(
        "POST /devices/register",
        AllowedCallers.SESSION,
        "Register a device",
        status=201,
        errors={403: "ROLE_REQUIRED", 404: "NOT_FOUND", 409: "TOO_MANY_DEVICES"},
        idempotent=True,
    )
    async def register_device(body: schema.DeviceRegistrationRequest) -> schema.DeviceRegisteredResponse:
        """A new device is PENDING. It can connect once it has credentials."""
        device = await devices.register(current_session(), body.to_registration())
        return schema.DeviceRegisteredResponse(device_id=device.device_id)

    @bp.operation("GET /devices/<device_id>", AllowedCallers.SESSION, "Get a device")
    async def get_device(device_id: DeviceId) -> HttpHandlerResult[schema.DeviceResponse]:
        """Send the `ETag` as `If-Match` with an update."""
        found = await devices.get(current_session(), device_id)
        return HttpHandlerResult(schema.DeviceResponse.from_domain(found), headers={"ETag": _format_etag(found.device.version)})

    @bp.operation(
        "PUT /devices/<device_id>",
        AllowedCallers.SESSION,
        "Update a device",
        errors=WRITE_ERRORS | {409: "REQUEST_PENDING", 412: "PRECONDITION_FAILED"},
        headers={"If-Match": "The `ETag` of the version you read. The update fails with 412 if the device has changed since."},
    )
    async def update_device(device_id: DeviceId, body: schema.DeviceUpdateRequest) -> HttpHandlerResult[OkResponse]:
        """Omitted fields keep their value."""
        device = await devices.update(
            current_session(), device_id, body.to_changes(), version=_parse_if_match(request.headers.get("If-Match"))
        )
        return HttpHandlerResult(OkResponse(), headers={"ETag": _format_etag(device.version)})

    @bp.operation("DELETE /devices/<device_id>", AllowedCallers.SESSION, "Delete a device", errors=WRITE_ERRORS)
    async def delete_device(device_id: DeviceId) -> None:
        """Also deletes its schedules, rules, grants, telemetry, approvals and credentials, and closes its connection."""
        await devices.delete(current_session(), device_id)

    @bp.operation(
        "PATCH /devices/<device_id>/toggle",
        AllowedCallers.SESSION,
        "Disable or enable a device",
        errors=WRITE_ERRORS | {409: "DEVICE_STATE"},
    )
    async def toggle_device(device_id: DeviceId) -> schema.DeviceToggledResponse:
        """Switches between ACTIVE and DISABLED. A disabled device is disconnected and accepts no commands."""
        device = await devices.toggle_enabled(current_session(), device_id)
        return schema.DeviceToggledResponse(enabled=device.is_active, device_status=device.status)

    return bp


def _format_etag(version: int) -> str:
    return f'"{version}"'


def _parse_if_match(if_match: str | None) -> int | None:
    """The version that `If-Match` names (RFC 9110, 13.1.1); None for any. Raises VersionMismatch for any other text."""
    if if_match is None or if_match.strip() == "*":
        return None
    tag = if_match.strip()
    if len(tag) > 2 and tag[0] == tag[-1] == '"' and tag[1:-1].isdecimal() and len(tag) < 20:
        return int(tag[1:-1])
    raise VersionMismatch('If-Match is not an ETag of this device. Read the device and send its ETag, such as "3".')
