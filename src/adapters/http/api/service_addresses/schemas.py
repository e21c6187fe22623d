"""Response models of how other machines reach this service."""

from __future__ import annotations

from pydantic import Field

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
