"""The cookie with the dashboard's refresh token: `HttpOnly`, `SameSite=Strict`, sent to the paths of its session only."""

from __future__ import annotations

from quart import request
from werkzeug.http import dump_cookie

from domain.accounts.policy import REFRESH_TOKEN_LENGTH, REFRESH_TOKEN_TTL_MS
from domain.sign_in.sessions import TokenPair

URL_PREFIX = "/dashboard/session"
COOKIE = "latchboard_refresh"
SECURE_COOKIE = f"__Secure-{COOKIE}"
"""Browsers accept a name with this prefix over TLS only, so that nobody without TLS can plant the cookie."""


class RefreshTokenCookie:
    def __init__(self, *, is_tls: bool) -> None:
        """`is_tls`: browsers reach the service over TLS, so the cookie must never travel without it."""
        self._name = SECURE_COOKIE if is_tls else COOKIE
        self._is_tls = is_tls

    def find(self) -> str | None:
        """The refresh token of the request."""
        token = request.cookies.get(self._name, "")
        return token if 0 < len(token) <= REFRESH_TOKEN_LENGTH else None

    def set_header(self, tokens: TokenPair) -> str:
        return self._dump(tokens.refresh_token, REFRESH_TOKEN_TTL_MS // 1000)

    def delete_header(self) -> str:
        return self._dump("", 0)

    def _dump(self, value: str, max_age_s: int) -> str:
        return dump_cookie(
            self._name, value, max_age=max_age_s, path=URL_PREFIX, secure=self._is_tls, httponly=True, samesite="Strict"
        )
