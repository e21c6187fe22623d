"""A device that holds its slots runs them while it is offline; the service knows it and does not run them again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from support.adjustable_clock import AdjustableClock
from support.device import create_device
from support.firmware import Tasmota, register_stock_device, run_firmware
from support.service import ApiClient, Service

BEHIND_S = 10_000
"""The broker does not run on the clock that we set. So the service stays behind it: what a device reports is never from before its
slot was due."""

_clocks: dict[int, AdjustableClock] = {}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("away")
    clock = AdjustableClock(folder)
    with Service(folder / "service", clock.shim_folder) as service:
        clock.step(-BEHIND_S)
        _clocks[id(service)] = clock
        yield service


@pytest.fixture
async def owner(service: Service) -> AsyncIterator[ApiClient]:
    async with service.api() as api:
        await service.sign_in_again(api)
        yield api


async def pass_over(service: Service, owner: ApiClient, seconds: int) -> None:
    """Move the clock. The schedule worker sleeps on the real clock and wakes when a slot is saved."""
    clock, other = _clocks[id(service)], await create_device(owner, "Other")
    clock.step(seconds)
    later = clock.now() + 3_000
    await owner.post(f"{other.path}/schedules", {"slot": 0, "onTs": later, "offTs": later + 60}, expect=201)


async def test_native_firmware_runs_its_slot_offline_and_reports_it(service: Service, owner: ApiClient) -> None:
    clock, pump = _clocks[id(service)], await create_device(owner)
    path, on_ts = f"{pump.path}/schedules", clock.now() + 300
    slot = await owner.post(path, {"slot": 2, "onTs": on_ts, "offTs": on_ts + 3_600}, expect=201)
    assert slot["firmwareSynced"] is False
    async with pump.online(service) as line:
        plan = await line.wait_for_plan(lambda plan: plan["s"])
        assert plan["s"] == [[2, on_ts, on_ts + 3_600, True]]
        await line.publish("sched/rev", {"rev": plan["rev"] - 1}, retain=True)
        await line.publish("sched/rev", {"rev": plan["rev"]}, retain=True)
        await owner.wait_until(path, lambda found: found[0]["firmwareSynced"])
    await owner.wait_until(pump.path, lambda found: not found["isOnline"])
    await pass_over(service, owner, 400)
    [left] = await owner.wait_until(path, lambda found: found[0]["lastOutcome"] == "LEFT_TO_DEVICE")
    assert left["status"] == "PENDING"
    async with service.feed(owner, f"?deviceId={pump.device_id}") as feed, pump.online(service) as line:
        await line.publish("state", {"relay": "ON", "by": "sched"}, retain=True)
        assert (await feed.wait_for("relay_changed", relay="ON"))["triggeredBy"] == "schedule"
        fired = await feed.wait_for("schedule_fired")
        assert (fired["edge"], fired["lateSeconds"]) == ("on", 0)
        assert [each["type"] for each in feed.received].count("schedule_fired") == 1
        [ran] = await owner.get(path)
        assert (ran["status"], ran["lastOutcome"]) == ("ACTIVE", "RAN_ON_DEVICE")
        assert await line.drain_commands(owner) == []


async def test_a_device_that_lost_power_gets_its_edge_when_it_is_back_even_after_a_kill(
    service: Service, owner: ApiClient
) -> None:
    clock, pump = _clocks[id(service)], await create_device(owner)
    path, on_ts = f"{pump.path}/schedules", clock.now() + 300
    await owner.post(path, {"slot": 1, "onTs": on_ts, "offTs": on_ts + 3_600}, expect=201)
    async with pump.online(service) as line:
        plan = await line.wait_for_plan(lambda plan: plan["s"])
        await line.publish("sched/rev", {"rev": plan["rev"]}, retain=True)
        await owner.wait_until(path, lambda found: found[0]["firmwareSynced"])
    await owner.wait_until(pump.path, lambda found: not found["isOnline"])
    await pass_over(service, owner, 400)
    await owner.wait_until(path, lambda found: found[0]["lastOutcome"] == "LEFT_TO_DEVICE")
    await service.kill_and_restart()
    assert (await owner.get("/events", params={"type": "schedule_fired", "deviceId": pump.device_id}))["data"] == []
    async with service.feed(owner, f"?deviceId={pump.device_id}") as feed, pump.online(service) as line:
        await line.publish("state", {"relay": "OFF"}, retain=True)
        await line.next_command("ON")
        assert (await feed.wait_for("schedule_fired"))["lateSeconds"] >= 100
        await owner.wait_until(path, lambda found: found[0]["lastOutcome"] == "FIRED_LATE")


async def test_tasmota_runs_its_timer_offline_and_is_not_switched_again(service: Service, owner: ApiClient) -> None:
    clock, device = _clocks[id(service)], await register_stock_device(owner, "tasmota")
    path, on_ts = f"{device.path}/schedules", clock.now() // 60 * 60 + 300
    await owner.post(path, {"slot": 0, "onTs": on_ts, "offTs": on_ts + 3_600}, expect=201)
    async with run_firmware(Tasmota, device, service):
        await owner.wait_until(path, lambda found: found[0]["firmwareSynced"])
    await owner.wait_until(device.path, lambda found: not found["isOnline"])
    await pass_over(service, owner, 400)
    await owner.wait_until(path, lambda found: found[0]["lastOutcome"] == "LEFT_TO_DEVICE")
    async with run_firmware(Tasmota, device, service, relay=True) as plug:
        await owner.wait_until(device.path, lambda found: found["relayState"] in (True, "ON"))
        await owner.wait_until(path, lambda found: found[0]["lastOutcome"] == "RAN_ON_DEVICE")
        done = await owner.post(f"{device.path}/command", {"cmd": "STATUS", "waitSeconds": 30})
        assert done["status"] == "DONE"
        assert not any("Power1" in payload for _, payload in plug.received)
