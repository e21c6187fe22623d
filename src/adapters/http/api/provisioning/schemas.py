"""Request and response models of provisioning codes and claims."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from adapters.http.api.devices.schemas import DeviceName, IdText, ShortText, Tags
from adapters.http.core.request_parsing import parse_timestamp
from adapters.http.core.schemas import DisplayName, EnumValue, QueryParameters, RequestBody, ResponseModel, Timestamp
from domain.devices.credential_issuer import RevealedCredentials
from domain.devices.model import FirmwareProfile
from domain.kernel.clock import to_iso
from domain.kernel.ids import DeviceTypeId, ProjectId
from domain.provisioning.codes import CreatedProvisioningCode, ProvisioningCodeInput
from domain.provisioning.model import ClaimStatus, DeviceClaim, ProvisioningCode
from domain.provisioning.policy import MAX_CODE_DEVICES

HardwareId = Annotated[
    str,
    StringConstraints(min_length=4, max_length=64, pattern=r"^[A-Za-z0-9._:-]+$"),
    Field(description="What tells this piece of hardware from every other, such as its MAC address or chip id."),
]


class ProvisioningCodeRequest(RequestBody):
    name: DisplayName
    board_type: ShortText = Field(examples=["ESP32"])
    app_type: ShortText = Field(examples=["PUMP"])
    project_id: IdText | None = Field(default=None, description="Omitted: the account's default project.")
    device_type_id: IdText | None = None
    profile: EnumValue[FirmwareProfile] | None = None
    tags: Tags | None = None
    max_devices: Annotated[int, Field(ge=1, le=MAX_CODE_DEVICES)] = Field(default=1, description="How many devices may use it.")
    requires_approval: bool = Field(default=True, description="Each device waits until an Owner or Admin approves it.")
    expires_at: Timestamp = Field(description="At most a year ahead.")

    def to_input(self) -> ProvisioningCodeInput:
        return ProvisioningCodeInput(
            name=self.name,
            board_type=self.board_type,
            app_type=self.app_type,
            expires_ms=parse_timestamp("expiresAt", self.expires_at),
            max_devices=self.max_devices,
            requires_approval=self.requires_approval,
            project_id=None if self.project_id is None else ProjectId(self.project_id),
            device_type_id=None if self.device_type_id is None else DeviceTypeId(self.device_type_id),
            profile=self.profile,
            tags=tuple(dict.fromkeys(self.tags or ())),
        )


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

    @classmethod
    def from_domain(cls, code: ProvisioningCode) -> ProvisioningCodeResponse:
        return cls(
            code_id=code.code_id,
            name=code.name,
            prefix=code.prefix,
            project_id=code.project_id,
            board_type=code.board_type,
            app_type=code.app_type,
            profile=code.profile,
            device_type_id=code.device_type_id,
            tags=list(code.tags),
            max_devices=code.max_devices,
            claimed_count=code.claimed_count,
            requires_approval=code.requires_approval,
            expires_at=to_iso(code.expires_ms),
            created_at=to_iso(code.created_ms),
        )


class ProvisioningCodeCreatedResponse(ProvisioningCodeResponse):
    code: str = Field(description="Shown only in this response.", json_schema_extra={"format": "password"})

    @classmethod
    def of_created(cls, created: CreatedProvisioningCode) -> ProvisioningCodeCreatedResponse:
        shown = ProvisioningCodeResponse.from_domain(created.code)
        return cls(**shown.model_dump(), code=created.secret)


class ClaimsQuery(QueryParameters):
    status: ClaimStatus | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    before: IdText | None = Field(default=None, description="The id of a claim: only those older than it.")


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

    @classmethod
    def from_domain(cls, claim: DeviceClaim) -> ClaimResponse:
        return cls(
            claim_id=claim.claim_id,
            code_id=claim.code_id,
            hardware_id=claim.hardware_id,
            name=claim.name,
            address=claim.address,
            status=claim.status,
            device_id=claim.device_id,
            created_at=to_iso(claim.created_ms),
            decided_by=claim.decided_by,
            decided_at=None if claim.decided_ms is None else to_iso(claim.decided_ms),
        )


class DeviceClaimRequest(RequestBody):
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
        return cls(
            status=ClaimStatus.CLAIMED,
            device_id=issued.device_id,
            mqtt_username=issued.device_id,
            mqtt_password=issued.password,
            mqtt_host=issued.endpoint.host,
            mqtt_port=issued.endpoint.port,
            mqtt_tls_port=issued.endpoint.tls_port,
            ws_port=issued.endpoint.ws_port,
            topic_prefix=f"devices/{issued.device_id}",
        )


class DeviceClaimWaitsResponse(ResponseModel):
    """The claim waits for approval: ask again with the same body."""

    status: ClaimStatus
    retry_after: int = Field(description="Seconds until it is worth asking again.")
