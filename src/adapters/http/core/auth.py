"""Who calls is settled before a handler runs; a handler asks, it never looks at headers.

A session shows `Authorization: Bearer <token>`, a key `X-Api-Key` or the same Bearer header. On a session endpoint a key we
know is told that it needs a session (403), a key we do not know is nobody (401): who guesses learns nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from quart import current_app, g, request

from adapters.http.core.proxies import TrustedProxies
from domain.kernel.caller import ApiKeyCaller, Session
from domain.kernel.errors import PermissionDenied, Unauthenticated
from domain.keys.policy import KEY_PREFIX


class RequiredAccess(Enum):
    """Whom an operation lets in: anyone, a session only (`S`), or an API key as well (`K`)."""

    ANYONE = "anyone"
    SESSION = "session"
    KEY = "key"


class Authenticator(Protocol):
    """Port: turns what a caller shows into who it is. Raises Unauthenticated."""

    async def authenticate_token(self, token: str, address: str) -> tuple[Session, int]:
        """The session and its expiry in Unix ms."""
        ...

    async def authenticate_key(self, secret: str, address: str) -> ApiKeyCaller: ...


@dataclass(frozen=True, slots=True)
class RequestCredentials:
    """The credentials a request carries; at most one is set."""

    token: str | None = None
    key: str | None = None


def parse_credentials(authorization: str | None, api_key: str | None) -> RequestCredentials:
    """A session wins over a key, so that a client that always sends its key can still act for a person."""
    scheme, _, value = (authorization or "").partition(" ")
    value = value.strip()
    if scheme.lower() == "bearer" and value:
        return RequestCredentials(key=value) if value.startswith(KEY_PREFIX) else RequestCredentials(token=value)
    return RequestCredentials(key=api_key.strip()) if api_key else RequestCredentials()


TRUSTED_PROXIES = "latchboard.proxies"


def client_address() -> str:
    """From where the present request comes, by the word of nobody but the proxies the operator named."""
    proxies: TrustedProxies | None = current_app.extensions.get(TRUSTED_PROXIES)
    peer = request.remote_addr or ""
    return peer if proxies is None else proxies.client_address(peer, request.headers.getlist(proxies.header))


async def authenticate(access: RequiredAccess, authenticator: Authenticator) -> None:
    """Resolve the caller of the present request into `g`. Raises Unauthenticated or Refused `SESSION_REQUIRED`."""
    g.caller = None
    if access is RequiredAccess.ANYONE:
        return
    shown = parse_credentials(request.headers.get("Authorization"), request.headers.get("X-Api-Key"))
    if shown.token is not None:
        g.caller, _ = await authenticator.authenticate_token(shown.token, client_address())
        return
    if shown.key is None:
        raise Unauthenticated(
            "No credentials. Send Authorization: Bearer <accessToken>"
            + (", or X-Api-Key: <key>." if access is RequiredAccess.KEY else ".")
        )
    caller = await authenticator.authenticate_key(shown.key, client_address())
    if access is RequiredAccess.SESSION:
        g.turned_away = caller
        raise PermissionDenied(
            "This needs a signed-in session; an API key cannot do it. Sign in with POST /api/v1/auth/login.",
            code="SESSION_REQUIRED",
        )
    g.caller = caller


def current_caller() -> Session | ApiKeyCaller:
    """The caller of a `KEY` or `SESSION` operation."""
    caller = g.get("caller")
    if not isinstance(caller, Session | ApiKeyCaller):
        raise Unauthenticated("No credentials. Sign in first.")
    return caller


def current_session() -> Session:
    """The session of a `SESSION` operation."""
    caller = g.get("caller")
    if not isinstance(caller, Session):
        raise Unauthenticated("No session. Sign in first.")
    return caller
