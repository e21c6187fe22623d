"""SIGKILL during work, then a start: nothing acknowledged is lost, and nothing happens twice."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import aiomqtt
import httpx
import pytest

from support.device import DeviceConnection, cancel_tasks, create_device, register_device
from support.service import ApiClient, Service
from support.waiting import TIMEOUT_S
from support.webhook_receiver import respond, send_and_close, webhook_receiver

HOT = {"metric": "temperature", "comparator": ">", "value": 30}
RULE = {"name": "too hot", "conditions": [HOT], "action": {"command": "OFF"}}


async def counted(line: DeviceConnection, acknowledged: list[int]) -> None:
    """Report 0, 1, 2, … until the service ends; returns what was acknowledged."""
    with contextlib.suppress(aiomqtt.MqttError):
        for number in range(100_000):
            await line.report(count=number)
            acknowledged.append(number)


async def test_every_acknowledged_reading_is_stored_once(service: Service, owner: ApiClient) -> None:
    devices = [await create_device(owner, f"Meter {number}") for number in range(3)]
    acknowledged: dict[str, list[int]] = {device.device_id: [] for device in devices}
    async with contextlib.AsyncExitStack() as online:
        lines = [await online.enter_async_context(device.online(service)) for device in devices]
        reporting = [asyncio.create_task(counted(line, acknowledged[line.device.device_id])) for line in lines]
        async with asyncio.timeout(TIMEOUT_S):
            while min(map(len, acknowledged.values())) < 40:
                await asyncio.sleep(0.005)
        await service.kill_and_restart()
        await cancel_tasks(*reporting)

    for device in devices:
        stored = [int(row["value"]) for row in await owner.get(f"{device.path}/telemetry?metric=count&limit=1000")]
        assert len(stored) == len(set(stored))
        assert set(acknowledged[device.device_id]) <= set(stored)


async def test_everything_created_with_201_is_stored(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    async with pump.online(service) as line:
        await line.report(temperature=20)
    registered: list[str] = []

    async def go_on_registering() -> None:
        with contextlib.suppress(httpx.TransportError):
            while True:
                registered.append(await register_device(owner))

    crowd = [asyncio.create_task(go_on_registering()) for _ in range(3)]
    later = int(time.time()) + 3_600
    key = await owner.post("/keys", {"name": "Robot"}, expect=201)
    things: list[tuple[str, str, dict[str, Any]]] = [
        (f"{pump.path}/rules", "ruleId", RULE),
        (f"{pump.path}/grants", "grantId", {"commands": ["ON"], "apiKeyId": key["keyId"]}),
        (f"{pump.path}/schedules", "scheduleId", {"slot": 1, "onTs": later, "offTs": later + 9}),
        ("/webhooks", "webhookId", {"keyId": key["keyId"], "url": "http://127.0.0.1:9/"}),
    ]
    made = [(await owner.post(path, body, expect=201))[id_name] for path, id_name, body in things]
    await service.kill_and_restart()
    await asyncio.wait_for(asyncio.gather(*crowd), TIMEOUT_S)

    found = [[each[id_name] for each in await owner.get(path)] for path, id_name, _ in things]
    assert found == [[one] for one in made]
    assert len(registered) == len(set(registered))
    assert set(registered) <= {device["deviceId"] for device in await owner.get("/devices")}


async def test_a_request_repeated_with_its_idempotency_key_gets_the_same_response(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    once = {"Idempotency-Key": "switch-on-once"}
    order = {"cmd": "ON", "ttlSeconds": 600}
    first = await owner.post(f"{pump.path}/command", order, headers=once)
    await service.kill_and_restart()

    again = await owner.post(f"{pump.path}/command", order, headers=once)

    assert again["executionId"] == first["executionId"]
    async with pump.online(service) as line:
        assert await line.drain_commands(owner) == ["ON"]


async def test_a_command_queued_for_an_offline_device_is_delivered_once(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    queued = await owner.post(f"{pump.path}/command", {"cmd": "ON", "ttlSeconds": 600})
    assert queued["status"] == "QUEUED"
    await service.kill_and_restart()

    async with pump.online(service) as line:
        order = await line.next_command("ON")
        assert await line.drain_commands(owner) == []
        done = await owner.wait_until(f"{pump.path}/executions/{queued['executionId']}", lambda each: each["finishedAt"])
    assert order["id"] == queued["executionId"]
    assert done["status"] == "DONE"


async def test_an_unanswered_command_is_sent_again_with_the_same_id(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    async with pump.online(service, auto_reply=False) as line:
        sent = await owner.post(f"{pump.path}/command", {"cmd": "ON", "ttlSeconds": 600})
        first = await line.next_command("ON")
        await service.kill_and_restart()

    async with pump.online(service, auto_reply=False) as line:
        again = await line.next_command("ON")
        assert again["id"] == first["id"]
        await line.reply(first)
        await owner.wait_until(f"{pump.path}/executions/{sent['executionId']}", lambda each: each["status"] == "DONE")
    executions = (await owner.get(f"{pump.path}/executions"))["data"]
    assert [each["executionId"] for each in executions if each["cmd"] == "ON"] == [first["id"]]


async def test_a_rule_does_not_fire_again_for_the_same_crossing(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    async with pump.online(service) as line:
        await line.report(temperature=20)
        await owner.post(f"{pump.path}/rules", RULE, expect=201)
        await line.report(temperature=31)
        await service.kill_and_restart()

    async with pump.online(service) as line:
        await line.report(temperature=32)
        await line.drain_commands(owner)  # the first OFF too, if it was interrupted
        await line.report(temperature=29)
        await line.report(temperature=31)
        assert await line.drain_commands(owner) == ["OFF"]
    executions = (await owner.get(f"{pump.path}/executions"))["data"]
    assert len([each for each in executions if each["source"] == "rule"]) == 2


async def test_a_pending_delivery_is_made_when_its_receiver_is_back(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    key = await owner.post("/keys", {"name": "Receiver"}, expect=201)
    await owner.post(f"{pump.path}/grants", {"commands": ["*"], "apiKeyId": key["keyId"]}, expect=201)
    async with webhook_receiver(send_and_close(b"")) as receiver:
        webhook = await owner.post("/webhooks", {"keyId": key["keyId"], "url": receiver.url}, expect=201)
        async with pump.online(service) as line:
            await line.press_button(True)
            await service.kill_and_restart()
        receiver.behave = respond(200)
        log = f"/webhooks/{webhook['webhookId']}/deliveries"
        # An interrupted attempt is made again after its lease of 30 seconds.
        attempts = await owner.wait_until(log, lambda each: any(map(_relay_events, each)))
    await owner.delete(f"/webhooks/{webhook['webhookId']}")

    [event] = (await owner.get("/events", params={"deviceId": pump.device_id, "type": "relay_changed"}))["data"]
    reported = [got for got in receiver.requests if got.envelope["type"] == "relay_changed"]
    assert {got.headers["webhook-id"] for got in reported} == {event["id"]}
    assert len({got.envelope["id"] for got in reported}) == len(reported)  # each attempt has its own id
    assert len(list(filter(_relay_events, attempts))) == 1
    assert all(got.signed_with(webhook["secret"]) for got in reported)


def _relay_events(attempt: dict[str, Any]) -> bool:
    return attempt["succeeded"] is True and attempt["eventType"] == "relay_changed"


async def test_a_pending_approval_survives_and_runs_once_when_approved(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    key = await owner.post("/keys", {"name": "Robot"}, expect=201)
    opening = {"name": "OPEN", "label": "Open", "requiresApproval": True}
    await owner.post(f"{pump.path}/commands", opening, expect=201)
    await owner.post(f"{pump.path}/grants", {"commands": ["OPEN"], "apiKeyId": key["keyId"]}, expect=201)
    async with service.api(**{"X-Api-Key": key["key"]}) as robot:
        order = {"cmd": "OPEN", "params": {"turns": 3}}
        requested = await robot.post(f"{pump.path}/command", order, expect=202)
    await service.kill_and_restart()
    [waiting] = await owner.get(f"{pump.path}/approvals")
    assert (waiting["approvalId"], waiting["status"], waiting["params"]) == (requested["approvalId"], "PENDING", {"turns": 3})

    approved = await owner.post(f"{pump.path}/approvals/{requested['approvalId']}/approve")
    await service.kill_and_restart()

    await owner.post(f"{pump.path}/approvals/{requested['approvalId']}/approve", expect=409)
    async with pump.online(service) as line:
        arrived = await line.next_command("OPEN")
        assert await line.drain_commands(owner) == []
    assert (arrived["id"], arrived["params"]) == (approved["executionId"], {"turns": 3})


async def test_a_schedule_due_while_the_service_was_down_fires_once(service: Service, owner: ApiClient) -> None:
    """If ON and OFF were both due, only OFF runs: a late ON does not switch the pump on."""
    pump, rested = await create_device(owner, "On"), await create_device(owner, "Rested")
    on_ts = int(time.time()) + 10  # the service is dead before
    slot = {"slot": 0, "onTs": on_ts}
    await owner.post(f"{pump.path}/schedules", slot | {"offTs": on_ts + 3_600}, expect=201)
    await owner.post(f"{rested.path}/schedules", slot | {"offTs": on_ts + 1}, expect=201)
    service.kill()
    await asyncio.sleep(max(0.0, on_ts + 1.1 - time.time()))
    await service.kill_and_restart()

    await owner.wait_until(f"{pump.path}/schedules", lambda slots: slots[0]["lastFiredAt"])
    await owner.wait_until(f"{rested.path}/schedules/history", lambda slots: slots)
    async with pump.online(service) as line, rested.online(service) as other:
        assert await line.drain_commands(owner) == ["ON"]
        assert await other.drain_commands(owner) == ["OFF"]
    await service.kill_and_restart()
    async with pump.online(service) as line:
        assert await line.drain_commands(owner) == []
    assert [each["eventType"] for each in await _fired(owner, pump.device_id)] == ["schedule_fired"]
    [left] = await owner.get(f"{pump.path}/schedules")
    assert (left["status"], left["nextFireAt"] is not None) == ("ACTIVE", True)


async def _fired(owner: ApiClient, device_id: str) -> list[dict[str, Any]]:
    page = await owner.get("/events", params={"deviceId": device_id, "type": "schedule_fired"})
    return list(page["data"])


async def test_a_feed_client_resumes_with_its_cursor_without_a_gap(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    async with pump.online(service) as line, service.feed(owner) as feed:
        await line.press_button(True)
        cursor = (await feed.wait_for("relay_changed", deviceId=pump.device_id))["cursor"]
        await line.press_button(False)
        await service.kill_and_restart()

    async with service.feed(owner, f"?cursor={cursor}&deviceId={pump.device_id}") as feed, pump.online(service) as line:
        missed = await feed.wait_for("relay_changed")
        await line.press_button(True)
        fresh = await feed.wait_for("relay_changed")

    page = await owner.get("/events", params={"deviceId": pump.device_id, "type": "relay_changed"})
    assert (missed["relay"], fresh["relay"]) == ("OFF", "ON")
    assert [each["id"] for each in page["data"][:2]] == [fresh["eventId"], missed["eventId"]]
    assert page["total"] == 3


async def test_a_revoked_device_stays_revoked(service: Service, owner: ApiClient) -> None:
    pump, key = await create_device(owner), await owner.post("/keys", {"name": "Robot"}, expect=201)
    await owner.post(f"{pump.path}/revoke")
    await owner.delete(f"/keys/{key['keyId']}")
    await service.kill_and_restart()

    with pytest.raises(aiomqtt.MqttError):
        async with pump.client(service):
            pass
    async with service.api(**{"X-Api-Key": key["key"]}) as robot:
        assert (await robot.get("/devices", expect=401))["error"] == "UNAUTHENTICATED"


async def test_a_device_that_reconnects_at_once_was_never_offline(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    async with pump.online(service) as line:
        await line.drain_commands(owner)
        await service.kill_and_restart()
    async with pump.online(service) as line:
        await line.drain_commands(owner)
        log = await owner.get(f"{pump.path}/events")

    assert (await owner.get(pump.path))["isOnline"] is True
    assert [each["eventType"] for each in log if each["eventType"].startswith("device_o")] == ["device_online"]
