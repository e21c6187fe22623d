"""How phones and devices reach this service."""

from __future__ import annotations

from collections.abc import Callable

from adapters.http.api.service_addresses.schemas import NetworkResponse
from adapters.http.core.caller_authentication import AllowedCallers
from adapters.http.core.operation import ApiBlueprint


def network_blueprint(describe: Callable[[], NetworkResponse]) -> ApiBlueprint:
    """`describe` looks anew each time: a machine's address changes."""
    bp = ApiBlueprint("network", "Network")

    @bp.operation("GET /network", AllowedCallers.SESSION, "Get the addresses of this service")
    async def get_network() -> NetworkResponse:
        """Where phones and devices reach the service, and the settings to change where they do not."""
        return describe()

    return bp
