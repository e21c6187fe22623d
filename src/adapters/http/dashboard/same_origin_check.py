"""Calls that change the dashboard's session must come from its own page: browsers attach cookies to calls of other sites too."""

from __future__ import annotations

from quart import request

from domain.kernel.errors import PermissionDenied

CSRF_HEADER = "X-CSRF-Protection"


def require_own_page() -> None:
    """Raises PermissionDenied `CROSS_SITE_REQUEST` unless the call comes from a page of this origin."""
    fetch_site = request.headers.get("Sec-Fetch-Site", "same-origin")
    if request.headers.get(CSRF_HEADER) != "1" or fetch_site != "same-origin":
        raise PermissionDenied(
            "Only the dashboard of this address may call this. Programs sign in with POST /api/v1/auth/login.",
            code="CROSS_SITE_REQUEST",
        )
