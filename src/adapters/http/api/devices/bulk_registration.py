"""Registration of many devices with one request."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from adapters.http.api.device_credentials.schemas import CredentialsResponse
from adapters.http.api.devices.schemas import DeviceRegistrationRequest
from adapters.http.core.caller_authentication import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint
from adapters.http.core.schemas import EnumValue, RequestBodyModel, ResponseModel
from domain.devices.registration import (
    MAX_DEVICES_PER_REQUEST,
    BulkCredentials,
    BulkOutcome,
    BulkRegistrationRowResult,
    BulkRegistrationService,
    DeviceRegistrationInput,
)


class BulkRegistrationRequest(RequestBodyModel):
    devices: Annotated[list[DeviceRegistrationRequest], Field(min_length=1, max_length=MAX_DEVICES_PER_REQUEST)]
    credentials: EnumValue[BulkCredentials] = Field(
        default=BulkCredentials.NONE,
        description=(
            "`NEW`: make credentials for the devices that have none, and answer with them, once. `UNUSED`: also replace those "
            "that no device has connected with yet, for a repeated request whose answer was lost."
        ),
    )


class BulkDeviceResponse(ResponseModel):
    outcome: BulkOutcome = Field(
        description="`EXISTS`: a device of the account has this `externalId`; it was not changed. `FAILED`: see `error`."
    )
    name: str
    external_id: str | None
    device_id: str | None
    credentials: CredentialsResponse | None
    error: str | None = Field(description="The code of the error of a FAILED row.")
    message: str | None

    @classmethod
    def from_domain(cls, row: DeviceRegistrationInput, result: BulkRegistrationRowResult) -> BulkDeviceResponse:
        device, issued, error = result.device, result.credentials, result.error
        return cls(
            outcome=result.outcome,
            name=row.name if device is None else device.name,
            external_id=row.external_id,
            device_id=None if device is None else device.device_id,
            credentials=None if issued is None else CredentialsResponse.from_domain(issued),
            error=None if error is None else error.code,
            message=None if error is None else error.message,
        )


class BulkRegistrationResponse(ResponseModel):
    """`devices` has one entry per row, in the order of the request."""

    created: int
    existing: int
    failed: int
    devices: list[BulkDeviceResponse]


def bulk_registration_blueprint(bulk: BulkRegistrationService) -> ApiBlueprint:
    bp = ApiBlueprint("bulk_registration", "Devices")

    @bp.operation(
        "POST /devices/register/bulk",
        AllowedCallers.SESSION,
        "Register many devices",
        errors={403: "ROLE_REQUIRED", 409: "CONFLICT"},
        idempotent=True,
    )
    async def register_devices(body: BulkRegistrationRequest) -> BulkRegistrationResponse:
        """Up to 200 devices in one transaction, with an outcome for each. A body with a malformed row is refused as a whole, and
        `details` names every field. Give each device an `externalId`, your own id of it: a repeated request then finds what it
        has made, and makes the rest. Send larger fleets as several requests."""
        rows = [row.to_registration() for row in body.devices]
        results = await bulk.register_many(current_session(), rows, body.credentials)
        outcomes = [result.outcome for result in results]
        return BulkRegistrationResponse(
            created=outcomes.count(BulkOutcome.CREATED),
            existing=outcomes.count(BulkOutcome.EXISTS),
            failed=outcomes.count(BulkOutcome.FAILED),
            devices=[BulkDeviceResponse.from_domain(row, result) for row, result in zip(rows, results, strict=True)],
        )

    return bp
