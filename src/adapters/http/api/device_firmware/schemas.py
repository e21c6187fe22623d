"""Request and response models of a device's firmware."""

from __future__ import annotations

from pydantic import Field

from adapters.http.core.schemas import QueryParametersModel, ResponseModel
from domain.devices.firmware import (
    PASSWORD_PLACEHOLDER,
    WIFI_NAME_PLACEHOLDER,
    WIFI_PASSWORD_PLACEHOLDER,
    FileEncoding,
    FirmwareConfigFormat,
    FirmwareProject,
)


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
