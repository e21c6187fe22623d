"""Real messages fit the documents: what a device sends and receives over MQTT, the live feed, and webhooks, one of each public
event type."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from domain.events.model import PUBLIC_TYPES
from support.device import Device, DeviceConnection, create_device
from support.service import ApiClient, FeedClient, Service
from support.waiting import TIMEOUT_S
from support.webhook_receiver import Receiver, respond, webhook_receiver

HOT = {"metric": "temperature", "comparator": ">", "value": 30}
RULE = {"name": "flapping", "conditions": [HOT], "action": {"command": "OFF"}}
MORE_THAN_A_LOOP_MAY = 12


@dataclass
class Documents:
    openapi: dict[str, Any]
    asyncapi: dict[str, Any]

    def faults(self, document: dict[str, Any], schema: dict[str, Any], message: Any) -> list[str]:
        whole = {"allOf": [schema], "components": document["components"]}
        check = Draft202012Validator(whole, format_checker=Draft202012Validator.FORMAT_CHECKER)
        return [f"{error.message[:200]} in {str(message)[:300]}" for error in check.iter_errors(message)]

    def feed_faults(self, message: dict[str, Any]) -> list[str]:
        [found] = [
            one
            for name, one in self.asyncapi["channels"]["feed"]["messages"].items()
            if one["name"] == message["type"] and name.startswith("send")
        ]
        return self.faults(self.asyncapi, found["payload"], message)

    def webhook_faults(self, body: dict[str, Any]) -> list[str]:
        [found] = [one for one in self.asyncapi["channels"]["webhook"]["messages"].values() if one["name"] == body["type"]]
        post = self.openapi["webhooks"][body["type"]]["post"]
        in_openapi = post["requestBody"]["content"]["application/json"]["schema"]
        return [*self.faults(self.asyncapi, found["payload"], body), *self.faults(self.openapi, in_openapi, body)]

    def topic_faults(self, topic: str, message: Any) -> list[str]:
        address = f"devices/{{deviceId}}/{topic}"
        [found] = [one for one in self.asyncapi["channels"].values() if one["address"] == address]
        return self.faults(self.asyncapi, {"anyOf": [one["payload"] for one in found["messages"].values()]}, message)


@pytest.fixture
async def documents(service: Service, owner: ApiClient) -> Documents:
    served = [await owner.raw.get(f"{service.url}/{name}.json") for name in ("openapi", "asyncapi")]
    return Documents(*(one.json() for one in served))


async def test_every_real_message_fits_its_schema(service: Service, owner: ApiClient, documents: Documents) -> None:
    pump = await create_device(owner)
    key = await owner.post("/keys", {"name": "Robot"}, expect=201)
    grant = {"commands": ["*"], "apiKeyId": key["keyId"], "scope": "FULL"}
    await owner.post(f"{pump.path}/grants", grant, expect=201)
    sent: list[tuple[str, Any]] = []
    async with webhook_receiver(respond()) as receiver:
        hook = {"keyId": key["keyId"], "url": receiver.url, "types": sorted(PUBLIC_TYPES)}
        webhook = await owner.post("/webhooks", hook, expect=201)
        async with service.feed(owner) as feed, service.api(**{"X-Api-Key": key["key"]}) as robot:
            async with pump.online(service) as line:
                await cause_every_event(owner, robot, pump, line, feed, sent)
                sent += [("cmd", one) for one in line.commands] + [("sched", one) for one in line.plans]
            await owner.post(f"{pump.path}/revoke")
            await feed.wait_for("device_offline", deviceId=pump.device_id)
            await owner.post(f"/webhooks/{webhook['webhookId']}/ping")
            bodies = await bodies_of_every_type(receiver)

    assert {one["type"] for one in feed.received} >= PUBLIC_TYPES | {"initial_state"}
    assert [fault for one in feed.received for fault in documents.feed_faults(one)] == []
    assert [fault for one in bodies for fault in documents.webhook_faults(one)] == []
    assert {topic for topic, _ in sent} >= {"cmd", "sched", "state", "result", "telemetry", "hello", "sched/rev"}
    assert [fault for topic, message in sent for fault in documents.topic_faults(topic, message)] == []


async def cause_every_event(
    owner: ApiClient, robot: ApiClient, pump: Device, line: DeviceConnection, feed: FeedClient, sent: list[tuple[str, Any]]
) -> None:
    """One event of each public type but `device_offline`."""

    async def send(topic: str, message: Any) -> None:
        sent.append((topic, message))
        await line.publish(topic, message)

    await feed.wait_for("device_online", deviceId=pump.device_id)
    await send("hello", {"fw": "1.2.0", "sched": 0, "ch": ["RELAY", "LEVEL", "INPUT"], "names": ["Pump", "Lamp", "Bell"]})
    await send("state", {"relay": "ON", "by": "button", "ts": int(time.time() * 1000)})
    await feed.wait_for("relay_changed", deviceId=pump.device_id)
    await send("state", {"ch": 2, "relay": "ON", "level": 40, "by": "button"})
    await feed.wait_for("state_changed", channel=2)
    await send("state", {"ch": 3, "action": "SINGLE"})
    await feed.wait_for("input_changed", channel=3)
    await send(
        "telemetry", {"ts": int(time.time() * 1000), "m": {"temperature": 20, "mode": "eco"}, "u": {"temperature": "celsius"}}
    )
    await feed.wait_for("telemetry", metric="mode")

    definition = {"name": "SPIN", "label": "Spin", "requiresApproval": True}
    await owner.post(f"{pump.path}/commands", definition, expect=201)
    asked = await robot.post(f"{pump.path}/command", {"cmd": "SPIN", "reason": "Cleaning"}, expect=202)
    await feed.wait_for("approval_requested")
    await owner.post(f"{pump.path}/approvals/{asked['approvalId']}/approve", {"note": "Until noon"})
    await feed.wait_for("approval_decided")
    order = await line.next_command("SPIN")
    sent.append(("result", {"id": order["id"], "status": "done", "relay": "ON"}))  # as the device has answered
    await feed.wait_for("command_result")

    now_s = int(time.time())
    await owner.post(f"{pump.path}/schedules", {"slot": 0, "onTs": now_s + 1, "offTs": now_s + 3600}, expect=201)
    plan = await line.wait_for_plan(lambda plan: plan["s"])
    await send("sched/rev", {"rev": plan["rev"]})
    await owner.post(f"{pump.path}/rules", RULE, expect=201)
    await feed.wait_for("schedule_fired")
    await send("telemetry", [{"temperature": value} for _ in range(MORE_THAN_A_LOOP_MAY) for value in (31, 20)])
    await feed.wait_for("rule_disabled")
    await send("telemetry", {"ts": int(time.time() * 1000) + 600_000, "m": {"temperature": 20}})
    await feed.wait_for("device_clock_skew")


async def bodies_of_every_type(receiver: Receiver) -> list[dict[str, Any]]:
    async with asyncio.timeout(TIMEOUT_S):
        while not {one.envelope["type"] for one in receiver.requests} >= PUBLIC_TYPES | {"ping"}:
            await receiver.wait_for(len(receiver.requests) + 1)
    return [json.loads(one.body) for one in receiver.requests]
