"""Passkey routes: sign in with one, prove to be present with one, add, list and remove them."""

from __future__ import annotations

from adapters.http.api.authentication import passkey_schemas as schema
from adapters.http.api.authentication.schemas import LoginResponse, login_response
from adapters.http.core.caller_authentication import AllowedCallers, client_info, current_session
from adapters.http.core.operation import ApiBlueprint
from domain.sign_in.passkeys import PasskeyManagementService, PasskeySignInService

STEP_UP = "STEP_UP_REQUIRED"


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
    async def create_passkey_login_options(body: schema.PasskeyOptionsRequest) -> schema.PasskeyOptionsResponse:
        if body.challenge_token is None:
            return schema.PasskeyOptionsResponse(public_key=sign_ins.sign_in_options())
        return schema.PasskeyOptionsResponse(public_key=await sign_ins.second_factor_options(body.challenge_token))

    @bp.operation("POST /auth/login/passkey", AllowedCallers.ANYONE, "Sign in with a passkey", errors={400: "PASSKEY_REFUSED"})
    async def login_with_passkey(body: schema.PasskeyLoginRequest) -> LoginResponse:
        """Instead of password and second factor: the authenticator has checked the person."""
        return login_response(await sign_ins.sign_in(body.passkey, client=client_info(body.device_token or "")))

    @bp.operation(
        "POST /auth/step-up/passkey-options",
        AllowedCallers.SESSION,
        "Get the question to confirm with a passkey",
        errors={404: "NOT_FOUND"},
    )
    async def create_step_up_options() -> schema.PasskeyOptionsResponse:
        """For every role. The response belongs to `POST /auth/step-up`."""
        return schema.PasskeyOptionsResponse(public_key=await sign_ins.step_up_options(current_session()))

    @bp.operation(
        "POST /auth/passkeys/options",
        AllowedCallers.SESSION,
        "Begin to add a passkey",
        errors={403: STEP_UP, 409: "TOO_MANY_PASSKEYS"},
    )
    async def create_passkey_options() -> schema.PasskeyOptionsResponse:
        """For every role; at most ten each. Until the passkey is added nothing changes."""
        return schema.PasskeyOptionsResponse(public_key=await passkeys.begin(current_session()))

    @bp.operation(
        "POST /auth/passkeys",
        AllowedCallers.SESSION,
        "Add a passkey",
        status=201,
        errors={400: "PASSKEY_REFUSED", 403: STEP_UP, 409: "PASSKEY_EXISTS TOO_MANY_PASSKEYS"},
    )
    async def create_passkey(body: schema.PasskeyCreateRequest) -> schema.PasskeyCreatedResponse:
        """If it is your first second factor, all other sessions are signed out and recovery codes are returned."""
        added = await passkeys.add(current_session(), body.name, body.passkey)
        return schema.PasskeyCreatedResponse.of(added, added.passkey)

    @bp.operation("GET /auth/passkeys", AllowedCallers.SESSION, "List your passkeys")
    async def list_passkeys() -> list[schema.PasskeyResponse]:
        """The oldest first."""
        return [schema.PasskeyResponse.of(one, synced=one.is_synced) for one in await passkeys.list(current_session())]

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
