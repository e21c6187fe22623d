"""A device's MQTT credentials: create, rotate, reveal, revoke."""

from __future__ import annotations

from adapters.http.api.device_credentials import schemas as schema
from adapters.http.api.device_firmware.routes import add_config_route, add_firmware_route
from adapters.http.core.caller_authentication import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint
from domain.devices.credentials import DeviceCredentialService, FirmwareProjectService
from domain.kernel.ids import DeviceId

WRITE_ERRORS = {403: "ROLE_REQUIRED", 409: "CONFLICT"}


def credentials_blueprint(credentials: DeviceCredentialService, firmware: FirmwareProjectService) -> ApiBlueprint:
    bp = ApiBlueprint("credentials", "Devices")
    add_firmware_route(bp, firmware)

    @bp.operation(
        "POST /devices/<device_id>/credentials",
        AllowedCallers.SESSION,
        "Generate or rotate MQTT credentials",
        errors=WRITE_ERRORS | {409: "CREDENTIALS_EXIST"},
        idempotent=True,
    )
    async def generate_credentials(device_id: DeviceId, body: schema.CredentialsCreateRequest) -> schema.CredentialsResponse:
        """A PENDING or REVOKED device becomes ACTIVE."""
        made = await credentials.generate(current_session(), device_id, rotate=body.rotate)
        return schema.CredentialsResponse.from_domain(made)

    @bp.operation(
        "POST /devices/<device_id>/revoke", AllowedCallers.SESSION, "Revoke a device's credentials", errors=WRITE_ERRORS
    )
    async def revoke_device(device_id: DeviceId) -> schema.CredentialsRevokedResponse:
        """Closes the device's connection and rejects its credentials from now on."""
        device = await credentials.revoke(current_session(), device_id)
        return schema.CredentialsRevokedResponse(device_status=device.status)

    @bp.operation(
        "POST /devices/<device_id>/credentials/reveal",
        AllowedCallers.SESSION,
        "Reveal MQTT credentials",
        errors={403: "ROLE_REQUIRED PASSWORD_MISMATCH STEP_UP_REQUIRED", 409: "CREDENTIALS_REVOKED", 429: "LOGIN_THROTTLED"},
        on_record=True,
    )
    async def reveal_credentials(device_id: DeviceId, body: schema.CredentialsRevealRequest) -> schema.CredentialsResponse:
        """Requires the password of the user again; of a user with a second factor also a step-up in the last five minutes.

        Every call is recorded in the device's audit log, also a denied one."""
        return schema.CredentialsResponse.from_domain(await credentials.reveal(current_session(), device_id, body.password))

    add_config_route(bp, credentials)
    return bp
