"""The story a user lives through, against the real program from outside: MQTT, REST, the live feed and webhooks."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import queue
import time

import pytest
from standardwebhooks.webhooks import Webhook

from support.device import Device, eventually
from support.service import Service
from support.story import Api, Hook, device_on, feed, generate, new_key, register, sign_in

TOO_WARM = {"name": "Too warm", "conditions": [{"metric": "temperature", "comparator": ">", "value": 30}], "action": {"command": "OFF"}}


def nothing_more(device: Device) -> bool:
    """Whether no further command comes; half a second is many times what one takes."""
    try:
        device.next_command(within_s=0.5)
    except queue.Empty:
        return True
    return False


# 1. A device becomes known and connects.


def test_a_registered_device_becomes_active_with_its_credentials(owner: Api) -> None:
    device_id = register(owner)
    assert owner.ok("GET", f"/devices/{device_id}")["deviceStatus"] == "PENDING"
    generate(owner, device_id)
    assert owner.ok("GET", f"/devices/{device_id}")["deviceStatus"] == "ACTIVE"
    assert owner.refused("POST", f"/devices/{device_id}/credentials") == (409, "CREDENTIALS_EXIST")


@pytest.mark.parametrize(("version", "websocket"), [(4, False), (5, False), (4, True), (5, True)])
def test_a_device_connects_over_each_protocol_and_transport(owner: Api, version: int, websocket: bool) -> None:
    with device_on(owner, version=version, websocket=websocket) as device:
        eventually(lambda: owner.ok("GET", f"/devices/{device.device_id}")["isOnline"])
        answer = owner.ok("POST", f"/devices/{device.device_id}/command", {"cmd": "ON", "waitSeconds": 10})
        assert answer["status"] == "DONE"


@pytest.mark.parametrize("version", [4, 5])
def test_a_wrong_password_is_refused(owner: Api, version: int) -> None:
    device_id = register(owner)
    generate(owner, device_id)
    with Device(device_id, "x" * 32, owner.service.mqtt_port, version=version) as impostor:
        assert impostor.connect() != 0


def test_topics_of_another_device_are_closed(owner: Api) -> None:
    with device_on(owner) as mine, device_on(owner) as other:
        other.switch(False)
        assert mine.subscribe("cmd", other.device_id) >= 0x80
        mine._send("state", {"relay": "ON"}, device_id=other.device_id)  # a broker may cut, or drop and acknowledge
        other.report(temperature=20)
        latest = owner.ok("GET", f"/devices/{other.device_id}/telemetry/latest")
        assert latest["relayState"] is False


# 2. A rule acts on the change, once.


def test_a_rule_fires_at_the_edge_and_only_there(owner: Api) -> None:
    with device_on(owner) as device:
        path = f"/devices/{device.device_id}/rules"
        assert owner.refused("POST", path, TOO_WARM) == (400, "UNKNOWN_METRIC")
        device.report(temperature=20)
        owner.ok("POST", path, TOO_WARM)
        device.report(temperature=31)
        assert device.next_command()["cmd"] == "OFF"
        device.report(temperature=32)
        assert nothing_more(device)
        device.report(temperature=29)
        device.report(temperature=31)
        assert device.next_command()["cmd"] == "OFF"
        assert nothing_more(device)
        assert [order["cmd"] for order in device.seen] == ["OFF", "OFF"]


# 3. One event, told twice, with one id.


def test_a_relay_change_reaches_feed_and_webhook_as_the_same_event(owner: Api, hook: Hook) -> None:
    with device_on(owner) as device:
        key_id, _ = new_key(owner)
        owner.ok("POST", f"/devices/{device.device_id}/grants", {"commands": ["ON"], "apiKeyId": key_id})
        secret = owner.ok("POST", "/webhooks", {"keyId": key_id, "url": hook.url})["secret"]
        with feed(owner) as client:
            assert client.initial["type"] == "initial_state"
            device.switch(True)
            seen = client.wait_for("relay_changed", deviceId=device.device_id)
        delivery = hook.wait_for("relay_changed")
    expected = hmac.new(secret.encode(), delivery.body, hashlib.sha256).hexdigest()
    assert delivery.headers["x-service-signature"] == f"sha256={expected}"
    Webhook(secret).verify(delivery.body, delivery.headers)
    envelope = json.loads(delivery.body)
    assert envelope["id"] == delivery.headers["x-service-delivery"]
    assert envelope["data"]["eventId"] == seen["eventId"] == delivery.headers["webhook-id"]
    assert (seen["relay"], seen["triggeredBy"]) == ("ON", "device")


# 4. A key does what it was granted.


def test_a_key_switches_only_what_it_was_granted(owner: Api) -> None:
    with device_on(owner) as device:
        path = f"/devices/{device.device_id}"
        key_id, robot = new_key(owner)
        assert robot.refused("POST", f"{path}/command/on") == (403, "GRANT_MISSING")
        owner.ok("POST", f"{path}/grants", {"commands": ["ON"], "apiKeyId": key_id})
        assert robot.ok("POST", f"{path}/command", {"cmd": "ON", "waitSeconds": 10})["status"] == "DONE"
        assert device.next_command()["cmd"] == "ON"
        assert robot.refused("POST", f"{path}/command/off") == (403, "COMMAND_NOT_GRANTED")
        assert robot.refused("GET", "/keys") == (403, "SESSION_REQUIRED")
        assert nothing_more(device)


# 5. A schedule keeps its word.


def test_a_schedule_fires_on_and_off(owner: Api) -> None:
    with device_on(owner) as device, feed(owner, "?types=schedule_fired") as client:
        on_ts = int(time.time()) + 2
        owner.ok("POST", f"/devices/{device.device_id}/schedules", {"slot": 0, "onTs": on_ts, "offTs": on_ts + 2})
        assert len(device.plans.get(timeout=10)["s"]) == 1
        assert client.wait_for("schedule_fired", edge="on", deviceId=device.device_id)["command"] == "ON"
        assert client.wait_for("schedule_fired", edge="off", deviceId=device.device_id)["command"] == "OFF"
        assert [device.next_command()["cmd"], device.next_command()["cmd"]] == ["ON", "OFF"]
        history = owner.ok("GET", f"/devices/{device.device_id}/schedules/history")
        assert history[0]["status"] == "COMPLETED"


# 6. What needs approval waits for it.


def test_a_command_that_needs_approval_waits_for_the_owner(owner: Api) -> None:
    with device_on(owner) as device:
        path = f"/devices/{device.device_id}"
        owner.ok("POST", f"{path}/commands", {"name": "FLUSH", "label": "Flush", "requiresApproval": True})
        key_id, robot = new_key(owner)
        owner.ok("POST", f"{path}/grants", {"commands": ["FLUSH"], "apiKeyId": key_id})
        asked = robot.call("POST", f"{path}/command", {"cmd": "FLUSH"})
        assert (asked.status_code, asked.json()["approvalRequired"]) == (202, True)
        assert nothing_more(device)
        approve = f"{path}/approvals/{asked.json()['approvalId']}/approve"
        execution_id = owner.ok("POST", approve)["executionId"]
        order = device.next_command()
        assert (order["cmd"], order["id"]) == ("FLUSH", execution_id)
        assert owner.call("POST", approve).status_code == 409


# 7. Revoked is out.


def test_a_revoked_device_is_cut_off_and_cannot_come_back(owner: Api) -> None:
    device = device_on(owner)
    began = time.monotonic()
    assert owner.ok("POST", f"/devices/{device.device_id}/revoke")["deviceStatus"] == "REVOKED"
    assert device.gone.wait(5)
    assert time.monotonic() - began < 5
    device.disconnect()
    assert device.connect() != 0
    device.disconnect()
    eventually(lambda: not owner.ok("GET", f"/devices/{device.device_id}")["isOnline"])


# 8. A crash loses nothing that was acknowledged.


def test_after_kill_9_nothing_acknowledged_is_missing(own_service: Service, hook: Hook) -> None:
    owner = sign_in(own_service)
    device = device_on(owner)
    path = f"/devices/{device.device_id}"
    key_id, robot = new_key(owner)
    owner.ok("POST", f"{path}/commands", {"name": "FLUSH", "label": "Flush", "requiresApproval": True})
    owner.ok("POST", f"{path}/grants", {"commands": ["ON", "FLUSH"], "apiKeyId": key_id})
    approval_id = robot.ok("POST", f"{path}/command", {"cmd": "FLUSH"})["approvalId"]
    owner.ok("POST", "/webhooks", {"keyId": key_id, "url": hook.url})
    hook.status = 503  # so that what is owed is still owed when the service dies
    device.report(temperature=20)
    rule_id = owner.ok("POST", f"{path}/rules", TOO_WARM)["ruleId"]
    for reading in range(20):
        device.report(temperature=31 + reading, reading=reading)
    assert device.next_command()["cmd"] == "OFF"
    device.switch(True)
    hook.wait_for("relay_changed")
    on_ts = int(time.time()) + 3
    owner.ok("POST", f"{path}/schedules", {"slot": 1, "onTs": on_ts, "offTs": on_ts + 3600})

    own_service.kill()
    device.disconnect()
    hook.status = 200
    own_service.start()

    owner = sign_in(own_service)
    again = Device(device.device_id, owner.ok("POST", f"{path}/credentials", {"rotate": True})["mqttPassword"], own_service.mqtt_port)
    with again.online():
        readings = owner.ok("GET", f"{path}/telemetry?metric=reading&limit=100")
        assert sorted(each["value"] for each in readings) == list(range(20))
        assert owner.ok("GET", f"{path}/telemetry/latest")["relayState"] is True
        (rule,) = owner.ok("GET", f"{path}/rules")
        assert (rule["ruleId"], rule["lastMatched"]) == (rule_id, True)
        again.report(temperature=60)  # still matched: no second edge because of a restart
        assert again.next_command()["cmd"] == "ON"  # the schedule's
        owner.ok("POST", f"{path}/approvals/{approval_id}/approve")
        assert again.next_command()["cmd"] == "FLUSH"
        retried = hook.wait_for("relay_changed", within_s=60)
        assert json.loads(retried.body)["data"]["relay"] == "ON"
        assert [order["cmd"] for order in again.seen] == ["ON", "FLUSH"]


def test_ctrl_c_and_sigterm_end_the_service_quickly_with_exit_code_0(own_service: Service) -> None:
    owner = sign_in(own_service)
    with device_on(owner) as device, feed(owner):
        device.report(temperature=20)
        code, seconds = own_service.stop()
        assert (code, seconds < 5) == (0, True)


def test_the_secret_of_a_webhook_is_thirty_two_random_bytes(owner: Api, hook: Hook) -> None:
    key_id, _ = new_key(owner)
    secret = owner.ok("POST", "/webhooks", {"keyId": key_id, "url": hook.url})["secret"]
    assert secret.startswith("whsec_")
    assert len(base64.b64decode(secret.removeprefix("whsec_"))) == 32
