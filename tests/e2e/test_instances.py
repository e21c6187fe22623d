"""Two processes on one PostgreSQL: one holds the devices, both serve the API, and clients see no difference."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Iterator

import aiomqtt
import httpx
import pytest
from websockets.exceptions import ConnectionClosed

from support import postgres
from support.database_probe import rows
from support.device import Device, create_device
from support.empty_database import bare_postgres
from support.service import ApiClient, Service
from support.waiting import TIMEOUT_S
from support.webhook_receiver import respond, webhook_receiver

pytestmark = pytest.mark.skipif(not postgres.available(), reason="needs PostgreSQL")

HOT = {"metric": "temperature", "comparator": ">", "value": 30}
RULE = {"name": "too hot", "conditions": [HOT], "action": {"command": "ON"}}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Service]]:
    shared = {
        "LATCHBOARD_DATABASE_URL": asyncio.run(bare_postgres()),
        "LATCHBOARD_SECRET_KEYS": "shared:" + base64.b64encode(b"k" * 32).decode(),
        "LATCHBOARD_INGEST_LIMIT": 0,
    }
    with (
        Service(tmp_path_factory.mktemp("back"), **shared) as back,
        Service(tmp_path_factory.mktemp("front"), **shared, LATCHBOARD_BROKER="none") as front,
    ):
        front.settings["LATCHBOARD_MQTT_PORT"] = back.mqtt_port
        yield back, front


async def a_device_of(back: Service, owner: ApiClient) -> Device:
    """Create a device through the other instance; the leader learns its password a moment after the response. The device has
    been connected when this returns, and a reconnect within the grace causes no event: wait for `device_online` before."""
    device = await create_device(owner)
    device.credentials["mqttPort"] = back.mqtt_port
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                async with device.client(back):
                    return device
            except aiomqtt.MqttError:
                await asyncio.sleep(0.02)


async def test_a_command_given_to_one_runs_on_a_device_of_the_other(pair: tuple[Service, Service]) -> None:
    back, front = pair
    async with front.api() as owner, front.feed(owner) as feed:
        pump = await a_device_of(back, owner)
        async with pump.online(back) as line:
            await feed.wait_for("device_online", deviceId=pump.device_id)
            done = await owner.post(f"{pump.path}/command", {"cmd": "ON", "waitSeconds": 30})
            assert done["status"] == "DONE"
            assert (await line.next_command("ON"))["id"] == done["executionId"]
            await feed.wait_for("relay_changed", deviceId=pump.device_id, relay="ON")
        assert line.duplicates == 0


async def test_rules_schedules_and_logins_changed_in_one_hold_in_the_other(pair: tuple[Service, Service]) -> None:
    back, front = pair
    async with front.api() as owner, front.feed(owner) as feed:
        pump = await a_device_of(back, owner)
        async with pump.online(back) as line:
            await line.report(temperature=20)
            latest = await owner.wait_until(f"{pump.path}/telemetry/latest", lambda answer: answer["telemetry"])
            assert [(reading["metric"], reading["value"]) for reading in latest["telemetry"]] == [("temperature", 20)]
            await owner.post(f"{pump.path}/rules", RULE, expect=201)
            await feed.wait_for("device_online", deviceId=pump.device_id)
            while not line.commands:  # the rule reaches the engine a moment after the response
                await line.report(temperature=20)
                await line.report(temperature=40)
                await asyncio.sleep(0.05)
            assert (await line.next_command())["cmd"] == "ON"

            later = int(time.time()) + 3_600
            await owner.post(f"{pump.path}/schedules", {"slot": 2, "onTs": later, "offTs": later + 9}, expect=201)
            await line.wait_for_plan(lambda plan: [slot[0] for slot in plan["s"]] == [2])

            await owner.post(f"{pump.path}/revoke")
            await line.wait_for_disconnect()


async def test_a_webhook_and_a_grant_of_one_hold_for_the_next_reading_at_the_other(pair: tuple[Service, Service]) -> None:
    back, front = pair
    async with front.api() as owner, webhook_receiver(respond(200)) as receiver:
        key = await owner.post("/keys", {"name": "Robot"}, expect=201)
        pumps = [await a_device_of(back, owner) for _ in range(3)]
        await owner.post("/webhooks", {"keyId": key["keyId"], "url": receiver.url}, expect=201)
        async with back.api(**{"X-Api-Key": key["key"]}) as robot, back.feed(robot) as feed:
            for pump in pumps:
                async with pump.online(back) as line:
                    await line.report(value=0)
                    granted = {"apiKeyId": key["keyId"], "commands": ["*"], "scope": "READ"}
                    await owner.post(f"{pump.path}/grants", granted, expect=201)
                    await line.report(value=1)
                    await line.report(value=2)
                    assert (await feed.wait_for("telemetry", deviceId=pump.device_id))["value"] == 1
            async with asyncio.timeout(TIMEOUT_S):
                while (
                    len(values := [r.envelope["data"]["value"] for r in receiver.requests if '"telemetry"' in r.body.decode()])
                    < 6
                ):
                    await asyncio.sleep(0.02)
            assert sorted(values) == [1, 1, 1, 2, 2, 2]
        await owner.delete(f"/keys/{key['keyId']}")


async def test_a_key_deleted_in_one_is_closed_by_the_other(pair: tuple[Service, Service]) -> None:
    back, front = pair
    async with back.api() as here, front.api() as there:
        key = await here.post("/keys", {"name": "Robot"}, expect=201)
        async with front.api(**{"X-Api-Key": key["key"]}) as robot, front.feed(robot) as feed:
            await here.delete(f"/keys/{key['keyId']}")
            with pytest.raises(ConnectionClosed):
                await feed.wait_for("never")
            assert feed.socket.close_code == 4003
        assert [one["name"] for one in await there.get("/keys")] == []


async def test_a_client_follows_the_log_across_kills_of_both(pair: tuple[Service, Service]) -> None:
    back, front = pair
    async with front.api() as owner:
        async with front.feed(owner) as feed:
            cursor = feed.state["cursor"]
        pump = await a_device_of(back, owner)
        seen: list[str] = []
        for turn in range(3):
            async with pump.online(back) as line:
                for number in range(10):
                    await line.press_button(number % 2 == 0)
                async with front.feed(owner, f"?cursor={cursor}&deviceId={pump.device_id}") as feed:
                    await feed.wait_for("relay_changed")
                    seen += [one["eventId"] for one in feed.received if "eventId" in one]
                    cursor = feed.received[-1]["cursor"]
            await (front if turn % 2 else back).kill_and_restart()
        shown = ("relay_changed", "device_online", "device_offline")
        log = [event for event in (await owner.get("/events?limit=200"))["data"] if event["deviceId"] == pump.device_id]
        wanted = [event["id"] for event in reversed(log) if event["eventType"] in shown]
        async with back.feed(owner, f"?cursor={cursor}&deviceId={pump.device_id}") as feed:
            while len(seen) < len(wanted):
                message = await asyncio.wait_for(feed.socket.recv(), TIMEOUT_S)
                seen.append(_event_id(message))
        assert seen == wanted


async def test_only_the_one_that_holds_the_devices_sums_up_hours_and_both_tell_the_same(pair: tuple[Service, Service]) -> None:
    back, front = pair
    hour_ms, now_ms = 3_600_000, int(time.time() * 1000)
    async with front.api() as owner, back.api() as there:
        meter = await a_device_of(back, owner)
        sent = [
            (now_ms - hours * hour_ms - minutes * 60_000, float(hours * minutes)) for hours in range(9) for minutes in range(9)
        ]
        for turn in range(3):  # late readings too, and each instance is killed once in between
            async with meter.online(back) as line:
                await line.publish("telemetry", [{"ts": at_ms, "m": {"power": value}} for at_ms, value in sent[turn::3]])
            await (front, back, front)[turn].kill_and_restart()
        over = (now_ms - 121_000) // hour_ms
        async with asyncio.timeout(TIMEOUT_S):
            while await rows(back, f"SELECT 1 FROM rollups_due WHERE hour < {over}"):
                await asyncio.sleep(0.1)
        assert await hours_summed(front) == 0
        for step, step_ms in (("1h", hour_ms), ("3h", 3 * hour_ms)):
            wanted: dict[int, list[float]] = {}
            for at_ms, value in sent:
                wanted.setdefault(at_ms // step_ms, []).append(value)
            reported = await owner.get(f"{meter.path}/telemetry?metric=power&step={step}")
            assert [(one["count"], one["min"], one["max"], one["sum"]) for one in reported] == [
                (len(of), min(of), max(of), sum(of)) for _, of in sorted(wanted.items(), reverse=True)
            ]
            assert await there.get(f"{meter.path}/telemetry?metric=power&step={step}") == reported
        [[stored]] = await rows(back, f"SELECT count(*) FROM rollups WHERE hour < {over}")
        assert stored >= 7


async def hours_summed(service: Service) -> float:
    async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
        text = (await client.get(f"{service.url}/metrics")).text
    line = next(line for line in text.splitlines() if line.startswith("latchboard_rollups_total "))
    return float(line.split()[1])


def _event_id(message: str | bytes) -> str:
    import json

    return str(json.loads(message)["eventId"])
