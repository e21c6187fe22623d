"""Test parameters: MQTT 3.1.1 and 5 over TCP, WebSocket and TLS, and the databases."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

from support import postgres
from support.certificate import certificate
from support.empty_database import empty_postgres
from support.ports import free_ports
from support.service import Service
from support.thoroughness import usual_or_thorough

Transport = tuple[int, str]

TRANSPORTS: list[Transport] = [(version, transport) for version in (4, 5) for transport in ("tcp", "websocket", "tls")]
PROTOCOL_NAMES = {4: "MQTT 3.1.1", 5: "MQTT 5"}
ALL_DATABASES = ["sqlite", *(["postgres"] if postgres.available() else [])]
DATABASES = usual_or_thorough(["sqlite"], ALL_DATABASES)
"""Tests that take minutes use the second database only in a thorough run."""


def transport_name(way: Transport) -> str:
    return f"{PROTOCOL_NAMES[way[0]]} over {way[1]}"


def tls_settings(folder: Path) -> dict[str, Any]:
    """Settings of a service with TLS and a certificate of its own."""
    chain, key = certificate(folder)
    return {
        "LATCHBOARD_MQTT_TLS_PORT": free_ports(1)[0],
        "LATCHBOARD_MQTT_TLS_CERTIFICATE": chain,
        "LATCHBOARD_MQTT_TLS_KEY": key,
    }


def connect_options(service: Service, way: Transport) -> dict[str, Any]:
    """The connection arguments of `Device.client` and `Device.online`."""
    version, transport = way
    if transport == "tls":
        context = ssl.create_default_context(cafile=service.settings["LATCHBOARD_MQTT_TLS_CERTIFICATE"])
        return {"version": version, "port": service.settings["LATCHBOARD_MQTT_TLS_PORT"], "tls_context": context}
    return {"version": version, "websocket": transport == "websocket"}


def database_settings(database: str) -> dict[str, Any]:
    """Settings of a service on an empty database of this kind."""
    return {} if database == "sqlite" else {"LATCHBOARD_DATABASE_URL": asyncio.run(empty_postgres())}
