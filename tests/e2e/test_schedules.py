"""Schedule slots of the real program: their life, missed edges, and clock jumps.

The program runs on a clock that the tests set, so that no test waits for minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import httpx
import pytest

from domain.kernel.clock import to_iso
from support.adjustable_clock import AdjustableClock
from support.device import Device, create_device
from support.service import PASSWORD, ApiClient, Service
from support.waiting import TIMEOUT_S

HOUR, DAY = 3_600, 86_400
AHEAD_S = 300
"""An edge is so far ahead when it is set; the test moves the clock there."""
FIRED = ("FIRED", "FIRED_LATE")
"""The second if it took two seconds or more."""
_clocks: dict[int, AdjustableClock] = {}
_numbers = count(1)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("scheduled")
    clock = AdjustableClock(folder)
    with Service(folder / "service", clock.shim_folder, LATCHBOARD_INGEST_LIMIT=0) as service:
        _clocks[id(service)] = clock
        yield service


@pytest.fixture
def clock(running: Service) -> AdjustableClock:
    return _clocks[id(running)]


async def put(owner: ApiClient, device: Device, on_ts: int, off_ts: int, **more: Any) -> dict[str, Any]:
    body = {"slot": 0, "onTs": on_ts, "offTs": off_ts, **more}
    made: dict[str, Any] = await owner.post(f"{device.path}/schedules", body, expect=201)
    return made


async def reported(owner: ApiClient, device: Device) -> list[tuple[str, str]]:
    """(type, description) of the device's schedule events, oldest first."""
    log = await owner.get(f"{device.path}/events", params={"limit": 200})
    kinds = ("schedule_fired", "schedule_skipped")
    return [(one["eventType"], one["description"]) for one in reversed(log) if one["eventType"] in kinds]


async def dead_for(service: Service, owner: ApiClient, clock: AdjustableClock, seconds: int) -> None:
    service.kill()
    clock.step(seconds)
    await asyncio.to_thread(service.start)
    await service.sign_in_again(owner)


async def pass_over(service: Service, owner: ApiClient, clock: AdjustableClock, seconds: int = AHEAD_S) -> None:
    """Move the clock. The schedule worker sleeps on the real clock and wakes when a slot is saved."""
    clock.step(seconds)
    await service.sign_in_again(owner)
    far = clock.now() + 9 * DAY
    await put(owner, await create_device(owner, "Other"), far, far + 60)


async def test_a_slot_shows_each_state_of_its_life(service: Service, owner: ApiClient, clock: AdjustableClock) -> None:
    pump = await create_device(owner)
    path, now = f"{pump.path}/schedules", clock.now()
    made = await put(
        owner,
        pump,
        now + AHEAD_S,
        now + 2 * AHEAD_S,
        label="Dawn",
        misfire="SKIP",
        misfireGraceSeconds=61,
        timezone="Europe/Berlin",
    )
    assert {"slot": 0, "status": "PENDING", "lastFiredAt": None, "lastOutcome": None, "enabled": True}.items() <= made.items()
    assert await owner.get(path) == [made]
    async with pump.online(service) as line, service.feed(owner, f"?deviceId={pump.device_id}") as feed:
        await pass_over(service, owner, clock)
        await line.next_command("ON")
        fired = await feed.wait_for("schedule_fired")
        assert {"slot": 0, "edge": "on", "command": "ON", "scheduleId": made["scheduleId"]}.items() <= fired.items()
        [active] = await owner.get(path)
        assert (active["status"], active["lastOutcome"] in FIRED) == ("ACTIVE", True)
        assert active["lastFiredAt"] is not None
        assert (await feed.wait_for("relay_changed", relay="ON"))["triggeredBy"] == "schedule"
        await pass_over(service, owner, clock)
        await line.next_command("OFF")
        await feed.wait_for("schedule_fired", edge="off")
        [over] = await owner.wait_until(f"{path}/history", lambda ended: ended)
        assert (over["scheduleId"], over["status"], over["nextFireAt"]) == (made["scheduleId"], "COMPLETED", None)
        assert await owner.get(path) == []
        assert await line.drain_commands(owner) == []


async def test_a_slot_is_replaced_changed_both_ways_and_cancelled(
    service: Service, owner: ApiClient, clock: AdjustableClock
) -> None:
    pump = await create_device(owner)
    path, later = f"{pump.path}/schedules", clock.now() + HOUR
    first = await put(owner, pump, later, later + 60)
    second = await put(owner, pump, later + 60, later, onCommand={"command": "TOGGLE", "params": None})
    assert first["scheduleId"] != second["scheduleId"]
    by_path = await owner.call("PUT", f"{path}/0", {"label": "Dusk", "offTs": later + 90}, 200)
    by_body = await owner.call("PUT", path, {"slot": 0, "enabled": False}, 200)
    assert by_path["scheduleId"] == by_body["scheduleId"] == second["scheduleId"]
    assert (by_body["label"], by_body["offTs"], by_body["enabled"], by_body["nextFireAt"]) == ("Dusk", later + 90, False, None)
    filled = await owner.call("PUT", f"{path}/4", {"onTs": later, "offTs": later + 9}, 200)
    assert [slot["slot"] for slot in await owner.get(path)] == [0, 4]
    assert await owner.delete(f"{path}/0") == {"ok": True}
    assert await owner.get(path) == [filled]
    history = await owner.get(f"{path}/history")
    assert [(one["scheduleId"], one["status"]) for one in history] == [
        (second["scheduleId"], "CANCELLED"),
        (first["scheduleId"], "CANCELLED"),
    ]
    assert {one["name"] for one in (await owner.get(f"{path}/context"))["commands"]} >= {"ON", "OFF", "TOGGLE", "STATUS"}


async def test_an_edge_missed_while_the_service_was_dead_runs_late_within_its_grace(
    service: Service, owner: ApiClient, clock: AdjustableClock
) -> None:
    pump = await create_device(owner)
    await put(owner, pump, clock.now() + 30, clock.now() + DAY, misfireGraceSeconds=300)
    await dead_for(service, owner, clock, 200)
    async with pump.online(service) as line:
        await line.next_command("ON")
    [slot] = await owner.get(f"{pump.path}/schedules")
    assert (slot["status"], slot["lastOutcome"]) == ("ACTIVE", "FIRED_LATE")
    assert [kind for kind, _ in await reported(owner, pump)] == ["schedule_fired"]


@pytest.mark.parametrize("policy", [{"misfireGraceSeconds": 100}, {"misfire": "SKIP", "misfireGraceSeconds": 900}])
async def test_an_edge_missed_beyond_its_grace_is_logged_and_not_run(
    service: Service, owner: ApiClient, clock: AdjustableClock, policy: dict[str, Any]
) -> None:
    pump = await create_device(owner)
    await put(owner, pump, clock.now() + 30, clock.now() + DAY, **policy)
    await dead_for(service, owner, clock, 200)
    [slot] = await owner.wait_until(f"{pump.path}/schedules", lambda slots: slots[0]["lastOutcome"])
    assert (slot["status"], slot["lastOutcome"], slot["lastFiredAt"]) == ("PENDING", "MISSED", None)
    assert slot["nextFireAt"] is not None
    [(kind, why)] = await reported(owner, pump)
    assert kind == "schedule_skipped"
    assert "did not switch on" in why
    async with pump.online(service) as line:
        assert await line.drain_commands(owner) == []


async def test_of_several_missed_edges_only_the_latest_runs(service: Service, owner: ApiClient, clock: AdjustableClock) -> None:
    pump, often = await create_device(owner, "Once"), await create_device(owner, "Often")
    now = clock.now()
    await put(owner, pump, now + 30, now + 60)
    await put(owner, often, now + 30, now + 40, rrule="FREQ=MINUTELY;INTERVAL=4")
    await dead_for(service, owner, clock, 620)
    await owner.wait_until(f"{pump.path}/schedules/history", lambda ended: ended)
    await owner.wait_until(f"{often.path}/schedules", lambda slots: slots[0]["lastOutcome"])
    async with pump.online(service) as line, often.online(service) as other:
        assert await line.drain_commands(owner) == ["OFF"]
        assert await other.drain_commands(owner) == ["OFF"]
    assert [kind for kind, _ in await reported(owner, pump)] == ["schedule_skipped", "schedule_fired"]
    (_, passed), (_, ran) = await reported(owner, often)
    assert "missed edge(s) skipped" in passed
    assert "switched off" in ran


async def test_a_clock_jump_neither_loses_nor_repeats_an_edge(service: Service, owner: ApiClient, clock: AdjustableClock) -> None:
    pump = await create_device(owner)
    now = clock.now()
    await put(owner, pump, now + AHEAD_S, now + 2 * HOUR, slot=0, misfire="SKIP")
    await put(
        owner, pump, now + HOUR // 2, now + 3 * HOUR, slot=1, misfire="SKIP", onCommand={"command": "TOGGLE", "params": None}
    )
    async with pump.online(service) as line:
        await jump(service, owner, pump, clock, AHEAD_S)
        await line.next_command("ON")
        await jump(service, owner, pump, clock, HOUR)
        await line.next_command("TOGGLE")
        await jump(service, owner, pump, clock, -HOUR)
        soon = clock.now() + AHEAD_S
        await put(owner, pump, soon, soon + HOUR, slot=2, onCommand={"command": "STATUS", "params": None})
        await jump(service, owner, pump, clock, AHEAD_S)
        await line.next_command("STATUS")
        await jump(service, owner, pump, clock, HOUR)
        await line.next_command("OFF")
        await jump(service, owner, pump, clock, -HOUR)
        assert await line.drain_commands(owner) == []
    assert [kind for kind, _ in await reported(owner, pump)] == ["schedule_fired"] * 4


async def jump(service: Service, owner: ApiClient, pump: Device, clock: AdjustableClock, seconds: int) -> None:
    """Set the clock and wake the schedule worker, which would notice it within 30 seconds."""
    clock.step(seconds)
    await service.sign_in_again(owner)
    await owner.call("PUT", f"{pump.path}/schedules/0", {"label": "again"}, 200)
    await asyncio.sleep(0.3)


async def test_a_slot_runs_any_command_but_none_that_needs_approval(
    service: Service, owner: ApiClient, clock: AdjustableClock
) -> None:
    pump = await create_device(owner)
    dim = {"name": "DIM", "label": "Dim", "paramsSchema": {"type": "object", "required": ["level"]}}
    flush = {"name": "FLUSH", "label": "Flush", "requiresApproval": True}
    dimmed = (await owner.post(f"{pump.path}/commands", dim, expect=201))["commandId"]
    await owner.post(f"{pump.path}/commands", flush, expect=201)
    later = clock.now() + AHEAD_S
    body = {"slot": 0, "onTs": later, "offTs": later + AHEAD_S}
    for order, code in (("FLUSH", "COMMAND_NEEDS_APPROVAL"), ("FLY", "UNKNOWN_COMMAND"), ("DIM", "INVALID_PARAMS")):
        refused = await owner.post(f"{pump.path}/schedules", body | {"onCommand": {"command": order}}, expect=400)
        assert refused["error"] == code
    dims = {"onCommand": {"command": "DIM", "params": {"level": 3}}, "offCommand": {"command": "DIM", "params": {"level": 0}}}
    await owner.post(f"{pump.path}/schedules", body | dims, expect=201)
    async with pump.online(service) as line:
        await pass_over(service, owner, clock)
        order = await line.next_command("DIM")
        await owner.patch(f"{pump.path}/commands/{dimmed}", {"requiresApproval": True})
        await pass_over(service, owner, clock)
        await owner.wait_until(f"{pump.path}/schedules/history", lambda ended: ended and ended[0]["lastOutcome"])
        assert await line.drain_commands(owner) == []
    assert order["params"] == {"level": 3}
    [over] = await owner.get(f"{pump.path}/schedules/history")
    assert over["lastOutcome"] == "SKIPPED_APPROVAL"


@asynccontextmanager
async def a_member(service: Service, owner: ApiClient) -> AsyncIterator[tuple[str, ApiClient]]:
    """The id of a new member, and an API client with their session."""
    person = {"email": f"member{next(_numbers)}@example.com", "name": "Mo", "role": "Member", "password": PASSWORD}
    member = await owner.post("/members", person, expect=201)
    async with httpx.AsyncClient(base_url=f"{service.url}/api/v1", timeout=TIMEOUT_S) as raw:
        signed_in = (await raw.post("/auth/login", json={"email": person["email"], "password": PASSWORD})).json()
        yield member["membershipId"], ApiClient(raw, {"Authorization": f"Bearer {signed_in['accessToken']}"})


async def test_a_members_slot_needs_a_grant_when_it_is_set_and_when_it_runs(
    service: Service, owner: ApiClient, clock: AdjustableClock
) -> None:
    pump = await create_device(owner)
    async with a_member(service, owner) as (membership_id, mo):
        later = clock.now() + AHEAD_S
        body = {"slot": 0, "onTs": later, "offTs": later + AHEAD_S}
        assert (await mo.post(f"{pump.path}/schedules", body, expect=403))["error"] == "GRANT_MISSING"
        terms = {"commands": ["ON", "OFF"], "membershipId": membership_id}
        grant = await owner.post(f"{pump.path}/grants", terms, expect=201)
        await mo.post(f"{pump.path}/schedules", body, expect=201)
    async with pump.online(service) as line:
        await pass_over(service, owner, clock)
        await line.next_command("ON")
        await owner.delete(f"{pump.path}/grants/{grant['grantId']}")
        await pass_over(service, owner, clock)
        [over] = await owner.wait_until(f"{pump.path}/schedules/history", lambda ended: ended)
        assert await line.drain_commands(owner) == []
    assert over["lastOutcome"] == "SKIPPED_GRANT"
    assert [kind for kind, _ in await reported(owner, pump)] == ["schedule_fired", "schedule_skipped"]


async def test_a_members_slot_ends_with_a_grant_that_expires_and_with_the_membership(
    service: Service, owner: ApiClient, clock: AdjustableClock
) -> None:
    pump, valve = await create_device(owner, "Pump"), await create_device(owner, "Valve")
    soon, later = clock.now() + HOUR, clock.now() + 2 * HOUR
    async with a_member(service, owner) as (membership_id, mo):
        terms = {"commands": ["ON", "OFF"], "membershipId": membership_id}
        await owner.post(f"{pump.path}/grants", terms | {"expiresAt": to_iso(soon * 1000)}, expect=201)
        await owner.post(f"{valve.path}/grants", terms, expect=201)
        await put(mo, pump, later, later + DAY)
        await put(mo, valve, later, later + DAY)
        clock.step(2 * HOUR)
        await service.sign_in_again(owner)
        await woken(owner, pump, clock)
        assert await outcome(owner, pump) == ("PENDING", "SKIPPED_GRANT")
        assert await outcome(owner, valve) in [("ACTIVE", fired) for fired in FIRED]
    [(kind, why)] = await reported(owner, pump)
    assert kind == "schedule_skipped"
    assert "expired" in why
    await owner.delete(f"/members/{membership_id}")
    clock.step(DAY)
    await service.sign_in_again(owner)
    await woken(owner, pump, clock)
    [over] = await owner.wait_until(f"{valve.path}/schedules/history", lambda ended: ended)
    assert (over["status"], over["lastOutcome"]) == ("COMPLETED", "SKIPPED_GRANT")
    assert [kind for kind, _ in await reported(owner, valve)] == ["schedule_fired", "schedule_skipped"]


async def woken(owner: ApiClient, device: Device, clock: AdjustableClock) -> None:
    """Wake the schedule worker; it would look at the clock within 30 seconds."""
    far = clock.now() + 9 * DAY
    await owner.post(f"{device.path}/schedules", {"slot": 4, "onTs": far, "offTs": far + 9}, expect=201)


async def outcome(owner: ApiClient, device: Device) -> tuple[str, str]:
    slots = await owner.wait_until(f"{device.path}/schedules", lambda found: found[0]["lastOutcome"])
    return slots[0]["status"], slots[0]["lastOutcome"]
