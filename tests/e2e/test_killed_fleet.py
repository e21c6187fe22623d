"""SIGKILL under the load of a fleet that reconnects each time: every acknowledged message is stored."""

from __future__ import annotations

import asyncio

from adapters.engine import _native
from support.device import create_device
from support.service import ApiClient, Service
from support.thoroughness import usual_or_thorough

DEVICES = usual_or_thorough(12, 24)
RATE = 20.0 * DEVICES
KILLS = usual_or_thorough(2, 4)


async def test_no_message_acknowledged_to_a_fleet_is_missing_after_kills(service: Service, owner: ApiClient) -> None:
    devices = [await create_device(owner, f"Meter {number}") for number in range(DEVICES)]
    identities = [(device.device_id, device.credentials["mqttPassword"]) for device in devices]
    fleet = _native.Simulation(
        "127.0.0.1", service.mqtt_port, identities, rate=RATE, keep_puback_log=True, abrupt_disconnect_every_s=2.0, version=5
    )
    try:
        for _ in range(KILLS):
            before = fleet.stats()["confirmed"]
            async with asyncio.timeout(90):
                while fleet.stats()["confirmed"] < before + 200:
                    await asyncio.sleep(0.02)
            await service.kill_and_restart()
        async with asyncio.timeout(90):
            while fleet.stats()["connected"] < DEVICES:
                await asyncio.sleep(0.05)
    finally:
        await asyncio.to_thread(fleet.stop)

    stats, acknowledged = fleet.stats(), 0
    for device_id, runs in fleet.puback_log():
        rows = await owner.get(f"/devices/{device_id}/telemetry?metric=seq&limit=1000")
        stored = [int(row["value"]) for row in rows]
        confirmed = {number for first, last in runs for number in range(first, last + 1)}
        acknowledged += len(confirmed)
        assert len(stored) < 1000, "the page holds all of it"
        assert len(stored) == len(set(stored))
        assert confirmed <= set(stored), device_id
    assert acknowledged == stats["confirmed"] >= KILLS * 200
    assert stats["lost"] >= DEVICES, "the kills were felt"
