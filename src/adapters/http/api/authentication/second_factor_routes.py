"""Second-factor routes: the second step of a sign-in, step-up, set up and remove an authenticator app, recovery codes."""

from __future__ import annotations

from adapters.http.api.authentication import second_factor_schemas as schema
from adapters.http.api.authentication.schemas import LoginResponse, login_response
from adapters.http.core.caller_authentication import AllowedCallers, client_info, current_session
from adapters.http.core.operation import ApiBlueprint
from domain.kernel.clock import to_iso
from domain.sign_in.login import LoginService
from domain.sign_in.second_factor_settings import SecondFactorService
from domain.sign_in.step_up import StepUpService

STEP_UP = "STEP_UP_REQUIRED"


def second_factor_blueprint(
    *, logins: LoginService, second_factors: SecondFactorService, step_ups: StepUpService
) -> ApiBlueprint:
    bp = ApiBlueprint("second_factor", "Authentication")

    @bp.operation(
        "POST /auth/login/second-factor",
        AllowedCallers.ANYONE,
        "Complete a sign-in with the second factor",
        errors={400: "CHALLENGE_EXPIRED PASSKEY_REFUSED", 401: "SECOND_FACTOR_INVALID", 429: "LOGIN_THROTTLED"},
    )
    async def login_with_second_factor(body: schema.SecondFactorLoginRequest) -> LoginResponse:
        """The second step after `POST /auth/login` answered 202. Send `totp`, `recoveryCode` or `passkey`; each works once."""
        client = client_info(body.device_token or "")
        return login_response(await logins.complete(body.challenge_token, body.to_factor(), client=client))

    @bp.operation(
        "POST /auth/step-up",
        AllowedCallers.SESSION,
        "Confirm that it is you",
        description="Send a code of your second factor or a passkey; the password if you have none. For five minutes this "
        "session may change the second factor and, with the password, reveal credentials; a user with a second factor may "
        "approve requests for 15.",
        errors={400: "PASSKEY_REFUSED", 403: "PASSWORD_MISMATCH SECOND_FACTOR_INVALID", 429: "LOGIN_THROTTLED"},
    )
    async def confirm_presence(body: schema.StepUpRequest) -> schema.StepUpResponse:
        until_ms = await step_ups.step_up(current_session(), password=body.password, factor=body.to_factor())
        return schema.StepUpResponse(valid_until=to_iso(until_ms))

    @bp.operation("GET /auth/second-factor", AllowedCallers.SESSION, "Get the state of your second factor")
    async def get_second_factor() -> schema.SecondFactorStatusResponse:
        """For every role."""
        return schema.SecondFactorStatusResponse.of(await second_factors.get_status(current_session()))

    @bp.operation(
        "POST /auth/second-factor/totp",
        AllowedCallers.SESSION,
        "Begin to set up an authenticator app",
        errors={403: STEP_UP, 409: "SECOND_FACTOR_EXISTS"},
    )
    async def create_totp_secret() -> schema.TotpSetupResponse:
        """Show `qrSvg` or `secret`, and confirm with a code of the app. Until then nothing changes."""
        setup = await second_factors.begin_totp(current_session())
        return schema.TotpSetupResponse.of(setup, otpauth_uri=setup.uri)

    @bp.operation(
        "POST /auth/second-factor/totp/confirm",
        AllowedCallers.SESSION,
        "Confirm an authenticator app",
        errors={400: "SECOND_FACTOR_INVALID", 403: STEP_UP, 404: "NOT_FOUND"},
    )
    async def confirm_totp(body: schema.TotpConfirmRequest) -> schema.RecoveryCodesResponse:
        """Turns the second factor on and signs out all other sessions. The recovery codes are shown only now."""
        return schema.RecoveryCodesResponse(recovery_codes=list(await second_factors.confirm_totp(current_session(), body.code)))

    @bp.operation(
        "POST /auth/second-factor/recovery-codes",
        AllowedCallers.SESSION,
        "Replace your recovery codes",
        errors={403: STEP_UP, 404: "NOT_FOUND"},
    )
    async def rotate_recovery_codes() -> schema.RecoveryCodesResponse:
        """Ten new codes, shown only now; the old ones are void."""
        return schema.RecoveryCodesResponse(recovery_codes=list(await second_factors.renew_recovery_codes(current_session())))

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
