"""Authenticates the caller before a handler runs. Handlers use `current_caller` and never read the headers themselves.

A session sends `Authorization: Bearer <token>`; an API key is sent in `X-Api-Key` or as a bearer token. On an endpoint for
sessions a valid key gets 403 `SESSION_REQUIRED` and an unknown key 401, so that guessing keys reveals nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from quart import current_app, g, request

from adapters.http.core.trimmed_quart import header_value
from adapters.http.core.trusted_proxies import TrustedProxies
from adapters.message_catalog_translator import LANGUAGES
from domain.kernel.caller import ApiKeyCaller, SessionCaller
from domain.kernel.errors import PermissionDenied, Unauthenticated
from domain.keys.model import KEY_PREFIX
from domain.sign_in.model import ClientInfo


class AllowedCallers(Enum):
    """Who may call an operation: anyone, sessions only, or sessions and API keys."""

    ANYONE = "anyone"
    SESSION = "session"
    KEY = "key"


class AuthenticatorPort(Protocol):
    """Port: resolves credentials to a caller. Raises Unauthenticated."""

    async def authenticate_token(self, token: str, address: str) -> tuple[SessionCaller, int]:
        """The session and its expiry in Unix ms."""

    async def authenticate_key(self, secret: str, address: str) -> ApiKeyCaller: ...


@dataclass(frozen=True, slots=True)
class RequestCredentials:
    """The credentials of a request; at most one is set."""

    token: str | None = None
    key: str | None = None


def parse_credentials(authorization: str | None, api_key: str | None) -> RequestCredentials:
    """A bearer token wins over `X-Api-Key`, so that a client that always sends its key can still act for a user."""
    scheme, _, value = (authorization or "").partition(" ")
    value = value.strip()
    if scheme.lower() == "bearer" and value:
        return RequestCredentials(key=value) if value.startswith(KEY_PREFIX) else RequestCredentials(token=value)
    return RequestCredentials(key=api_key.strip()) if api_key else RequestCredentials()


TRUSTED_PROXIES = "latchboard.proxies"


def client_address() -> str:
    """The client's address of the present request. Only trusted proxies may report it in a header."""
    proxies: TrustedProxies | None = current_app.extensions.get(TRUSTED_PROXIES)
    peer = request.remote_addr or ""
    return peer if proxies is None else proxies.client_address(peer, request.headers.getlist(proxies.header))


def client_info(device_tokens: str = "") -> ClientInfo:
    """Address and program of the client of the present request, with the tokens of its device."""
    return ClientInfo(client_address(), request.headers.get("User-Agent", ""), device_tokens)


def request_language() -> str:
    """The one that the present request prefers, among those with texts (ISO 639); English if it names none of them."""
    return request.accept_languages.best_match(LANGUAGES, default=LANGUAGES[0])


async def authenticate(access: AllowedCallers, authenticator: AuthenticatorPort, *, is_sign_in_path: bool = False) -> None:
    """Store the caller of the present request in `g`. Raises Unauthenticated, PermissionDenied `SESSION_REQUIRED`, or
    `SECOND_FACTOR_REQUIRED` for a session that must set up a second factor first (`is_sign_in_path`: where it can)."""
    g.caller = None
    if access is AllowedCallers.ANYONE:
        return
    shown = parse_credentials(header_value(b"authorization"), header_value(b"x-api-key"))
    if shown.token is not None:
        g.caller, _ = await authenticator.authenticate_token(shown.token, client_address())
        if g.caller.lacks_second_factor and not is_sign_in_path:
            raise second_factor_required_error()
        return
    if shown.key is None:
        raise Unauthenticated(
            "No credentials. Send Authorization: Bearer <accessToken>"
            + (", or X-Api-Key: <key>." if access is AllowedCallers.KEY else ".")
        )
    caller = await authenticator.authenticate_key(shown.key, client_address())
    if access is AllowedCallers.SESSION:
        g.denied_caller = caller
        raise PermissionDenied(
            "This operation requires a session; an API key is not enough. Sign in with POST /api/v1/auth/login.",
            code="SESSION_REQUIRED",
        )
    g.caller = caller


def second_factor_required_error() -> PermissionDenied:
    return PermissionDenied(
        "Your role needs a second factor here. Set it up first: POST /api/v1/auth/second-factor/totp.",
        code="SECOND_FACTOR_REQUIRED",
    )


def current_caller() -> SessionCaller | ApiKeyCaller:
    """The caller of a `KEY` or `SESSION` operation."""
    caller = g.get("caller")
    if not isinstance(caller, SessionCaller | ApiKeyCaller):
        raise Unauthenticated("No credentials. Sign in first.")
    return caller


def current_session() -> SessionCaller:
    """The session of a `SESSION` operation."""
    caller = g.get("caller")
    if not isinstance(caller, SessionCaller):
        raise Unauthenticated("No session. Sign in first.")
    return caller
