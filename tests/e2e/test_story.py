"""The main use of the service from registration to revocation, with real clients."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import time
from typing import Any

import aiomqtt
import pytest
import standardwebhooks

from support.device import create_device, register_device
from support.service import ApiClient, Service
from support.waiting import OPERATION_TIMEOUT_S, TIMEOUT_S
from support.webhook_receiver import respond, webhook_receiver

HOT = {"metric": "temperature", "comparator": ">", "value": 30}


async def a_key(owner: ApiClient, name: str = "Robot") -> dict[str, Any]:
    key: dict[str, Any] = await owner.post("/keys", {"name": name}, expect=201)
    return key


async def test_a_device_becomes_active_with_its_credentials(owner: ApiClient) -> None:
    device_id = await register_device(owner)
    assert (await owner.get(f"/devices/{device_id}"))["deviceStatus"] == "PENDING"

    credentials = await owner.post(f"/devices/{device_id}/credentials")

    assert credentials["mqttUsername"] == device_id
    assert (await owner.get(f"/devices/{device_id}"))["deviceStatus"] == "ACTIVE"


@pytest.mark.parametrize(
    "how",
    [{"version": 4}, {"version": 5}, {"version": 4, "websocket": True}, {"version": 5, "websocket": True}],
    ids=["MQTT 3.1.1", "MQTT 5", "MQTT 3.1.1 over WebSocket", "MQTT 5 over WebSocket"],
)
async def test_a_device_reports_and_carries_out_commands_over(service: Service, owner: ApiClient, how: dict[str, Any]) -> None:
    pump = await create_device(owner)
    async with pump.online(service, **how) as line:
        await line.report(temperature=21.5)
        done = await owner.post(f"{pump.path}/command", {"cmd": "ON", "waitSeconds": 30})
        seen = await owner.get(pump.path)

    assert done["status"] == "DONE"
    assert (seen["isOnline"], seen["relayState"]) == (True, True)
    latest = await owner.get(f"{pump.path}/telemetry/latest")
    assert [(each["metric"], each["value"]) for each in latest["telemetry"]] == [("temperature", 21.5)]


async def test_a_wrong_password_is_refused(service: Service, owner: ApiClient) -> None:
    pump, other = await create_device(owner), await create_device(owner)

    for password in ("x" * 32, other.credentials["mqttPassword"], ""):
        with pytest.raises(aiomqtt.MqttError):
            async with pump.client(service, password=password):
                pass


async def test_a_device_cannot_reach_topics_of_other_devices(service: Service, owner: ApiClient) -> None:
    pump, spy = await create_device(owner), await create_device(owner)
    async with pump.online(service, auto_reply=False) as line, spy.online(service) as spying:
        filters = (pump.topic("cmd"), pump.topic("#"), "#", "devices/+/state")
        granted = await spying.client.subscribe([(each, 1) for each in filters])
        assert all((code if isinstance(code, int) else code.value) >= 0x80 for code in granted)
        for below, lie in (("state", b"ON"), ("telemetry", b'{"temperature": 99}'), ("cmd", b'{"cmd": "ON"}')):
            await spying.client.publish(pump.topic(below), lie, qos=1)

        assert await line.drain_commands(owner) == []
        assert await spying.drain_commands(owner) == []

    assert (await owner.get(pump.path))["relayState"] is None
    assert await owner.get(f"{pump.path}/telemetry") == []


async def test_a_rule_acts_once_on_each_crossing(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    rule = {"name": "too hot", "conditions": [HOT], "action": {"command": "OFF"}}
    assert (await owner.post(f"{pump.path}/rules", rule, expect=400))["error"] == "UNKNOWN_METRIC"
    async with pump.online(service) as line:
        await line.report(temperature=20)
        await owner.post(f"{pump.path}/rules", rule, expect=201)

        await line.report(temperature=31)
        order = await line.next_command("OFF")
        await line.report(temperature=32)
        assert await line.drain_commands(owner) == []
        await line.report(temperature=29)
        await line.report(temperature=31)
        assert await line.drain_commands(owner) == ["OFF"]
        assert line.duplicates == 0

    executions = (await owner.get(f"{pump.path}/executions"))["data"]
    by_rule = [each for each in executions if each["source"] == "rule"]
    assert len(by_rule) == 2
    assert order["id"] in {each["executionId"] for each in by_rule}


async def test_a_relay_change_reaches_feed_and_webhook_as_the_same_event(service: Service, owner: ApiClient) -> None:
    pump, key = await create_device(owner), await a_key(owner)
    await owner.post(f"{pump.path}/grants", {"commands": ["*"], "apiKeyId": key["keyId"], "scope": "READ"}, expect=201)
    async with webhook_receiver(respond(200)) as receiver:
        webhook = await owner.post("/webhooks", {"keyId": key["keyId"], "url": receiver.url}, expect=201)
        async with service.feed(owner) as feed, pump.online(service) as line:
            await line.press_button(True)
            reported = await feed.wait_for("relay_changed", deviceId=pump.device_id)
            async with asyncio.timeout(TIMEOUT_S):
                while not (got := [each for each in receiver.requests if each.envelope["type"] == "relay_changed"]):
                    await receiver.wait_for(len(receiver.requests) + 1)
        await owner.delete(f"/webhooks/{webhook['webhookId']}")

    [delivery] = got
    reported.pop("cursor")
    assert delivery.envelope["data"] == reported
    assert reported["relay"] == "ON"
    assert reported["triggeredBy"] == "device"
    assert delivery.headers["webhook-id"] == reported["eventId"]
    assert delivery.headers["x-service-event"] == "relay_changed"
    assert delivery.headers["x-service-delivery"] == delivery.envelope["id"]
    by_hand = hmac.new(webhook["secret"].encode(), delivery.body, hashlib.sha256).hexdigest()
    assert delivery.headers["x-service-signature"] == f"sha256={by_hand}"
    standardwebhooks.Webhook(webhook["secret"]).verify(delivery.body, delivery.headers)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        other = "whsec_" + base64.b64encode(bytes(32)).decode()
        standardwebhooks.Webhook(other).verify(delivery.body, delivery.headers)


async def test_a_key_may_do_only_what_it_is_granted(service: Service, owner: ApiClient) -> None:
    pump, key = await create_device(owner), await a_key(owner)
    async with service.api(**{"X-Api-Key": key["key"]}) as robot, pump.online(service) as line:
        on = {"cmd": "ON", "waitSeconds": 30}
        assert (await robot.post(f"{pump.path}/command", on, expect=403))["error"] == "GRANT_MISSING"

        await owner.post(f"{pump.path}/grants", {"commands": ["ON"], "apiKeyId": key["keyId"]}, expect=201)

        done = await robot.post(f"{pump.path}/command", on)
        refused = await robot.post(f"{pump.path}/command", {"cmd": "OFF"}, expect=403)
        assert done["status"] == "DONE"
        assert refused["error"] == "COMMAND_NOT_GRANTED"
        assert await line.drain_commands(owner) == ["ON"]
        assert (await robot.get("/keys", expect=403))["error"] == "SESSION_REQUIRED"


async def test_a_schedule_fires_on_and_off(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    async with pump.online(service) as line, service.feed(owner, "?types=schedule_fired") as feed:
        on_ts = int(time.time()) + 10  # a due ON does not run when OFF is due too
        slot = {"slot": 3, "onTs": on_ts, "offTs": on_ts + 10, "label": "ten seconds ahead"}
        schedule = await owner.post(f"{pump.path}/schedules", slot, expect=201)
        plan = await line.wait_for_plan(lambda plan: plan["s"])
        fired = [await feed.wait_for("schedule_fired", deviceId=pump.device_id) for _ in range(2)]
        assert await line.drain_commands(owner) == ["ON", "OFF"]

    assert plan["s"] == [[3, on_ts, on_ts + 10, *plan["s"][0][3:]]]
    assert [(each["edge"], each["command"], each["slot"]) for each in fired] == [("on", "ON", 3), ("off", "OFF", 3)]
    assert {each["scheduleId"] for each in fired} == {schedule["scheduleId"]}
    [past] = await owner.get(f"{pump.path}/schedules/history")
    assert past["status"] == "COMPLETED"


async def test_the_device_plan_is_retained_for_a_device_that_connects_later(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    on_ts = int(time.time()) + 3_600
    await owner.post(f"{pump.path}/schedules", {"slot": 0, "onTs": on_ts, "offTs": on_ts + 60}, expect=201)

    async with pump.online(service) as line:
        plan = await line.wait_for_plan(lambda plan: plan["s"] and plan["s"][0][1] == on_ts)
        await line.publish("sched/rev", {"rev": plan["rev"]}, retain=True)

    await owner.wait_until(f"{pump.path}/schedules", lambda slots: slots[0]["firmwareSynced"])


async def test_a_command_that_needs_approval_is_sent_only_after_approval(service: Service, owner: ApiClient) -> None:
    pump, key = await create_device(owner), await a_key(owner)
    opening = {"name": "OPEN_VALVE", "label": "Open the valve", "requiresApproval": True}
    await owner.post(f"{pump.path}/commands", opening, expect=201)
    await owner.post(f"{pump.path}/grants", {"commands": ["OPEN_VALVE"], "apiKeyId": key["keyId"]}, expect=201)
    async with service.api(**{"X-Api-Key": key["key"]}) as robot, pump.online(service) as line:
        requested = await robot.post(f"{pump.path}/command", {"cmd": "OPEN_VALVE"}, expect=202)
        assert requested["approvalRequired"] is True
        assert await line.drain_commands(owner) == []

        approved = await owner.post(f"{pump.path}/approvals/{requested['approvalId']}/approve")

        order = await line.next_command("OPEN_VALVE")
        again = await owner.post(f"{pump.path}/approvals/{requested['approvalId']}/approve", expect=409)
        assert await line.drain_commands(owner) == []
    assert order["id"] == approved["executionId"]
    assert again["error"]
    [approval] = await owner.get(f"{pump.path}/approvals")
    assert (approval["status"], approval["executionId"]) == ("APPROVED", order["id"])


async def test_a_revoked_device_is_disconnected_at_once_and_refused(service: Service, owner: ApiClient) -> None:
    pump, other = await create_device(owner), await create_device(owner)
    async with pump.online(service) as line, other.online(service) as bystander:
        await owner.wait_until(pump.path, lambda device: device["isOnline"])  # only who was online is announced as offline
        revoked = await owner.post(f"{pump.path}/revoke")
        await line.wait_for_disconnect(within_s=OPERATION_TIMEOUT_S)
        assert await bystander.drain_commands(owner) == []

    assert revoked["deviceStatus"] == "REVOKED"
    with pytest.raises(aiomqtt.MqttError):
        async with pump.client(service):
            pass
    seen = await owner.wait_until(pump.path, lambda device: not device["isOnline"])
    assert (seen["deviceStatus"], seen["enabled"]) == ("REVOKED", False)
    [gone] = (await owner.get("/events", params={"deviceId": pump.device_id, "type": "device_offline"}))["data"]
    assert "revoked" in gone["description"]
