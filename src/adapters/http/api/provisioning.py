"""Provisioning codes, the claims that wait for approval, and the claim itself, which a device without credentials makes."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from adapters.http.api.devices import DeviceName, Tags
from adapters.http.core.callers import AllowedCallers, client_address, current_session
from adapters.http.core.operation import ApiBlueprint, AuthorityMade, HttpHandlerResult
from adapters.http.core.paging import (
    CREATED,
    PageLimit,
    PageQueryParameters,
    TimedPageQueryParameters,
    by_creation,
    list_response,
    page_response,
)
from adapters.http.core.parsing import parse_timestamp
from adapters.http.core.schemas import (
    DisplayName,
    EndedAt,
    EndingResponse,
    EnumValue,
    IdText,
    RequestBodyModel,
    ResponseModel,
    ShortText,
    Timestamp,
    TimestampText,
)
from domain.devices.credentials import RevealedCredentials
from domain.devices.model import FirmwareProfile
from domain.kernel.ids import ClaimId, DeviceTypeId, ProjectId, ProvisioningCodeId
from domain.provisioning.codes import ProvisioningCodeInput, ProvisioningCodeService
from domain.provisioning.model import (
    MAX_CODE_DEVICES,
    MAX_LISTED_HARDWARE_IDS,
    POLL_AFTER_S,
    ClaimStatus,
    DeviceProvisioningClaim,
    stored_hardware_id,
)
from domain.provisioning.redemption import ProvisioningClaimInput, ProvisioningCodeRedemptionService

HardwareId = Annotated[
    str,
    StringConstraints(min_length=4, max_length=64, pattern=r"^[A-Za-z0-9._:-]+$"),
    Field(description="Identifies this piece of hardware, such as its MAC address or chip id. Compared without regard to case."),
]
ClaimToken = Annotated[
    str,
    StringConstraints(min_length=32, max_length=128, pattern=r"^[A-Za-z0-9._~-]+$"),
    Field(json_schema_extra={"format": "password"}),
]


class ProvisioningCodeRequest(RequestBodyModel):
    name: DisplayName
    board_type: ShortText = Field(examples=["ESP32"])
    app_type: ShortText = Field(examples=["PUMP"])
    project_id: IdText[ProjectId] | None = Field(default=None, description="Omitted: the account's default project.")
    device_type_id: IdText[DeviceTypeId] | None = None
    profile: EnumValue[FirmwareProfile] | None = None
    tags: Tags | None = None
    max_devices: Annotated[int, Field(ge=1, le=MAX_CODE_DEVICES)] | None = Field(
        default=None, description="How many devices may use the code. Omitted: as many as `hardwareIds` lists, or 1."
    )
    hardware_ids: Annotated[list[HardwareId], Field(max_length=MAX_LISTED_HARDWARE_IDS)] | None = Field(
        default=None, description="Only these may use the code. Omitted or empty: whoever has it."
    )
    requires_approval: bool = Field(default=True, description="Each device waits until an Owner or Admin approves it.")
    expires_at: TimestampText = Field(description="At most a year ahead.")

    def to_input(self) -> ProvisioningCodeInput:
        expires_ms = parse_timestamp("expiresAt", self.expires_at)
        listed = tuple(dict.fromkeys(map(stored_hardware_id, self.hardware_ids or ())))
        return self.to_domain(
            ProvisioningCodeInput,
            expires_ms=expires_ms,
            tags=tuple(dict.fromkeys(self.tags or ())),
            hardware_ids=listed,
            max_devices=self.max_devices or len(listed) or 1,
        )


class ProvisioningCodeResponse(EndingResponse):
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
    hardware_ids: list[str] = Field(description="Only these may use it; empty: whoever has it.")
    claimed_count: int = Field(description="How many devices have got credentials with it.")
    requires_approval: bool
    expires_at: Timestamp
    ended_at: EndedAt
    created_at: Timestamp


class ProvisioningCodeCreatedResponse(ProvisioningCodeResponse):
    code: str = Field(description="Shown only in this response.", json_schema_extra={"format": "password"})


class DeviceClaimsQueryParameters(TimedPageQueryParameters):
    status: ClaimStatus | None = None
    limit: PageLimit = 50


class ClaimResponse(EndingResponse):
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
    ended_at: EndedAt

    @classmethod
    def from_domain(cls, claim: DeviceProvisioningClaim) -> ClaimResponse:
        return cls.of(claim, ended_at=claim.ended_ms)


class DeviceClaimRequest(RequestBodyModel):
    code: Annotated[str, Field(min_length=1, max_length=64)]
    hardware_id: HardwareId
    claim_token: ClaimToken | None = Field(
        default=None,
        description="A secret of the device: random, made and stored before the first request, sent with each. Omitted in the "
        "first request: the answer has one, which each later request needs.",
    )
    name: DeviceName | None = Field(default=None, description="Omitted: the code's name and the hardware id.")


class DeviceClaimedResponse(ResponseModel):
    """What the device stores, and connects with."""

    status: ClaimStatus
    claim_token: str = Field(json_schema_extra={"format": "password"})
    device_id: str
    mqtt_username: str
    mqtt_password: str = Field(json_schema_extra={"format": "password"})
    mqtt_host: str
    mqtt_port: int
    mqtt_tls_port: int | None
    ws_port: int
    topic_prefix: str

    @classmethod
    def from_domain(cls, token: str, issued: RevealedCredentials) -> DeviceClaimedResponse:
        broker = issued.endpoint
        return cls.of(
            issued,
            broker,
            status=ClaimStatus.CLAIMED,
            claim_token=token,
            mqtt_username=issued.device_id,
            mqtt_password=issued.password,
            mqtt_host=broker.host,
            mqtt_port=broker.port,
            mqtt_tls_port=broker.tls_port,
            topic_prefix=f"devices/{issued.device_id}",
        )


class DeviceClaimWaitsResponse(ResponseModel):
    """The claim waits for approval: ask again with the same body and the `claimToken`."""

    status: ClaimStatus
    claim_token: str = Field(json_schema_extra={"format": "password"})
    retry_after: int = Field(description="Seconds until it is worth asking again.")


DECISION_ERRORS = {403: "ROLE_REQUIRED", 409: "ALREADY_DECIDED"}


def provisioning_blueprint(codes: ProvisioningCodeService, claims: ProvisioningCodeRedemptionService) -> ApiBlueprint:
    bp = ApiBlueprint("provisioning", "Provisioning")

    @bp.operation("GET /provisioning-codes", AllowedCallers.SESSION, "List provisioning codes")
    async def list_provisioning_codes(query: PageQueryParameters) -> HttpHandlerResult[list[ProvisioningCodeResponse]]:
        """Oldest first, without the codes themselves."""
        found = await codes.list(current_session())
        return list_response(found, query, ProvisioningCodeResponse.of, lambda code: (code.created_ms, code.code_id))

    @bp.operation("GET /provisioning-codes/<code_id>", AllowedCallers.SESSION, "Get a provisioning code")
    async def get_provisioning_code(code_id: ProvisioningCodeId) -> ProvisioningCodeResponse:
        """Without the code itself."""
        return ProvisioningCodeResponse.of(await codes.get(current_session(), code_id))

    @bp.operation(
        "POST /provisioning-codes",
        AllowedCallers.SESSION,
        "Create a provisioning code",
        status=201,
        errors={403: "ROLE_REQUIRED", 404: "NOT_FOUND", 409: "PROVISIONING_CODE_LIMIT"},
        idempotent=True,
        authority=AuthorityMade("provisioning_code_created", "DELETE /provisioning-codes/{codeId}"),
    )
    async def create_provisioning_code(body: ProvisioningCodeRequest) -> ProvisioningCodeCreatedResponse:
        """Devices with this code in their firmware trade it for credentials of their own. It is void while its maker is no Admin
        or Owner. Requires the role Admin or Owner."""
        code, secret = await codes.create(current_session(), body.to_input())
        return ProvisioningCodeCreatedResponse.of(code, code=secret)

    @bp.operation(
        "DELETE /provisioning-codes/<code_id>",
        AllowedCallers.SESSION,
        "Revoke a provisioning code",
        errors={403: "ROLE_REQUIRED"},
    )
    async def revoke_provisioning_code(code_id: ProvisioningCodeId) -> None:
        """Also removes the claims that wait. Devices that have their credentials keep them. Requires the role Admin or Owner."""
        await codes.revoke(current_session(), code_id)

    @bp.operation("GET /provisioning-claims", AllowedCallers.SESSION, "List claims")
    async def list_provisioning_claims(query: DeviceClaimsQueryParameters) -> HttpHandlerResult[list[ClaimResponse]]:
        """Newest first."""
        before = query.position(*CREATED)
        found = await codes.list_claims(
            current_session(), status=query.status, before=before, limit=query.limit + 1, created=query.span
        )
        return page_response(found, query, ClaimResponse.from_domain, by_creation)

    @bp.operation("GET /provisioning-claims/<claim_id>", AllowedCallers.SESSION, "Get a claim")
    async def get_provisioning_claim(claim_id: ClaimId) -> ClaimResponse:
        """Also after its decision."""
        return ClaimResponse.from_domain(await codes.get_claim(current_session(), claim_id))

    @bp.operation(
        "POST /provisioning-claims/<claim_id>/approve", AllowedCallers.SESSION, "Approve a claim", errors=DECISION_ERRORS
    )
    async def approve_claim(claim_id: ClaimId) -> ClaimResponse:
        """The board that made this claim gets its credentials when it asks the next time; another one with the same hardware id
        does not. A claim is decided once. Requires the role Admin or Owner."""
        return ClaimResponse.from_domain(await codes.decide(current_session(), claim_id, approve=True))

    @bp.operation("POST /provisioning-claims/<claim_id>/deny", AllowedCallers.SESSION, "Deny a claim", errors=DECISION_ERRORS)
    async def deny_claim(claim_id: ClaimId) -> ClaimResponse:
        """This hardware id is refused from now on, until the claim is forgotten. A claim is decided once. Requires the role Admin
        or Owner."""
        return ClaimResponse.from_domain(await codes.decide(current_session(), claim_id, approve=False))

    @bp.operation(
        "DELETE /provisioning-claims/<claim_id>",
        AllowedCallers.SESSION,
        "Forget a claim",
        errors={403: "ROLE_REQUIRED", 409: "ALREADY_CLAIMED"},
    )
    async def delete_claim(claim_id: ClaimId) -> None:
        """The next board that asks with this hardware id makes a new claim. For one that was denied by mistake, has lost its
        token, or came after somebody who used its hardware id. Requires the role Admin or Owner."""
        await codes.forget(current_session(), claim_id)

    @bp.operation(
        "POST /provisioning/claim",
        AllowedCallers.ANYONE,
        "Claim credentials with a provisioning code",
        returns={201: DeviceClaimedResponse, 202: DeviceClaimWaitsResponse},
        errors={
            401: "PROVISIONING_CODE_INVALID",
            403: "CLAIM_DENIED HARDWARE_NOT_LISTED",
            409: "ALREADY_CLAIMED PROVISIONING_CODE_USED_UP TOO_MANY_DEVICES",
            429: "LOGIN_THROTTLED",
        },
    )
    async def claim_device(body: DeviceClaimRequest) -> DeviceClaimedResponse | DeviceClaimWaitsResponse:
        """For a device at its first start; needs no other authentication. 202 while an Admin has not decided. The first request
        makes the claim; repeated with its `claimToken` it is answered again, with the credentials too, until the device has
        connected with them. Who sends the same hardware id without the token gets nothing."""
        request = ProvisioningClaimInput(body.code, body.hardware_id, body.name, client_address(), body.claim_token)
        answer = await claims.claim(request)
        if answer.credentials is None:
            return DeviceClaimWaitsResponse(status=ClaimStatus.PENDING, claim_token=answer.token, retry_after=POLL_AFTER_S)
        return DeviceClaimedResponse.from_domain(answer.token, answer.credentials)

    return bp
