"""How phones and devices reach this service.

Response models of how other machines reach this service.
"""

from __future__ import annotations

from collections.abc import Callable

from pydantic import Field

from adapters.http.core.callers import AllowedCallers
from adapters.http.core.operation import ApiBlueprint
from adapters.http.core.schemas import ResponseModel


class NetworkProblemResponse(ResponseModel):
    code: str = Field(examples=["MQTT_LOOPBACK_ONLY"])
    message: str
    settings: list[str] = Field(
        description="The lines of settings that solve the problem.", examples=[["LATCHBOARD_MQTT_HOST=0.0.0.0"]]
    )


class NetworkResponse(ResponseModel):
    dashboard_url: str | None = Field(
        description="Where phones and other computers reach the dashboard. Null: only this machine does.",
        examples=["http://192.168.1.10:8080"],
    )
    mqtt_host: str = Field(description="The host that device credentials name.", examples=["192.168.1.10"])
    mqtt_port: int
    mqtt_ws_port: int
    mqtt_tls_port: int | None
    problems: list[NetworkProblemResponse] = Field(description="What keeps phones or devices from reaching the service.")


def network_blueprint(describe: Callable[[], NetworkResponse]) -> ApiBlueprint:
    """`describe` looks anew each time: a machine's address changes."""
    bp = ApiBlueprint("network", "Network")

    @bp.operation("GET /network", AllowedCallers.SESSION, "Get the addresses of this service")
    async def get_network() -> NetworkResponse:
        """Where phones and devices reach the service, and the settings to change where they do not."""
        return describe()

    return bp
