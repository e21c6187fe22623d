"""Devices over HTTP. Everything but the list needs a session; the list is also the Device Control family's."""

from __future__ import annotations

from quart import Blueprint, request

from adapters.http import devices_schema as schema
from adapters.http.auth import Access, current_caller, current_session
from adapters.http.operation import Outcome, operation
from adapters.http.schema import Done
from domain.commands.control import ControlService
from domain.devices.credentials import CredentialService
from domain.devices.service import DeviceService
from domain.kernel.errors import Stale
from domain.kernel.ids import DeviceId, ProjectId

TAG = "Devices"
MISSING = {404: "NOT_FOUND"}
CHANGING = {403: "ROLE_REQUIRED", 404: "NOT_FOUND", 409: "CONFLICT"}


def devices_blueprint(devices: DeviceService, credentials: CredentialService, control: ControlService) -> Blueprint:
    bp = Blueprint("devices", __name__, url_prefix="/api/v1")
    _registry(bp, devices, control)
    _editing(bp, devices)
    _lifecycle(bp, devices, credentials)
    _credentials(bp, credentials)
    return bp


def _registry(bp: Blueprint, devices: DeviceService, control: ControlService) -> None:
    @operation(bp, "GET", "/devices", tag=TAG, access=Access.KEY, summary="List devices", errors=MISSING)
    async def list_devices(query: schema.DevicesQuery) -> list[schema.DeviceReply]:
        """Oldest first. An API key sees only the devices its grants cover."""
        project_id = ProjectId(query.project_id) if query.project_id is not None else None
        found = await control.devices(current_caller(), project_id)
        return [schema.DeviceReply.of(one) for one in found]

    @operation(
        bp, "POST", "/devices/register", tag=TAG, access=Access.SESSION, summary="Register a device", status=201,
        errors={403: "ROLE_REQUIRED", 404: "NOT_FOUND", 409: "TOO_MANY_DEVICES"}, idempotent=True,
    )  # fmt: skip
    async def register_device(body: schema.NewDevice) -> schema.DeviceId:
        """The device is PENDING: it can connect once it has credentials."""
        device = await devices.register(current_session(), body.registration())
        return schema.DeviceId(device_id=device.device_id)

    @operation(bp, "GET", "/devices/<device_id>", tag=TAG, access=Access.SESSION, summary="Get a device", errors=MISSING)
    async def get_device(device_id: str) -> Outcome[schema.DeviceReply]:
        """The `ETag` is for `If-Match` of an update."""
        found = await devices.get(current_session(), DeviceId(device_id))
        return Outcome(schema.DeviceReply.of(found), headers={"ETag": _etag(found.device.version)})


def _editing(bp: Blueprint, devices: DeviceService) -> None:
    @operation(
        bp, "PUT", "/devices/<device_id>", tag=TAG, access=Access.SESSION, summary="Update a device",
        errors=CHANGING | {412: "PRECONDITION_FAILED"},
        headers={"If-Match": "The `ETag` of the device as you know it; 412 when it has changed since."},
    )  # fmt: skip
    async def update_device(device_id: str, body: schema.DeviceChanges) -> Outcome[Done]:
        """What is left out stays as it is."""
        device = await devices.update(
            current_session(), DeviceId(device_id), body.changes(), version=_expected(request.headers.get("If-Match"))
        )
        return Outcome(Done(), headers={"ETag": _etag(device.version)})

    @operation(
        bp, "DELETE", "/devices/<device_id>", tag=TAG, access=Access.SESSION, summary="Delete a device", errors=CHANGING
    )
    async def delete_device(device_id: str) -> Done:
        """Its schedules, rules, grants, telemetry, approvals, credentials and connection go with it."""
        await devices.delete(current_session(), DeviceId(device_id))
        return Done()


def _lifecycle(bp: Blueprint, devices: DeviceService, credentials: CredentialService) -> None:
    @operation(
        bp, "PATCH", "/devices/<device_id>/toggle", tag=TAG, access=Access.SESSION,
        summary="Disable or enable a device", errors=CHANGING | {409: "DEVICE_STATE"},
    )  # fmt: skip
    async def toggle_device(device_id: str) -> schema.ToggledReply:
        """ACTIVE becomes DISABLED and the other way round. A disabled device is disconnected and takes no commands."""
        device = await devices.toggle(current_session(), DeviceId(device_id))
        return schema.ToggledReply(enabled=device.enabled, device_status=device.status)

    @operation(
        bp, "POST", "/devices/<device_id>/revoke", tag=TAG, access=Access.SESSION, summary="Revoke a device's credentials",
        errors=CHANGING,
    )  # fmt: skip
    async def revoke_device(device_id: str) -> schema.RevokedReply:
        """The connection is cut and the credentials are refused at once."""
        device = await credentials.revoke(current_session(), DeviceId(device_id))
        return schema.RevokedReply(device_status=device.status)


def _credentials(bp: Blueprint, credentials: CredentialService) -> None:
    @operation(
        bp, "POST", "/devices/<device_id>/credentials", tag=TAG, access=Access.SESSION,
        summary="Generate or rotate MQTT credentials", errors=CHANGING | {409: "CREDENTIALS_EXIST"}, idempotent=True,
    )  # fmt: skip
    async def generate_credentials(device_id: str, body: schema.NewCredentials) -> schema.CredentialsReply:
        """A PENDING or REVOKED device becomes ACTIVE."""
        made = await credentials.generate(current_session(), DeviceId(device_id), rotate=body.rotate)
        return schema.CredentialsReply.of(made)

    @operation(
        bp, "POST", "/devices/<device_id>/credentials/reveal", tag=TAG, access=Access.SESSION,
        summary="Reveal MQTT credentials",
        errors={403: "ROLE_REQUIRED PASSWORD_MISMATCH", 404: "NOT_FOUND", 409: "CREDENTIALS_REVOKED", 429: "LOGIN_THROTTLED"},
        on_record=True,
    )  # fmt: skip
    async def reveal_credentials(device_id: str, body: schema.Reveal) -> schema.CredentialsReply:
        """Needs the account password once more. Every call is in the device's audit log, refused ones too."""
        return schema.CredentialsReply.of(
            await credentials.reveal(current_session(), DeviceId(device_id), body.password)
        )

    @operation(
        bp, "GET", "/devices/<device_id>/config", tag=TAG, access=Access.SESSION, summary="Firmware configuration",
        errors=MISSING,
    )  # fmt: skip
    async def get_device_config(device_id: str, query: schema.ConfigQuery) -> schema.ConfigReply:
        """With a placeholder in place of the password."""
        config = await credentials.config(current_session(), DeviceId(device_id), query.format)
        return schema.ConfigReply.of(config)


def _etag(version: int) -> str:
    return f'"{version}"'


def _expected(if_match: str | None) -> int | None:
    """The version `If-Match` asks for (RFC 9110, 13.1.1); None where any will do. Raises Stale for one that is none of ours."""
    if if_match is None or if_match.strip() == "*":
        return None
    tag = if_match.strip()
    if len(tag) > 2 and tag[0] == tag[-1] == '"' and tag[1:-1].isdecimal() and len(tag) < 20:
        return int(tag[1:-1])
    raise Stale('If-Match is no ETag of this device. Read the device and send its ETag, such as "3".')
