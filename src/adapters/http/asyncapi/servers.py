"""The servers of the AsyncAPI document and how to authenticate. Host names are the reader's to fill in."""

from __future__ import annotations

from typing import Any

_HOST = {"default": "localhost", "description": "Where the service runs."}

SECURITY_SCHEMES: dict[str, Any] = {
    "session": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "An access token from POST /api/v1/auth/login. Or send it in the first message.",
    },
    "apiKey": {"type": "httpApiKey", "in": "header", "name": "X-Api-Key", "description": "An API key, `sk_live_…`."},
    "device": {"type": "userPassword", "description": "The device's id and its MQTT password."},
}


def _server(host: str, protocol: str, description: str, *schemes: str, **more: str) -> dict[str, Any]:
    return {
        "host": host,
        "protocol": protocol,
        "description": description,
        "variables": {"host": _HOST},
        "security": [{"$ref": f"#/components/securitySchemes/{scheme}"} for scheme in schemes],
        **more,
    }


SERVERS: dict[str, Any] = {
    "http": _server("{host}:8080", "ws", "The live feed; `wss` behind a proxy with TLS.", "session", "apiKey"),
    "mqtt": _server("{host}:1883", "mqtt", "The broker, MQTT 3.1.1 and 5.", "device", protocolVersion="5"),
    "mqttWebSocket": _server("{host}:8083", "ws", "The broker over WebSocket.", "device", pathname="/mqtt"),
    "webhookReceiver": {
        "host": "{receiver}",
        "protocol": "https",
        "description": "Your server.",
        "variables": {"receiver": {"default": "example.com", "description": "The host in the webhook's URL."}},
    },
}
