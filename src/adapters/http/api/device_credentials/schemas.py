"""Request and response models of device credentials."""

from __future__ import annotations

from pydantic import Field

from adapters.http.core.schemas import (
    QueryParameters,
    RequestBody,
    ResponseModel,
)
from domain.devices.credential_issuer import RevealedCredentials
from domain.devices.credentials import FirmwareConfig
from domain.devices.firmware_config import PASSWORD_PLACEHOLDER, FirmwareConfigFormat
from domain.devices.firmware_project import (
    WIFI_NAME_PLACEHOLDER,
    WIFI_PASSWORD_PLACEHOLDER,
    FileEncoding,
    FirmwareProject,
)
from domain.devices.model import DeviceStatus


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
        return cls(
            format=project.config_format,
            encrypted=project.encrypted,
            files=[FirmwareFileResponse(name=one.name, content=one.content, encoding=one.encoding) for one in project.files],
            placeholders={
                "mqttPassword": PASSWORD_PLACEHOLDER,
                "wifiName": WIFI_NAME_PLACEHOLDER,
                "wifiPassword": WIFI_PASSWORD_PLACEHOLDER,
            },
        )


class DeviceConfigQuery(QueryParameters):
    format: FirmwareConfigFormat | None = Field(default=None, description="Omitted: the format that the device's firmware reads.")


class CredentialsCreateRequest(RequestBody):
    rotate: bool = Field(default=False, description="Replace existing credentials and close the connection that uses them.")


class CredentialsRevealRequest(RequestBody):
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
        return cls(
            mqtt_username=revealed.device_id,
            mqtt_password=revealed.password,
            mqtt_host=revealed.endpoint.host,
            mqtt_port=revealed.endpoint.port,
            ws_port=revealed.endpoint.ws_port,
            config_block=revealed.config_block,
        )


class CredentialsRevokedResponse(ResponseModel):
    ok: bool = True
    device_status: DeviceStatus


class DeviceConfigResponse(ResponseModel):
    config_block: str
    note: str

    @classmethod
    def from_domain(cls, config: FirmwareConfig) -> DeviceConfigResponse:
        return cls(config_block=config.config_block, note=config.note)
