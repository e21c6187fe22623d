"""A day of readings for the demo's devices, so that their charts are not empty: sent by MQTT before the live ones."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence

import aiomqtt

from app.simulator.options import DeviceLogin
from domain.kernel.clock import MINUTE_MS

HISTORY_MINUTES = 24 * 60
STEP_MINUTES = 10
CONNECT_TIMEOUT_S = 10.0
UNITS = {"temperature": "celsius", "humidity": "percent"}


async def send_history(logins: Sequence[DeviceLogin], host: str, port: int, now_ms: int) -> None:
    """Raises aiomqtt.MqttError or TimeoutError."""
    async with asyncio.TaskGroup() as group:
        for number, login in enumerate(logins):
            group.create_task(_send(login, host, port, day_of_readings(number, now_ms)))


def day_of_readings(number: int, now_ms: int) -> str:
    """The payload of one `telemetry` message: warm in the afternoon, moist at night; `number` makes each device another one."""
    readings = []
    for minutes_ago in range(HISTORY_MINUTES, 0, -STEP_MINUTES):
        at_ms = now_ms - minutes_ago * MINUTE_MS
        hour = at_ms / (60 * MINUTE_MS) % 24
        warmth = math.sin((hour - 9 + number / 3) / 24 * 2 * math.pi) + 0.15 * math.sin(minutes_ago / 7 + number)
        values = {"temperature": round(21 + 5 * warmth, 1), "humidity": round(60 - 14 * warmth, 1)}
        readings.append({"ts": at_ms, "m": values, "u": UNITS})
    return json.dumps(readings, separators=(",", ":"))


async def _send(login: DeviceLogin, host: str, port: int, payload: str) -> None:
    async with (
        asyncio.timeout(CONNECT_TIMEOUT_S),
        aiomqtt.Client(host, port, username=login.device_id, password=login.password, identifier=login.device_id) as device,
    ):
        await device.publish(f"devices/{login.device_id}/telemetry", payload, qos=1)
