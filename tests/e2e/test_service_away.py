"""An absence of the service is counted against nobody: what a board did meanwhile is told as the board says it, and no silence that
nobody could hear switches anything."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from support.device import Device, DeviceConnection, create_device
from support.service import ApiClient, Service


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("service-away")) as service:
        yield service


@pytest.fixture
async def owner(service: Service) -> AsyncIterator[ApiClient]:
    async with service.api() as api:
        await service.sign_in_again(api)
        yield api


async def hold_plan(service: Service, owner: ApiClient, device: Device, on_ts: int, off_ts: int) -> int:
    """Save the slot; the board stores it and confirms. Returns the revision of its plan."""
    await owner.post(f"{device.path}/schedules", {"slot": 0, "onTs": on_ts, "offTs": off_ts}, expect=201)
    async with device.online(service) as line:
        plan = await line.wait_for_plan(lambda plan: plan["s"])
        await line.publish("sched/rev", {"rev": plan["rev"]}, retain=True)
        await line.publish("state", {"relay": "OFF", "by": "boot"}, retain=True)
        await owner.wait_until(f"{device.path}/schedules", lambda found: found[0]["firmwareSynced"])
    return int(plan["rev"])


async def away_until(service: Service, ts: int) -> None:
    service.kill()
    await asyncio.sleep(ts - time.time())
    service.start()


async def told(owner: ApiClient, device: Device) -> list[tuple[str, str]]:
    """(edge, outcome or event) of the slot's events, oldest first."""
    found = await owner.get("/events", params={"deviceId": device.device_id, "limit": 200})
    events = [each for each in reversed(found["data"]) if each["eventType"].startswith("schedule_")]
    return [
        (each["eventType"], each["description"]) for each in events if each["eventType"] in ("schedule_fired", "schedule_skipped")
    ]


async def settled(owner: ApiClient, device: Device, outcome: str) -> None:
    async def outcome_of() -> str | None:
        found = [*await owner.get(f"{device.path}/schedules"), *await owner.get(f"{device.path}/schedules/history")]
        return found[0]["lastOutcome"]

    deadline = time.monotonic() + 30
    while (now := await outcome_of()) != outcome:
        assert time.monotonic() < deadline, now
        await asyncio.sleep(0.2)


async def back(line: DeviceConnection, rev: int, **state: object) -> None:
    """What the example firmware says after it has connected."""
    await line.publish("hello", {"fw": "1", "sched": rev})
    await line.publish("sched/rev", {"rev": rev}, retain=True)
    await line.publish("state", state, retain=True)


async def test_a_board_that_ran_both_edges_meanwhile_is_believed_and_gets_no_command(service: Service, owner: ApiClient) -> None:
    pump, now = await create_device(owner), int(time.time())
    rev = await hold_plan(service, owner, pump, now + 6, now + 8)
    await away_until(service, now + 10)
    async with service.api() as api:
        await service.sign_in_again(api)
        async with pump.online(service) as line:
            await back(line, rev, relay="OFF", by="sched")
            await settled(api, pump, "RAN_ON_DEVICE")
            assert await line.drain_commands(api) == []
        found = await told(api, pump)
    assert [kind for kind, _ in found] == ["schedule_fired", "schedule_fired"], found
    assert "switched on by the device" in found[0][1]
    assert "switched off by the device" in found[1][1]


async def test_nothing_is_switched_against_the_person_who_was_at_the_board_meanwhile(service: Service, owner: ApiClient) -> None:
    pump, now = await create_device(owner), int(time.time())
    rev = await hold_plan(service, owner, pump, now + 6, now + 3_600)
    await away_until(service, now + 8)
    async with service.api() as api:
        await service.sign_in_again(api)
        async with pump.online(service) as line:
            await back(line, rev, relay="OFF", by="button")
            await settled(api, pump, "SUPERSEDED")
            assert await line.drain_commands(api) == []
        assert (await api.get(pump.path))["relayState"] is False


async def test_an_edge_that_nobody_ran_is_made_good(service: Service, owner: ApiClient) -> None:
    """The board had lost its power: it comes back without a plan."""
    pump, now = await create_device(owner), int(time.time())
    await hold_plan(service, owner, pump, now + 6, now + 3_600)
    await away_until(service, now + 8)
    async with service.api() as api:
        await service.sign_in_again(api)
        async with pump.online(service) as line:
            await back(line, 0, relay="OFF", by="boot")
            await line.next_command("ON")
            await settled(api, pump, "FIRED_LATE")


async def test_an_edge_that_only_the_service_runs_waits_for_the_boards_word(service: Service, owner: ApiClient) -> None:
    pump, now = await create_device(owner), int(time.time())
    body = {"slot": 0, "onTs": now + 6, "offTs": now + 3_600, "rrule": "FREQ=DAILY"}
    await owner.post(f"{pump.path}/schedules", body, expect=201)
    other = await create_device(owner, "Other")
    await owner.post(f"{other.path}/schedules", body, expect=201)
    async with pump.online(service), other.online(service):  # a device that was never seen has nothing to tell
        await owner.wait_until(other.path, lambda found: found["isOnline"])
        await owner.wait_until(pump.path, lambda found: found["isOnline"])
    await away_until(service, now + 8)
    async with service.api() as api:
        await service.sign_in_again(api)
        async with pump.online(service) as line, other.online(service) as other_line:
            await other_line.publish("state", {"relay": "OFF", "by": "button"}, retain=True)
            await line.publish("state", {"relay": "OFF", "by": "boot"}, retain=True)
            await line.next_command("ON")
            await settled(api, pump, "FIRED_LATE")
            await settled(api, other, "SUPERSEDED")
            assert await other_line.drain_commands(api) == []


async def test_a_silence_that_nobody_could_hear_switches_nothing(service: Service, owner: ApiClient) -> None:
    pump = await create_device(owner)
    silent = [{"metric": "flow", "comparator": "silent", "value": 4}]
    async with pump.online(service) as line:
        await line.report(flow=1)
        await owner.wait_until(f"{pump.path}/telemetry/latest", lambda found: found["telemetry"])
        await owner.post(
            f"{pump.path}/rules", {"name": "No flow", "conditions": silent, "action": {"command": "OFF"}}, expect=201
        )
    service.kill()
    await asyncio.sleep(6)
    service.start()
    async with service.api() as api:
        await service.sign_in_again(api)
        await asyncio.sleep(5)
        assert (await api.get(f"{pump.path}/executions"))["data"] == []
        async with pump.online(service) as line:
            await line.report(flow=2)
            await line.next_command("OFF")  # four seconds later: from now on its silence counts
        [rule] = await api.get(f"{pump.path}/rules")
        assert rule["lastMatched"] is True


async def test_an_answer_to_nobody_may_still_come(service: Service, owner: ApiClient) -> None:
    """The command was sent and its deadline passed while the service was away; the board says then what became of it."""
    pump = await create_device(owner)
    async with pump.online(service, auto_reply=False) as line:
        sent = await owner.post(f"{pump.path}/command", {"cmd": "ON", "ttlSeconds": 3})
        await line.next_command("ON")
        await owner.wait_until(f"{pump.path}/executions/{sent['executionId']}", lambda found: found["status"] == "SENT")
        service.kill()
    await asyncio.sleep(4)
    service.start()
    async with service.api() as api:
        await service.sign_in_again(api)
        await asyncio.sleep(1)
        async with pump.online(service, auto_reply=False) as line:
            await line.publish("result", {"id": sent["executionId"], "status": "done", "relay": "ON"})
            await api.wait_until(f"{pump.path}/executions/{sent['executionId']}", lambda found: found["status"] == "DONE")
