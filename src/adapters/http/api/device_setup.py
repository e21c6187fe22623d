"""What a device is set up with: the known boards and applications, MQTT credentials, and firmware, as its configuration alone or
as complete files for the board."""

from __future__ import annotations

from pydantic import Field

from adapters.http.core.callers import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint, AuthorityMade
from adapters.http.core.schemas import OkResponse, QueryParametersModel, RequestBodyModel, ResponseModel
from domain.devices.catalog import APPS, BOARDS
from domain.devices.credentials import DeviceCredentialService, FirmwareProjectService, RevealedCredentials
from domain.devices.firmware import (
    PASSWORD_PLACEHOLDER,
    WIFI_NAME_PLACEHOLDER,
    WIFI_PASSWORD_PLACEHOLDER,
    FileEncoding,
    FirmwareConfigFormat,
    FirmwareProject,
)
from domain.devices.model import DeviceStatus, FirmwareProfile
from domain.kernel.ids import DeviceId


class BoardResponse(ResponseModel):
    id: str = Field(description="The same as `boardType`.")
    board_type: str
    name: str
    description: str
    profile: FirmwareProfile
    config_format: str


class AppTypeResponse(ResponseModel):
    id: str = Field(description="The same as `appType`.")
    app_type: str
    name: str
    description: str


def catalog_blueprint() -> ApiBlueprint:
    bp = ApiBlueprint("catalog", "Catalog")
    boards = [BoardResponse.of(one, id=one.board_type) for one in BOARDS]
    apps = [AppTypeResponse.of(one, id=one.app_type) for one in APPS]

    @bp.operation("GET /catalog/boards", AllowedCallers.ANYONE, "List known boards")
    async def list_boards() -> list[BoardResponse]:
        """Values for `boardType`. The list is a suggestion: any text of up to 64 characters is accepted."""
        return boards

    @bp.operation("GET /catalog/apps", AllowedCallers.ANYONE, "List known applications")
    async def list_app_types() -> list[AppTypeResponse]:
        """Values for `appType`. The list is a suggestion: any text of up to 64 characters is accepted."""
        return apps

    return bp


class CredentialsCreateRequest(RequestBodyModel):
    rotate: bool = Field(default=False, description="Replace existing credentials and close the connection that uses them.")


class CredentialsRevealRequest(RequestBodyModel):
    password: str = Field(min_length=1, max_length=256, description="The password of the calling user.")


class CredentialsResponse(ResponseModel):
    mqtt_username: str
    mqtt_password: str = Field(json_schema_extra={"format": "password"})
    mqtt_host: str
    mqtt_port: int
    ws_port: int
    config_block: str

    @classmethod
    def from_domain(cls, revealed: RevealedCredentials) -> CredentialsResponse:
        broker = revealed.endpoint
        return cls.of(
            revealed,
            broker,
            mqtt_username=revealed.device_id,
            mqtt_password=revealed.password,
            mqtt_host=broker.host,
            mqtt_port=broker.port,
        )


class CredentialsRevokedResponse(OkResponse):
    device_status: DeviceStatus


class FirmwareFileResponse(ResponseModel):
    name: str = Field(examples=["latchboard_relay.ino"])
    content: str
    encoding: FileEncoding = Field(description="How `content` is written: as text, or as base64 of bytes.")


class FirmwareProjectResponse(ResponseModel):
    format: FirmwareConfigFormat
    encrypted: bool = Field(description="Whether this firmware connects with TLS as it is.")
    files: list[FirmwareFileResponse]
    placeholders: dict[str, str] = Field(
        description="The texts in the files to replace: by the device's password, and by the Wi-Fi's name and password.",
        examples=[{"mqttPassword": "YOUR_MQTT_PASSWORD", "wifiName": "your network", "wifiPassword": "your password"}],
    )

    @classmethod
    def from_domain(cls, project: FirmwareProject) -> FirmwareProjectResponse:
        placeholders = {
            "mqttPassword": PASSWORD_PLACEHOLDER,
            "wifiName": WIFI_NAME_PLACEHOLDER,
            "wifiPassword": WIFI_PASSWORD_PLACEHOLDER,
        }
        return cls.of(project, format=project.config_format, placeholders=placeholders)


class DeviceConfigQueryParameters(QueryParametersModel):
    format: FirmwareConfigFormat | None = Field(default=None, description="Omitted: the format that the device's firmware reads.")


class DeviceConfigResponse(ResponseModel):
    config_block: str
    note: str


WRITE_ERRORS = {403: "ROLE_REQUIRED", 409: "CONFLICT"}


def credentials_blueprint(credentials: DeviceCredentialService, firmware: FirmwareProjectService) -> ApiBlueprint:
    bp = ApiBlueprint("credentials", "Devices")

    @bp.operation("GET /devices/<device_id>/firmware", AllowedCallers.SESSION, "Get the complete firmware")
    async def get_device_firmware(device_id: DeviceId, query: DeviceConfigQueryParameters) -> FirmwareProjectResponse:
        """All files for the board, ready but for three placeholders: the device's password, the network's name and password."""
        project = await firmware.get_project(current_session(), device_id, query.format)
        return FirmwareProjectResponse.from_domain(project)

    @bp.operation(
        "POST /devices/<device_id>/credentials",
        AllowedCallers.SESSION,
        "Generate or rotate MQTT credentials",
        errors=WRITE_ERRORS | {409: "CONFLICT CREDENTIALS_EXIST"},
        idempotent=True,
        authority=AuthorityMade("credentials_generated", "POST /devices/{deviceId}/revoke", when="credentials are replaced"),
    )
    async def generate_credentials(device_id: DeviceId, body: CredentialsCreateRequest) -> CredentialsResponse:
        """A PENDING or REVOKED device becomes ACTIVE."""
        made = await credentials.generate(current_session(), device_id, rotate=body.rotate)
        return CredentialsResponse.from_domain(made)

    @bp.operation(
        "POST /devices/<device_id>/revoke", AllowedCallers.SESSION, "Revoke a device's credentials", errors=WRITE_ERRORS
    )
    async def revoke_device(device_id: DeviceId) -> CredentialsRevokedResponse:
        """Closes the device's connection and rejects its credentials from now on."""
        device = await credentials.revoke(current_session(), device_id)
        return CredentialsRevokedResponse(device_status=device.status)

    @bp.operation(
        "POST /devices/<device_id>/credentials/reveal",
        AllowedCallers.SESSION,
        "Reveal MQTT credentials",
        errors={403: "ROLE_REQUIRED PASSWORD_MISMATCH STEP_UP_REQUIRED", 409: "CREDENTIALS_REVOKED", 429: "LOGIN_THROTTLED"},
        on_record=True,
    )
    async def reveal_credentials(device_id: DeviceId, body: CredentialsRevealRequest) -> CredentialsResponse:
        """Requires the password of the user again; of a user with a second factor also a step-up in the last five minutes.

        Every call is recorded in the device's audit log, also a denied one."""
        return CredentialsResponse.from_domain(await credentials.reveal(current_session(), device_id, body.password))

    @bp.operation("GET /devices/<device_id>/config", AllowedCallers.SESSION, "Get the firmware configuration")
    async def get_device_config(device_id: DeviceId, query: DeviceConfigQueryParameters) -> DeviceConfigResponse:
        """Contains a placeholder instead of the password."""
        config = await credentials.get_config(current_session(), device_id, query.format)
        return DeviceConfigResponse.of(config)

    return bp
