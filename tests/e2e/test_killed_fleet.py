"""SIGKILL under the load of a fleet that reconnects each time: every acknowledged message is stored."""

from __future__ import annotations

import asyncio

import pytest

from adapters.engine import _native
from support.device import create_device
from support.service import ApiClient, Service
from support.thoroughness import usual_or_thorough
from support.waiting import until

pytestmark = pytest.mark.thorough

DEVICES = usual_or_thorough(12, 24)
RATE = 20.0 * DEVICES
KILLS = usual_or_thorough(2, 4)


async def test_no_message_acknowledged_to_a_fleet_is_missing_after_kills(service: Service, owner: ApiClient) -> None:
    devices = [await create_device(owner, f"Meter {number}") for number in range(DEVICES)]
    identities = [(device.device_id, device.credentials["mqttPassword"]) for device in devices]
    fleet = _native.Simulation(
        "127.0.0.1", service.mqtt_port, identities, rate=RATE, keep_puback_log=True, abrupt_disconnect_every_s=2.0, version=5
    )

    async def figures() -> dict[str, int]:
        return fleet.stats()

    try:
        for _ in range(KILLS):
            enough = fleet.stats()["confirmed"] + 200
            await until(figures, lambda seen, enough=enough: seen["confirmed"] >= enough)
            await service.kill_and_restart()
        await until(figures, lambda seen: seen["connected"] >= DEVICES)
    finally:
        await asyncio.to_thread(fleet.stop)

    stats, acknowledged = fleet.stats(), 0
    for device_id, runs in fleet.puback_log():
        stored = await stored_numbers(owner, device_id)
        confirmed = {number for first, last in runs for number in range(first, last + 1)}
        acknowledged += len(confirmed)
        assert len(stored) == len(set(stored))
        assert confirmed <= set(stored), device_id
    assert acknowledged == stats["confirmed"] >= KILLS * 200
    assert stats["lost"] >= DEVICES, "the kills were felt"


async def stored_numbers(owner: ApiClient, device_id: str) -> list[int]:
    """All of them: on a slow machine a device reports more than one page holds."""
    export = await owner.send("GET", f"/devices/{device_id}/telemetry/export?format=csv&metric=seq")
    assert export.status_code == 200, export.text
    return [int(float(row.split(",")[1])) for row in export.text.splitlines()[1:]]
