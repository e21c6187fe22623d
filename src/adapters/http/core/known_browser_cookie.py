"""The cookie that holds the tokens of a device (`domain/sign_in/policy.py`).

It is no credential: whoever has it still needs the password. `HttpOnly` and `SameSite=Strict`, for a year.
"""

from __future__ import annotations

from quart import current_app, request
from werkzeug.http import dump_cookie

COOKIE = "latchboard_device"
SECURE_COOKIE = f"__Host-{COOKIE}"
MAX_AGE_S = 365 * 24 * 3_600
TLS_AT_PROXY = "latchboard.tls_at_proxy"
"""Extension of the application: whether browsers reach it over TLS."""


def read_device_tokens() -> str:
    return request.cookies.get(_name(), "")


def device_cookie_header(tokens: str) -> str:
    """The value of `Set-Cookie`."""
    return dump_cookie(_name(), tokens, max_age=MAX_AGE_S, path="/", secure=_is_tls(), httponly=True, samesite="Strict")


def _is_tls() -> bool:
    return bool(current_app.extensions.get(TLS_AT_PROXY))


def _name() -> str:
    return SECURE_COOKIE if _is_tls() else COOKIE
