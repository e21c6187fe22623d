"""The second factor: the second step of a sign-in, step-up, an authenticator app, recovery codes, and passkeys, which also sign
in without a password."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from adapters.http.api.authentication import LoginResponse
from adapters.http.core.callers import AllowedCallers, client_info, current_session
from adapters.http.core.operation import ApiBlueprint, AuthorityMade, HttpHandlerResult
from adapters.http.core.paging import PageQueryParameters, list_response
from adapters.http.core.schemas import DisplayName, OkResponse, RequestBodyModel, ResponseModel, Timestamp
from domain.kernel.clock import to_iso
from domain.sign_in.login import LoginService
from domain.sign_in.passkeys import PasskeyManagementService, PasskeySignInService
from domain.sign_in.second_factor import PresentedSecondFactor
from domain.sign_in.second_factor_settings import SecondFactorService
from domain.sign_in.step_up import StepUpService

PasskeyResponseField = Annotated[
    dict[str, Any],
    Field(
        description="The response of the browser: the JSON of `PublicKeyCredential.toJSON()`.",
        json_schema_extra={"examples": [{"id": "q0N1", "rawId": "q0N1", "type": "public-key", "response": {}}]},
    ),
]


class SecondFactorLoginRequest(RequestBodyModel):
    challenge_token: str = Field(min_length=1, max_length=128, description="From the 202 response of the login.")
    totp: str | None = Field(default=None, max_length=16, description="The 6-digit code that the app shows.")
    recovery_code: str | None = Field(default=None, max_length=32)
    passkey: PasskeyResponseField | None = None
    device_token: str | None = Field(default=None, max_length=1024, description="That of this client's last login.")

    @model_validator(mode="after")
    def _one_factor(self) -> SecondFactorLoginRequest:
        if sum(one is not None for one in (self.totp, self.recovery_code, self.passkey)) != 1:
            raise ValueError("send exactly one of totp, recoveryCode and passkey")
        return self

    def to_factor(self) -> PresentedSecondFactor:
        return PresentedSecondFactor(self.totp, self.recovery_code, self.passkey)


class StepUpRequest(RequestBodyModel):
    password: str | None = Field(default=None, max_length=256, description="For a user without a second factor.")
    totp: str | None = Field(default=None, max_length=16)
    recovery_code: str | None = Field(default=None, max_length=32)
    passkey: PasskeyResponseField | None = None

    @model_validator(mode="after")
    def _one_proof(self) -> StepUpRequest:
        if sum(one is not None for one in (self.password, self.totp, self.recovery_code, self.passkey)) != 1:
            raise ValueError("send exactly one of password, totp, recoveryCode and passkey")
        return self

    def to_factor(self) -> PresentedSecondFactor | None:
        return None if self.password is not None else PresentedSecondFactor(self.totp, self.recovery_code, self.passkey)


class TotpConfirmRequest(RequestBodyModel):
    code: str = Field(min_length=6, max_length=16)


class StepUpResponse(OkResponse):
    valid_until: Timestamp


class SecondFactorStatusResponse(ResponseModel):
    enabled: bool
    required: bool = Field(description="Whether this installation requires one for your role.")
    totp: bool = Field(description="Whether you have an authenticator app.")
    passkeys: int = Field(description="Number of your passkeys.")
    recovery_codes_left: int


class TotpSetupResponse(ResponseModel):
    secret: str = Field(json_schema_extra={"format": "password"}, description="Base 32, for typing in.")
    otpauth_uri: str = Field(json_schema_extra={"format": "password"})
    qr_svg: str = Field(json_schema_extra={"format": "password"}, description="The URI as a QR code: an SVG image.")
    qr_rows: list[str] = Field(
        json_schema_extra={"format": "password"},
        description="The same code as rows of modules, `1` for dark, without the quiet zone: for pages that insert no markup.",
    )


class RecoveryCodesResponse(ResponseModel):
    recovery_codes: list[str] = Field(description="Each replaces a second factor once. Shown only now. Empty if you have some.")


STEP_UP = "STEP_UP_REQUIRED"


def second_factor_blueprint(
    *, logins: LoginService, second_factors: SecondFactorService, step_ups: StepUpService
) -> ApiBlueprint:
    bp = ApiBlueprint("second_factor", "Authentication")

    @bp.operation(
        "POST /auth/login/second-factor",
        AllowedCallers.ANYONE,
        "Complete a sign-in with the second factor",
        errors={
            400: "CHALLENGE_EXPIRED PASSKEY_REFUSED",
            401: "SECOND_FACTOR_INVALID",
            403: "TOTP_LOCKED",
            429: "LOGIN_THROTTLED",
        },
    )
    async def login_with_second_factor(body: SecondFactorLoginRequest) -> LoginResponse:
        """The second step after `POST /auth/login` answered 202. Send `totp`, `recoveryCode` or `passkey`; each works once."""
        client = client_info(body.device_token or "")
        return LoginResponse.from_domain(await logins.complete(body.challenge_token, body.to_factor(), client=client))

    @bp.operation(
        "POST /auth/step-up",
        AllowedCallers.SESSION,
        "Confirm that it is you",
        description="Send a code of your second factor or a passkey; the password if you have none. For five minutes this "
        "session may change the second factor, make keys, codes, channels and members, and, with the password, reveal "
        "credentials; a user with a second factor may approve requests for 15.",
        errors={400: "PASSKEY_REFUSED", 403: "PASSWORD_MISMATCH SECOND_FACTOR_INVALID TOTP_LOCKED", 429: "LOGIN_THROTTLED"},
        before_factor=True,
    )
    async def confirm_presence(body: StepUpRequest) -> StepUpResponse:
        until_ms = await step_ups.step_up(current_session(), password=body.password, factor=body.to_factor())
        return StepUpResponse(valid_until=to_iso(until_ms))

    @bp.operation("GET /auth/second-factor", AllowedCallers.SESSION, "Get the state of your second factor", before_factor=True)
    async def get_second_factor() -> SecondFactorStatusResponse:
        """For every role."""
        return SecondFactorStatusResponse.of(await second_factors.get_status(current_session()))

    @bp.operation(
        "POST /auth/second-factor/totp",
        AllowedCallers.SESSION,
        "Begin to set up an authenticator app",
        errors={403: STEP_UP, 409: "SECOND_FACTOR_EXISTS"},
        before_factor=True,
    )
    async def create_totp_secret() -> TotpSetupResponse:
        """Show `qrSvg` or `secret`, and confirm with a code of the app. Until then nothing changes."""
        setup = await second_factors.begin_totp(current_session())
        return TotpSetupResponse.of(setup, otpauth_uri=setup.uri)

    @bp.operation(
        "POST /auth/second-factor/totp/confirm",
        AllowedCallers.SESSION,
        "Confirm an authenticator app",
        errors={400: "SECOND_FACTOR_INVALID", 403: STEP_UP, 404: "NOT_FOUND"},
        authority=AuthorityMade("second_factor_enabled", "DELETE /auth/second-factor/totp"),
        before_factor=True,
    )
    async def confirm_totp(body: TotpConfirmRequest) -> RecoveryCodesResponse:
        """Turns the second factor on and signs out all other sessions. The recovery codes are shown only now."""
        return RecoveryCodesResponse(recovery_codes=list(await second_factors.confirm_totp(current_session(), body.code)))

    @bp.operation(
        "POST /auth/second-factor/recovery-codes",
        AllowedCallers.SESSION,
        "Replace your recovery codes",
        errors={403: STEP_UP, 404: "NOT_FOUND"},
        authority=AuthorityMade("recovery_codes_renewed", "DELETE /auth/second-factor"),
    )
    async def rotate_recovery_codes() -> RecoveryCodesResponse:
        """Ten new codes, shown only now; the old ones are void."""
        return RecoveryCodesResponse(recovery_codes=list(await second_factors.renew_recovery_codes(current_session())))

    @bp.operation(
        "DELETE /auth/second-factor",
        AllowedCallers.SESSION,
        "Remove your second factor",
        errors={403: STEP_UP, 404: "NOT_FOUND", 409: "SECOND_FACTOR_REQUIRED"},
    )
    async def delete_second_factor() -> None:
        """Removes the authenticator app, all passkeys and the recovery codes."""
        await second_factors.remove(current_session())

    @bp.operation(
        "DELETE /auth/second-factor/totp",
        AllowedCallers.SESSION,
        "Remove your authenticator app",
        errors={403: STEP_UP, 404: "NOT_FOUND", 409: "SECOND_FACTOR_REQUIRED"},
    )
    async def delete_totp() -> None:
        """Passkeys stay. With your last second factor, the recovery codes are removed as well."""
        await second_factors.remove_totp(current_session())

    return bp


PublicKeyOptions = Annotated[
    dict[str, Any], Field(json_schema_extra={"examples": [{"challenge": "c2hvdy1tZQ", "timeout": 300000}]})
]


class PasskeyOptionsRequest(RequestBodyModel):
    challenge_token: str | None = Field(
        default=None,
        min_length=1,
        max_length=128,
        description="Of a sign-in that waits for its second factor; else passwordless.",
    )


class PasskeyLoginRequest(RequestBodyModel):
    passkey: PasskeyResponseField
    device_token: str | None = Field(default=None, max_length=1024, description="That of this client's last login.")


class PasskeyCreateRequest(RequestBodyModel):
    name: DisplayName
    passkey: PasskeyResponseField


class PasskeyOptionsResponse(ResponseModel):
    public_key: PublicKeyOptions = Field(
        description="For `navigator.credentials`, in the JSON of `PublicKeyCredential.parseRequestOptionsFromJSON`, or of "
        "`parseCreationOptionsFromJSON` for a new passkey. Its challenge is valid for five minutes and one response."
    )


class PasskeyResponse(ResponseModel):
    passkey_id: str
    name: str
    synced: bool = Field(description="Whether a password manager keeps it on several devices.")
    created_at: Timestamp
    last_used_at: Timestamp | None


class PasskeyCreatedResponse(PasskeyResponse):
    recovery_codes: list[str] = Field(description="With your first second factor; shown only now. Else empty.")


def passkeys_blueprint(*, passkeys: PasskeyManagementService, sign_ins: PasskeySignInService) -> ApiBlueprint:
    bp = ApiBlueprint("passkeys", "Authentication")

    @bp.operation(
        "POST /auth/login/passkey/options",
        AllowedCallers.ANYONE,
        "Get the question for a sign-in with a passkey",
        description="Without a `challengeToken` for a sign-in without password: `POST /auth/login/passkey`. With that of a 202 "
        "response for its second step: `POST /auth/login/second-factor`.",
        errors={400: "CHALLENGE_EXPIRED", 404: "NOT_FOUND"},
    )
    async def create_passkey_login_options(body: PasskeyOptionsRequest) -> PasskeyOptionsResponse:
        if body.challenge_token is None:
            return PasskeyOptionsResponse(public_key=sign_ins.sign_in_options())
        return PasskeyOptionsResponse(public_key=await sign_ins.second_factor_options(body.challenge_token))

    @bp.operation("POST /auth/login/passkey", AllowedCallers.ANYONE, "Sign in with a passkey", errors={400: "PASSKEY_REFUSED"})
    async def login_with_passkey(body: PasskeyLoginRequest) -> LoginResponse:
        """Instead of password and second factor: the authenticator has checked the person."""
        return LoginResponse.from_domain(await sign_ins.sign_in(body.passkey, client=client_info(body.device_token or "")))

    @bp.operation(
        "POST /auth/step-up/passkey-options",
        AllowedCallers.SESSION,
        "Get the question to confirm with a passkey",
        errors={404: "NOT_FOUND"},
        before_factor=True,
    )
    async def create_step_up_options() -> PasskeyOptionsResponse:
        """For every role. The response belongs to `POST /auth/step-up`."""
        return PasskeyOptionsResponse(public_key=await sign_ins.step_up_options(current_session()))

    @bp.operation(
        "POST /auth/passkeys/options",
        AllowedCallers.SESSION,
        "Begin to add a passkey",
        errors={403: STEP_UP, 409: "TOO_MANY_PASSKEYS"},
        before_factor=True,
    )
    async def create_passkey_options() -> PasskeyOptionsResponse:
        """For every role; at most ten each. Until the passkey is added nothing changes."""
        return PasskeyOptionsResponse(public_key=await passkeys.begin(current_session()))

    @bp.operation(
        "POST /auth/passkeys",
        AllowedCallers.SESSION,
        "Add a passkey",
        status=201,
        errors={400: "PASSKEY_REFUSED", 403: STEP_UP, 409: "PASSKEY_EXISTS TOO_MANY_PASSKEYS"},
        authority=AuthorityMade("passkey_added", "DELETE /auth/passkeys/{passkeyId}"),
        before_factor=True,
    )
    async def create_passkey(body: PasskeyCreateRequest) -> PasskeyCreatedResponse:
        """If it is your first second factor, all other sessions are signed out and recovery codes are returned."""
        passkey, codes = await passkeys.add(current_session(), body.name, body.passkey)
        return PasskeyCreatedResponse.of(passkey, synced=passkey.is_synced, recovery_codes=list(codes))

    @bp.operation("GET /auth/passkeys/<passkey_id>", AllowedCallers.SESSION, "Get one of your passkeys", before_factor=True)
    async def get_passkey(passkey_id: str) -> PasskeyResponse:
        """What you see of it in the list."""
        found = await passkeys.get(current_session(), passkey_id)
        return PasskeyResponse.of(found, synced=found.is_synced)

    @bp.operation("GET /auth/passkeys", AllowedCallers.SESSION, "List your passkeys", before_factor=True)
    async def list_passkeys(query: PageQueryParameters) -> HttpHandlerResult[list[PasskeyResponse]]:
        """The oldest first."""
        found = await passkeys.list(current_session())
        return list_response(
            found, query, lambda one: PasskeyResponse.of(one, synced=one.is_synced), lambda one: (one.created_ms, one.passkey_id)
        )

    @bp.operation(
        "DELETE /auth/passkeys/<passkey_id>",
        AllowedCallers.SESSION,
        "Remove a passkey",
        errors={403: STEP_UP, 409: "SECOND_FACTOR_REQUIRED"},
    )
    async def delete_passkey(passkey_id: str) -> None:
        """With your last second factor, the recovery codes are removed as well."""
        await passkeys.remove(current_session(), passkey_id)

    return bp
