"""Request and response models of provisioning codes and claims."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from adapters.http.api.devices.schemas import DeviceName, ShortText, Tags
from adapters.http.core.request_parsing import parse_timestamp
from adapters.http.core.schemas import (
    DisplayName,
    EnumValue,
    IdText,
    QueryParametersModel,
    RequestBodyModel,
    ResponseModel,
    Timestamp,
    TimestampText,
)
from domain.devices.credentials import RevealedCredentials
from domain.devices.model import FirmwareProfile
from domain.kernel.ids import ClaimId, DeviceTypeId, ProjectId
from domain.provisioning.codes import ProvisioningCodeInput
from domain.provisioning.model import MAX_CODE_DEVICES, ClaimStatus

HardwareId = Annotated[
    str,
    StringConstraints(min_length=4, max_length=64, pattern=r"^[A-Za-z0-9._:-]+$"),
    Field(description="Identifies this piece of hardware, such as its MAC address or chip id."),
]


class ProvisioningCodeRequest(RequestBodyModel):
    name: DisplayName
    board_type: ShortText = Field(examples=["ESP32"])
    app_type: ShortText = Field(examples=["PUMP"])
    project_id: IdText[ProjectId] | None = Field(default=None, description="Omitted: the account's default project.")
    device_type_id: IdText[DeviceTypeId] | None = None
    profile: EnumValue[FirmwareProfile] | None = None
    tags: Tags | None = None
    max_devices: Annotated[int, Field(ge=1, le=MAX_CODE_DEVICES)] = Field(
        default=1, description="How many devices may use the code."
    )
    requires_approval: bool = Field(default=True, description="Each device waits until an Owner or Admin approves it.")
    expires_at: TimestampText = Field(description="At most a year ahead.")

    def to_input(self) -> ProvisioningCodeInput:
        expires_ms = parse_timestamp("expiresAt", self.expires_at)
        return self.to_domain(ProvisioningCodeInput, expires_ms=expires_ms, tags=tuple(dict.fromkeys(self.tags or ())))


class ProvisioningCodeResponse(ResponseModel):
    code_id: str
    name: str
    prefix: str
    project_id: str
    board_type: str
    app_type: str
    profile: FirmwareProfile | None
    device_type_id: str | None
    tags: list[str]
    max_devices: int
    claimed_count: int = Field(description="How many devices have got credentials with it.")
    requires_approval: bool
    expires_at: Timestamp
    created_at: Timestamp


class ProvisioningCodeCreatedResponse(ProvisioningCodeResponse):
    code: str = Field(description="Shown only in this response.", json_schema_extra={"format": "password"})


class DeviceClaimsQueryParameters(QueryParametersModel):
    status: ClaimStatus | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    before: IdText[ClaimId] | None = Field(default=None, description="The id of a claim: only those older than it.")


class ClaimResponse(ResponseModel):
    claim_id: str
    code_id: str
    hardware_id: str
    name: str | None = Field(description="What the device calls itself.")
    address: str = Field(description="Where it called from.")
    status: ClaimStatus
    device_id: str | None
    created_at: Timestamp
    decided_by: str | None
    decided_at: Timestamp | None


class DeviceClaimRequest(RequestBodyModel):
    code: Annotated[str, Field(min_length=1, max_length=64)]
    hardware_id: HardwareId
    name: DeviceName | None = Field(default=None, description="Omitted: the code's name and the hardware id.")


class DeviceClaimedResponse(ResponseModel):
    """What the device stores, and connects with."""

    status: ClaimStatus
    device_id: str
    mqtt_username: str
    mqtt_password: str = Field(json_schema_extra={"format": "password"})
    mqtt_host: str
    mqtt_port: int
    mqtt_tls_port: int | None
    ws_port: int
    topic_prefix: str

    @classmethod
    def from_domain(cls, issued: RevealedCredentials) -> DeviceClaimedResponse:
        broker = issued.endpoint
        return cls.of(
            issued,
            broker,
            status=ClaimStatus.CLAIMED,
            mqtt_username=issued.device_id,
            mqtt_password=issued.password,
            mqtt_host=broker.host,
            mqtt_port=broker.port,
            mqtt_tls_port=broker.tls_port,
            topic_prefix=f"devices/{issued.device_id}",
        )


class DeviceClaimWaitsResponse(ResponseModel):
    """The claim waits for approval: ask again with the same body."""

    status: ClaimStatus
    retry_after: int = Field(description="Seconds until it is worth asking again.")
