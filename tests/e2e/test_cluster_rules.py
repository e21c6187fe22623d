"""Rules go on when a partition moves to another instance: what was held, cooling down, matched or silent fires once, here or there."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from support import postgres
from support.cluster import PARTITIONS, online_at, service_pair, several_devices
from support.device import Device, DeviceConnection
from support.nats import nats_nodes
from support.service import ApiClient, Service
from support.waiting import TIMEOUT_S

pytestmark = pytest.mark.skipif(not postgres.available(), reason="needs PostgreSQL")

METRICS = ("beat", "hot", "pressure", "t")


def a_rule(name: str, metric: str, comparator: str, value: float, **more: Any) -> dict[str, Any]:
    condition = {"metric": metric, "comparator": comparator, "value": value}
    return {"name": name, "conditions": [condition], "action": {"command": "OFF"}, **more}


RULES = (
    a_rule("held", "hot", "==", 1, forSeconds=8),
    a_rule("cooling", "pressure", ">", 5, cooldownSeconds=300),
    a_rule("band", "t", ">", 30, clearConditions=[{"metric": "t", "comparator": "<", "value": 20}]),
    a_rule("quiet", "beat", "silent", 12),
)


@pytest.fixture
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Service]]:
    with nats_nodes() as nodes:
        asyncio.run(nodes.wait_until_ready())
        with service_pair(nodes, tmp_path_factory) as started:
            yield started


async def matches(owner: ApiClient, device: Device) -> Counter[str]:
    """How often each rule of the device has matched."""
    page = await owner.get(f"/events?limit=200&deviceId={device.device_id}")
    descriptions = [event["description"] for event in page["data"] if event["eventType"] == "rule_matched"]
    return Counter(description.split("'")[1] for description in descriptions)


async def wait_for_matches(owner: ApiClient, devices: list[Device], *names: str) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        for device in devices:
            while set(await matches(owner, device)) < set(names):
                await asyncio.sleep(0.2)


async def prepare(owner: ApiClient, line: DeviceConnection) -> None:
    """The device with its rules: `cooling` and `band` have matched, `held` and `quiet` wait."""
    await line.report(**dict.fromkeys(METRICS, 0))
    await owner.wait_until(f"{line.device.path}/rules/context", lambda answer: sorted(answer["metrics"]) == sorted(METRICS))
    for rule in RULES:
        await owner.post(f"{line.device.path}/rules", rule, expect=201)
    await line.report(t=31)
    await line.report(pressure=9)
    await line.report(hot=1, beat=1)


async def stay_in_the_band_and_cool_down(line: DeviceConnection) -> None:
    for values in ({"t": 25}, {"t": 31}, {"pressure": 0}, {"pressure": 9}):
        await line.report(**values)


async def test_rules_continue_across_a_kill_and_a_planned_move(pair: tuple[Service, Service]) -> None:
    first, second = pair
    devices = await several_devices(second)
    async with contextlib.AsyncExitStack() as stack:
        owner = await stack.enter_async_context(second.api())
        lines = [await stack.enter_async_context(online_at(device, second)) for device in devices]
        await asyncio.gather(*[prepare(owner, line) for line in lines])
        await wait_for_matches(owner, devices, "cooling", "band")
        first.kill()
        await asyncio.gather(*[stay_in_the_band_and_cool_down(line) for line in lines])
        await wait_for_matches(owner, devices, "cooling", "band", "held", "quiet")
        await asyncio.to_thread(first.start)
        for service in pair:
            await owns_its_share(service)
        await asyncio.gather(*[stay_in_the_band_and_cool_down(line) for line in lines])
        await asyncio.gather(*[line.report(hot=1, last=1) for line in lines])
        for device in devices:
            await owner.wait_until(f"{device.path}/rules/context", lambda answer: "last" in answer["metrics"])
            assert await matches(owner, device) == {"cooling": 1, "band": 1, "held": 1, "quiet": 1}


async def owns_its_share(service: Service) -> None:
    wanted = f"latchboard_partitions_owned {PARTITIONS / 2}"
    async with service.api() as api, asyncio.timeout(TIMEOUT_S):
        while wanted not in (await api.raw.get(f"{service.url}/metrics")).text.splitlines():
            await asyncio.sleep(0.1)
