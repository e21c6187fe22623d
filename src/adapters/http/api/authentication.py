"""Sign in and out, refresh tokens, list and end sessions, the current user, change the password."""

from __future__ import annotations

from typing import Self

from pydantic import ConfigDict, Field

from adapters.http.core.callers import AllowedCallers, client_info, current_session, request_language
from adapters.http.core.operation import ApiBlueprint, HttpHandlerResult
from adapters.http.core.paging import PageQueryParameters, list_response
from adapters.http.core.schemas import RequestBodyModel, ResponseModel, Timestamp
from domain.sign_in.login import LoginService, SecondFactorNeeded
from domain.sign_in.password_change import PasswordChangeService
from domain.sign_in.sessions import OpenedSession, TokenPair, UserSessionService
from domain.sign_in.unlock_link import SignInUnlockLinkService


class LoginRequest(RequestBodyModel):
    model_config = ConfigDict(json_schema_extra={"examples": [{"email": "ada@example.com", "password": "correct horse"}]})

    email: str = Field(max_length=320)
    password: str = Field(max_length=1024)
    device_token: str | None = Field(default=None, max_length=1024, description="That of this client's last login.")


class UnlockLinkRequest(RequestBodyModel):
    email: str = Field(max_length=320)


class UnlockRequest(RequestBodyModel):
    token: str = Field(min_length=1, max_length=128, description="The end of the link from the mail.")


class RefreshTokenRequest(RequestBodyModel):
    refresh_token: str = Field(min_length=1, max_length=512)


class PasswordChangeRequest(RequestBodyModel):
    current_password: str | None = Field(
        default=None, min_length=1, max_length=256, description="Required, unless you never set a password (`hasPassword`)."
    )
    new_password: str = Field(min_length=8, max_length=256)


class PasswordChangeByCodeRequest(RequestBodyModel):
    otp: str = Field(min_length=1, max_length=16, description="The 6-digit code from the mail.", examples=["041234"])
    new_password: str = Field(min_length=8, max_length=256)


class TokensResponse(ResponseModel):
    access_token: str = Field(description="JWT; send it as `Authorization: Bearer <accessToken>`.")
    refresh_token: str = Field(description="Valid for 30 days; can be used once.")
    expires_in: int = Field(description="Lifetime of the access token in seconds.", examples=[900])

    @classmethod
    def from_tokens(cls, tokens: TokenPair, **given: object) -> Self:
        return cls.of(tokens, expires_in=tokens.expires_in_s, **given)


class SignedInUserResponse(ResponseModel):
    account_id: str
    user_id: str
    email: str
    name: str
    plan: str
    role: str
    email_verified: bool
    onboarding_completed: bool

    @classmethod
    def from_domain(cls, signed_in: OpenedSession) -> SignedInUserResponse:
        member = signed_in.member
        return cls.of(member.user, member.membership, signed_in.account, onboarding_completed=True)


class SecondFactorNeededResponse(ResponseModel):
    second_factor_required: bool = True
    challenge_token: str = Field(description="Send it with the second factor to `POST /auth/login/second-factor`.")
    methods: list[str] = Field(examples=[["passkey", "totp", "recoveryCode"]])
    expires_in: int = Field(description="Seconds until the sign-in must begin again.", examples=[300])

    @classmethod
    def from_domain(cls, needed: SecondFactorNeeded) -> SecondFactorNeededResponse:
        return cls.of(needed, challenge_token=needed.token, expires_in=needed.expires_in_s)


class UnlockResponse(ResponseModel):
    device_token: str = Field(description="Send it at the next login.")


class LoginResponse(TokensResponse):
    device_token: str = Field(description="No credential. Send it at the next login of this client.")
    user: SignedInUserResponse

    @classmethod
    def from_domain(cls, signed_in: OpenedSession) -> LoginResponse:
        user = SignedInUserResponse.from_domain(signed_in)
        return cls.from_tokens(signed_in.tokens, device_token=signed_in.device_tokens, user=user)


class CurrentUserResponse(ResponseModel):
    user_id: str
    email: str
    name: str
    email_verified: bool
    account_id: str
    account_name: str
    plan: str
    role: str
    device_count: int
    has_password: bool = Field(description="False for a user of an identity provider who never set one.")
    has_google_auth: bool = False
    has_github_auth: bool = False


class UserSessionResponse(ResponseModel):
    session_id: str
    created_at: Timestamp
    last_used_at: Timestamp
    address: str = Field(description="Empty for a session that began before addresses were kept.")
    user_agent: str
    current: bool = Field(description="Whether this is the session of the present call.")


def auth_blueprint(
    *, logins: LoginService, unlock: SignInUnlockLinkService, sessions: UserSessionService, passwords: PasswordChangeService
) -> ApiBlueprint:
    bp = ApiBlueprint("auth", "Authentication")
    _add_token_routes(bp, logins, sessions)
    _add_unlock_routes(bp, unlock)
    _add_session_routes(bp, sessions)
    _add_password_routes(bp, passwords)
    return bp


def _add_token_routes(bp: ApiBlueprint, logins: LoginService, sessions: UserSessionService) -> None:
    @bp.operation(
        "POST /auth/login",
        AllowedCallers.ANYONE,
        "Sign in",
        description="An unknown email and a wrong password get the same response. `deviceToken` is no credential: a client that "
        "sends it at its next login has its own allowance for wrong passwords, so that strangers who guess cannot keep it out. "
        "A user with a second factor gets 202 and a `challengeToken`; `POST /auth/login/second-factor` completes the sign-in.",
        returns={200: LoginResponse, 202: SecondFactorNeededResponse},
        errors={401: "INVALID_CREDENTIALS", 429: "LOGIN_THROTTLED"},
    )
    async def login_user(body: LoginRequest) -> LoginResponse | SecondFactorNeededResponse:
        result = await logins.login(body.email, body.password, client=client_info(body.device_token or ""))
        if isinstance(result, SecondFactorNeeded):
            return SecondFactorNeededResponse.from_domain(result)
        return LoginResponse.from_domain(result)

    @bp.operation(
        "POST /auth/refresh",
        AllowedCallers.ANYONE,
        "Exchange a refresh token for new tokens",
        errors={401: "UNAUTHENTICATED TOKEN_EXPIRED"},
    )
    async def refresh_tokens(body: RefreshTokenRequest) -> TokensResponse:
        """A refresh token can be used once. Using it again ends all sessions that began with the same login."""
        return TokensResponse.from_tokens(await sessions.refresh(body.refresh_token, client=client_info()))

    @bp.operation("POST /auth/logout", AllowedCallers.ANYONE, "Sign out")
    async def logout_user(body: RefreshTokenRequest) -> None:
        """Invalidates the refresh token. An unknown token is accepted. The access token stays valid until it expires."""
        await sessions.logout(body.refresh_token, client=client_info())


def _add_unlock_routes(bp: ApiBlueprint, unlock: SignInUnlockLinkService) -> None:
    @bp.operation(
        "POST /auth/unlock/request",
        AllowedCallers.ANYONE,
        "Have an unlock link mailed",
        description="For a user whose logins are throttled because strangers guess: mails a link, at most one in 55 minutes. The "
        "response is the same for an unknown email.",
        errors={429: "LOGIN_THROTTLED"},
    )
    async def request_unlock_link(body: UnlockLinkRequest) -> None:
        await unlock.request_link(body.email, client=client_info(), language=request_language())

    @bp.operation("POST /auth/unlock", AllowedCallers.ANYONE, "Use an unlock link", errors={400: "LINK_INVALID"})
    async def unlock_login(body: UnlockRequest) -> UnlockResponse:
        """Gives this client its own allowance for wrong passwords. A link can be used once."""
        return UnlockResponse(device_token=await unlock.open_link(body.token, client=client_info()))


def _add_session_routes(bp: ApiBlueprint, sessions: UserSessionService) -> None:
    @bp.operation("GET /auth/me", AllowedCallers.SESSION, "Get the current user", before_factor=True)
    async def get_current_user() -> CurrentUserResponse:
        """The current state of the user, the account and the role of this session."""
        profile = await sessions.get_profile(current_session())
        member, account = profile.member, profile.account
        return CurrentUserResponse.of(member.user, member.membership, profile, account, account_name=account.name)

    @bp.operation(
        "GET /auth/sessions",
        AllowedCallers.SESSION,
        "List your sessions",
        description="Where you are signed in, the last used first. A session is one sign-in; `lastUsedAt`, `address` and "
        "`userAgent` are those of its last use of a refresh token.",
    )
    async def list_sessions(query: PageQueryParameters) -> HttpHandlerResult[list[UserSessionResponse]]:
        caller = current_session()
        return list_response(
            await sessions.list_sessions(caller),
            query,
            lambda one: UserSessionResponse.of(one, current=one.session_id == caller.session_id),
            lambda one: (-one.last_used_ms, one.session_id),
        )

    @bp.operation("GET /auth/sessions/<session_id>", AllowedCallers.SESSION, "Get one of your sessions")
    async def get_session(session_id: str) -> UserSessionResponse:
        """Until it ends."""
        caller = current_session()
        found = await sessions.get_session(caller, session_id)
        return UserSessionResponse.of(found, current=found.session_id == caller.session_id)

    @bp.operation("DELETE /auth/sessions", AllowedCallers.SESSION, "Sign out everywhere else", errors={403: "STEP_UP_REQUIRED"})
    async def delete_other_sessions() -> None:
        """Ends all your sessions but the present one, at once: their access tokens are refused as well. Your channels are told
        nothing until you confirm each, so it needs a fresh proof that it is you."""
        await sessions.end_other_sessions(current_session())

    @bp.operation("DELETE /auth/sessions/<session_id>", AllowedCallers.SESSION, "Sign out one session")
    async def delete_session(session_id: str) -> None:
        """Ends one of your own sessions at once: its access token is refused as well."""
        await sessions.end_session(current_session(), session_id)


def _add_password_routes(bp: ApiBlueprint, passwords: PasswordChangeService) -> None:
    @bp.operation(
        "POST /auth/password/request-otp",
        AllowedCallers.SESSION,
        "Request a code to change the password",
        description="Sends a code by mail, valid for 10 minutes. A new code can be requested after 60 seconds. Requires the "
        "role Admin or Owner.",
        errors={403: "ROLE_REQUIRED", 429: "OTP_COOLDOWN LOGIN_THROTTLED"},
    )
    async def request_password_code() -> None:
        await passwords.send_code(current_session(), language=request_language())

    @bp.operation(
        "POST /auth/change-password",
        AllowedCallers.SESSION,
        "Change the password with a mailed code",
        errors={400: "OTP_INVALID PASSWORD_WEAK", 403: "ROLE_REQUIRED", 429: "LOGIN_THROTTLED"},
    )
    async def change_password_by_code(body: PasswordChangeByCodeRequest) -> None:
        """Ends all sessions of the user, the present one too. A code allows 5 attempts."""
        await passwords.change_password(current_session(), body.otp, body.new_password)

    @bp.operation(
        "POST /auth/password/change",
        AllowedCallers.SESSION,
        "Change the password with the current one",
        description="For every role. Ends all sessions of the user, the present one too: sign in again. A user of an identity "
        "provider who has no password yet sets one without `currentPassword`, within five minutes after signing in.",
        errors={400: "PASSWORD_WEAK", 403: "PASSWORD_MISMATCH STEP_UP_REQUIRED", 429: "LOGIN_THROTTLED"},
    )
    async def change_password(body: PasswordChangeRequest) -> None:
        if body.current_password is None:
            await passwords.set_first_password(current_session(), body.new_password)
        else:
            await passwords.change_password_with_current(current_session(), body.current_password, body.new_password)
