"""Telemetry that the database refuses: set aside with its bytes before the PUBACK, listed, and stored by a replay."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from support.command_line import command_output
from support.database_probe import rows
from support.device import Device, create_device
from support.service import ApiClient, Service, environment
from support.waiting import TIMEOUT_S

REFUSAL = "no readings of this device"


async def cli(service: Service, *arguments: str) -> str:
    """The output of `latchboard deadletters …`, which must end with 0."""
    code, output = await command_output("deadletters", *arguments, folder=service.folder, env=environment(**service.settings))
    assert code == 0, output
    return output


async def refuse_readings(service: Service, device: Device) -> None:
    of = f"(SELECT device_no FROM devices WHERE device_id = '{device.device_id}')"
    [[number]] = await rows(service, f"SELECT device_no FROM devices WHERE device_no = {of}")
    await rows(service, "DROP TRIGGER IF EXISTS refuse")  # of a test that failed
    await rows(
        service,
        f"CREATE TRIGGER refuse BEFORE INSERT ON readings WHEN NEW.device_no = {number} "
        f"BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END",
    )


async def metric(owner: ApiClient, service: Service, name: str) -> float:
    page = (await owner.raw.get(f"{service.url}/metrics")).text
    return next(float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(f"{name} "))


def values(reported: list[dict[str, Any]]) -> list[float]:
    return sorted(one["value"] for one in reported)


async def test_refused_telemetry_is_set_aside_and_a_replay_stores_it(service: Service, owner: ApiClient) -> None:
    bad, good = await create_device(owner, "Bad"), await create_device(owner, "Good")
    async with bad.online(service) as line, good.online(service) as other:
        await line.report(t=1)
        await owner.wait_until(f"{bad.path}/telemetry", lambda reported: len(reported) == 1)
        await refuse_readings(service, bad)
        await asyncio.gather(  # each returns after its PUBACK
            *[line.publish("telemetry", {"m": {"t": n}}) for n in (2, 3)],
            line.publish("telemetry", {"m": {"new": 40}}),
            *[other.report(t=n) for n in range(20)],
        )
        await owner.wait_until(f"{good.path}/telemetry?limit=99", lambda reported: values(reported) == list(range(20)))
    assert values(await owner.get(f"{bad.path}/telemetry")) == [1]
    listed = (await cli(service, "list", "--device", bad.device_id)).splitlines()
    ids = [line.split()[0] for line in listed[:-1]]
    assert len(ids) == 3
    assert [line for line in listed[:-1] if not (REFUSAL in line and bad.device_id in line and "SET_ASIDE" in line)] == []
    assert json.loads(await cli(service, "show", ids[-1], "--raw")) == {"m": {"t": 2}}
    assert await metric(owner, service, "latchboard_dead_letters") == 3

    await cli(service, "replay", ids[0])  # still refused
    async with asyncio.timeout(TIMEOUT_S):
        while await rows(service, "SELECT 1 FROM dead_letters WHERE state = 'REPLAY'"):
            await asyncio.sleep(0.2)
    assert len((await cli(service, "list")).splitlines()) == 4

    await rows(service, "DROP TRIGGER refuse")
    await cli(service, "replay", ids[-1])
    await owner.wait_until(f"{bad.path}/telemetry", lambda reported: values(reported) == [1, 2])
    service.restart()
    conditions = [{"metric": "t", "comparator": ">", "value": 2}]
    await owner.post(f"{bad.path}/rules", {"name": "hot", "conditions": conditions, "action": {"command": "OFF"}}, expect=201)
    await cli(service, "replay", "--all")
    await owner.wait_until(f"{bad.path}/telemetry", lambda reported: values(reported) == [1, 2, 3, 40])
    async with asyncio.timeout(TIMEOUT_S):
        while await rows(service, "SELECT 1 FROM dead_letters"):
            await asyncio.sleep(0.2)
    assert {one["metric"] for one in await owner.get(f"{bad.path}/telemetry")} == {"t", "new"}
    [reported] = await owner.get(f"{bad.path}/rules")
    assert not reported["lastMatched"], "a replayed message drives no rules"
    assert not (await owner.get(f"/events?type=rule_matched&deviceId={bad.device_id}"))["data"]


async def test_dead_letters_are_purged(service: Service, owner: ApiClient) -> None:
    device = await create_device(owner)
    async with device.online(service) as line:
        await refuse_readings(service, device)
        await line.report(t=1)
    await rows(service, "DROP TRIGGER refuse")
    shown = await cli(service, "list")
    number = shown.split()[0]
    assert 'payload    {"m": {"t": 1}}' in await cli(service, "show", number)
    assert await cli(service, "purge", number) == "1 deleted.\n"
    assert await cli(service, "list") == "0 of 0 dead letters.\n"
