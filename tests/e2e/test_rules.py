"""Rules with the real program and a device: transitions, timers, priority, loops, dry runs; with SIGKILL in the middle."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import Any

import pytest

from support.device import Device, DeviceConnection, create_device
from support.service import ApiClient, Service
from support.waiting import TIMEOUT_S

HOT = {"metric": "temperature", "comparator": ">", "value": 30}
COOL = {"metric": "temperature", "comparator": "<", "value": 25}


async def create_rule(owner: ApiClient, device: Device, command: str = "OFF", **fields: Any) -> str:
    body = {"name": f"{command} when hot", "conditions": [HOT], "action": {"command": command}} | fields
    rule_id: str = (await owner.post(f"{device.path}/rules", body, expect=201))["ruleId"]
    return rule_id


async def list_events(owner: ApiClient, device: Device, kind: str) -> list[dict[str, Any]]:
    """Events of this type, oldest first."""
    page = await owner.get("/events", params={"deviceId": device.device_id, "type": kind})
    return list(reversed(page["data"]))


async def wait_for_events(owner: ApiClient, device: Device, kind: str, count: int = 1) -> list[dict[str, Any]]:
    async with asyncio.timeout(TIMEOUT_S):
        while len(events := await list_events(owner, device, kind)) < count:
            await asyncio.sleep(0.05)
    return events


def unix_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000)


async def report_temperatures(line: DeviceConnection, *temperatures: float) -> None:
    for temperature in temperatures:
        await line.report(temperature=temperature)


async def test_after_a_kill_no_rule_fires_again_and_none_loses_its_state(service: Service, owner: ApiClient) -> None:
    """One rule has fired and one has not: after SIGKILL the first stays matched and the second still fires."""
    pump = await create_device(owner)
    async with pump.online(service) as line:
        await report_temperatures(line, 20)
        await create_rule(owner, pump, "OFF")
        await create_rule(owner, pump, "TOGGLE", conditions=[HOT | {"value": 40}])
        await report_temperatures(line, 31)
        assert await line.drain_commands(owner) == ["OFF"]
        for value, expected in ((32, []), (41, ["TOGGLE"]), (42, [])):
            await service.kill_and_restart()
            async with pump.online(service) as again:
                await report_temperatures(again, value)
                assert await again.drain_commands(owner) == expected
    assert len(await list_events(owner, pump, "rule_matched")) == 2


async def test_for_seconds_continues_while_the_service_is_down_and_the_device_offline(service: Service, owner: ApiClient) -> None:
    """The conditions must hold for eight seconds; an offline device has not reported that they do not."""
    pump = await create_device(owner)
    async with pump.online(service) as line:
        await report_temperatures(line, 20)
        await create_rule(owner, pump, forSeconds=8)
        before_ms = int(time.time() * 1_000)  # whole milliseconds, as the service counts
        await report_temperatures(line, 31)
    await service.kill_and_restart()

    [matched] = await wait_for_events(owner, pump, "rule_matched")
    assert matched["timestamp"] >= before_ms + 8_000
    async with pump.online(service) as line:
        assert await line.drain_commands(owner) == ["OFF"]
        await report_temperatures(line, 32)
        assert await line.drain_commands(owner) == []


async def test_for_seconds_restarts_when_the_conditions_stop_holding(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    async with pump.online(service) as line:
        await report_temperatures(line, 20)
        await create_rule(owner, pump, forSeconds=8)
        await report_temperatures(line, 31, 20)
        lapsed_ms = int(time.time() * 1_000)  # whole milliseconds, as the service counts
        await report_temperatures(line, 31)
        [matched] = await wait_for_events(owner, pump, "rule_matched")
        assert matched["timestamp"] >= lapsed_ms + 8_000
        assert await line.drain_commands(owner) == ["OFF"]


async def test_silence_fires_once_without_any_message_even_after_a_kill(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    quiet = {"metric": "temperature", "comparator": "silent", "value": 1}
    async with pump.online(service) as line:
        await report_temperatures(line, 20)
    await create_rule(owner, pump, conditions=[quiet])  # no message from here on
    [matched] = await wait_for_events(owner, pump, "rule_matched")
    await service.kill_and_restart()
    async with pump.online(service) as line:
        assert await line.drain_commands(owner) == ["OFF"]
        assert len(await list_events(owner, pump, "rule_matched")) == 1
        await report_temperatures(line, 20)
        back_ms = matched["timestamp"]
    [_, second] = await wait_for_events(owner, pump, "rule_matched", 2)
    assert second["timestamp"] >= back_ms + 1_000


async def test_hysteresis_and_cooldown_survive_a_kill(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    async with pump.online(service) as line:
        await report_temperatures(line, 20)
        await create_rule(owner, pump, "OFF", clearConditions=[COOL])
        await create_rule(owner, pump, "TOGGLE", cooldownSeconds=3_600)
        await report_temperatures(line, 31)
        assert sorted(await line.drain_commands(owner)) == ["OFF", "TOGGLE"]
    await service.kill_and_restart()
    async with pump.online(service) as line:
        await report_temperatures(line, 29, 31)  # the clear condition does not hold, and the cooldown still runs
        assert await line.drain_commands(owner) == []
        await report_temperatures(line, 24, 31)
        assert await line.drain_commands(owner) == ["OFF"]


async def test_only_an_edit_of_the_conditions_resets_a_rule(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    async with pump.online(service) as line:
        await report_temperatures(line, 20)
        rule = f"{pump.path}/rules/{await create_rule(owner, pump)}"
        await report_temperatures(line, 31)
        assert await line.drain_commands(owner) == ["OFF"]
        for change in ({"name": "other"}, {"priority": 7}, {"action": {"command": "TOGGLE"}}, {"conditions": [HOT]}):
            assert (await owner.patch(rule, change))["lastMatched"] is True
            await report_temperatures(line, 32)
            assert await line.drain_commands(owner) == [], change
        assert (await owner.patch(rule, {"conditions": [HOT | {"value": 31}]}))["lastMatched"] is False
        await report_temperatures(line, 33)
        assert await line.drain_commands(owner) == ["TOGGLE"]
    [kept] = await owner.get(f"{pump.path}/rules")
    assert (kept["lastMatched"], kept["name"], kept["priority"]) == (True, "other", 7)


@pytest.mark.parametrize("rival", ["OFF", "ON"])
async def test_priority_then_age_decides_between_rules_that_fire_together_and_the_losing_rule_is_logged(
    service: Service, owner: ApiClient, rival: str
) -> None:
    """An equal command runs once; of contradicting commands only the first runs."""
    pump = await create_device(owner)
    async with pump.online(service) as line:
        await report_temperatures(line, 20)
        await create_rule(owner, pump, rival, name="younger rank", priority=200)
        await create_rule(owner, pump, "OFF", name="winner", priority=1)
        await create_rule(owner, pump, rival, name="same rank", priority=1)
        await report_temperatures(line, 31)
        assert await line.drain_commands(owner) == ["OFF"]
    reply = [event["description"] for event in await list_events(owner, pump, "rule_suppressed")]
    assert len(reply) == 2
    assert all("rule 'winner' fired at the same moment" in one for one in reply)
    assert all(any(repr(loser) in one for one in reply) for loser in ("same rank", "younger rank"))
    assert [each["lastMatched"] for each in await owner.get(f"{pump.path}/rules")] == [True] * 3


async def test_a_rule_that_triggers_itself_in_a_loop_is_disabled_with_a_reason(service: Service, owner: ApiClient) -> None:
    """The device answers each OFF with a reading that makes the rule fire again."""
    pump = await create_device(owner)
    async with pump.online(service) as line:
        await report_temperatures(line, 20)
        rule_id = await create_rule(owner, pump)
        for _ in range(10):
            await report_temperatures(line, 31)
            await line.next_command("OFF")
            await report_temperatures(line, 20)
        await report_temperatures(line, 31)
        assert await line.drain_commands(owner) == []
    [rule] = await owner.get(f"{pump.path}/rules")
    [disabled] = await list_events(owner, pump, "rule_disabled")
    assert (rule["enabled"], rule["ruleId"], disabled["source"]) == (False, rule_id, f"rule:{rule_id}")
    assert "more than 10 times within a minute" in rule["disabledReason"]
    assert rule["disabledReason"] in disabled["description"]
    again = await owner.patch(f"{pump.path}/rules/{rule_id}", {"enabled": True})
    assert (again["enabled"], again["disabledReason"]) == (True, None)
    async with pump.online(service) as line:
        await report_temperatures(line, 20, 31)
        assert await line.drain_commands(owner) == ["OFF"]


async def test_values_other_than_plain_numbers_are_evaluated_as_documented(service: Service, owner: ApiClient) -> None:
    """A metric that is not in the message, NaN, text, booleans, integers beyond 2^53, minus zero."""
    pump = await create_device(owner)
    cases: list[tuple[str, str, Any, bool]] = [
        ("absent", "<", 5, False),
        ("absent", "==", 9, True),
        ("broken", "<", 5, False),
        ("mode", "==", "eco", True),
        ("mode", "!=", "boost", True),
        ("mode", ">", 1, False),
        ("open", "==", 1, True),
        ("open", "==", "true", False),
        ("count", "==", 2**53, True),
        ("count", ">", 2**53, False),
        ("zero", "==", 0, True),
    ]
    async with pump.online(service) as line:
        await line.report(absent=9, broken=9, mode="off", open=False, count=1, zero=1)
        for metric, sign, value, _ in cases:
            condition = {"metric": metric, "comparator": sign, "value": value}
            await create_rule(owner, pump, "STATUS", name=f"{metric} {sign} {value}", conditions=[condition], priority=1)
        odd = b'{"broken": NaN, "mode": "eco", "open": true, "count": 9007199254740993, "zero": -0.0}'
        await line.publish("telemetry", odd)
        await line.drain_commands(owner)
    rules = await owner.get(f"{pump.path}/rules")
    assert {rule["name"]: rule["lastMatched"] for rule in rules} == {f"{m} {s} {v}": holds for m, s, v, holds in cases}


async def test_a_value_beyond_the_range_of_a_double_is_rejected(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    async with pump.online(service) as line:
        await report_temperatures(line, 20)
    for value in (10**400, True, None, [1]):
        body = {"name": "r", "conditions": [HOT | {"value": value}], "action": {"command": "OFF"}}
        refusal = await owner.post(f"{pump.path}/rules", body, expect=400)
        assert refusal["error"] in ("VALIDATION_ERROR", "INVALID_JSON"), value


async def test_a_dry_run_explains_each_condition_and_lists_past_firings_without_changing_anything(
    service: Service, owner: ApiClient
) -> None:
    pump = await create_device(owner)
    begin_ms = int(time.time() * 1_000) - 60_000
    readings = ((0, 20), (10, 31), (20, 32), (30, 24), (40, 35))
    async with pump.online(service) as line:
        for second, temperature in readings:
            await line.publish("telemetry", {"ts": begin_ms + 1_000 * second, "m": {"temperature": temperature}})
        rule_id = await create_rule(owner, pump, clearConditions=[COOL])
        trial = f"{pump.path}/rules/{rule_id}/test"

        by_hand = await owner.post(trial, {"readings": {"temperature": 31}})
        assert (by_hand["wouldFire"], by_hand["conditions"][0]["why"]) == (True, "31.0 > 30.0 is true")
        unfit = await owner.post(trial, {"readings": {"temperature": "warm"}})
        assert unfit["wouldFire"] is False
        assert "is text and is compared with a number" in unfit["conditions"][0]["why"]

        past = await owner.post(trial, {"from": begin_ms, "to": begin_ms + 60_000})
        assert [unix_ms(at) - begin_ms for at in past["firedAt"]] == [10_000, 40_000]
        assert (past["messages"], past["complete"], past["clearConditions"][0]["holds"]) == (5, True, False)
        assert (await owner.post(trial, {"from": 5, "to": 5}, expect=400))["error"] == "VALIDATION_ERROR"
        assert await line.drain_commands(owner) == []
    assert [rule["lastMatched"] for rule in await owner.get(f"{pump.path}/rules")] == [False]
