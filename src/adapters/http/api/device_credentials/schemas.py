"""Request and response models of device credentials."""

from __future__ import annotations

from pydantic import Field

from adapters.http.core.schemas import OkResponse, RequestBodyModel, ResponseModel
from domain.devices.credentials import RevealedCredentials
from domain.devices.model import DeviceStatus


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
