"""Stock firmware with the real service: its messages become the same events, and commands are sent in its own format."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.firmware import EspHome, Firmware, OldEspHome, Shelly, Tasmota, register_stock_device, run_firmware
from support.service import ApiClient, Service

KINDS: dict[str, type[Firmware]] = {"tasmota": Tasmota, "esphome": EspHome, "shelly": Shelly}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Service(tmp_path_factory.mktemp("stock")) as service:
        yield service


@pytest.fixture
async def owner(service: Service) -> AsyncIterator[ApiClient]:
    async with service.api() as api:
        yield api


async def state(owner: ApiClient, device: Any, wanted: Any) -> Any:
    return await owner.wait_until(f"/devices/{device.device_id}", wanted)


async def order(owner: ApiClient, device: Any, cmd: str, wait_s: int = 10, **more: Any) -> dict[str, Any]:
    answer = await owner.post(f"{device.path}/command", {"cmd": cmd, "waitSeconds": wait_s, **more})
    found: dict[str, Any] = await owner.get(f"{device.path}/executions/{answer['executionId']}")
    return found


@pytest.mark.parametrize("kind", KINDS)
async def test_stock_firmware_connects_switches_and_disconnects(service: Service, owner: ApiClient, kind: str) -> None:
    device = await register_stock_device(owner, kind)
    async with service.feed(owner, f"?deviceId={device.device_id}") as feed:
        async with run_firmware(KINDS[kind], device, service) as plug:
            await feed.wait_for("device_online")
            await state(owner, device, lambda found: found["relayState"] == "OFF" or found["relayState"] is False)
            for cmd, relay in (("ON", "ON"), ("TOGGLE", "OFF"), ("ON", "ON"), ("OFF", "OFF")):
                assert (await order(owner, device, cmd))["status"] == "DONE"
                assert plug.relay is (relay == "ON")
                assert (await feed.wait_for("relay_changed", relay=relay))["triggeredBy"] == "user"
            assert (await order(owner, device, "OFF"))["status"] == "DONE", "what is so already is done"
        await feed.wait_for("device_offline")
    assert not service.error_lines()


@pytest.mark.parametrize("board", [EspHome, OldEspHome])
async def test_a_board_that_hangs_is_never_done_because_of_what_it_said_before(
    service: Service, owner: ApiClient, board: type[EspHome]
) -> None:
    device = await register_stock_device(owner, "esphome")
    async with run_firmware(board, device, service) as plug:
        assert (await order(owner, device, "ON"))["status"] == "DONE"
        plug.unresponsive = True
        ended = await order(owner, device, "ON", wait_s=5, ttlSeconds=1)
        assert (ended["status"], ended["result"]["code"]) == ("TIMED_OUT", "NO_ANSWER")
        plug.unresponsive = False
        await plug.publish("switch/relay/state", "OFF", retain=True)
        plug.relay = False
        assert (await order(owner, device, "ON"))["status"] == "DONE"


async def test_tasmota_is_done_when_its_answer_and_its_relay_say_so(service: Service, owner: ApiClient) -> None:
    device = await register_stock_device(owner, "tasmota")
    for name in ("DIMMER", "DIMER", "POWER2", "UPGRADE"):
        await owner.post(f"{device.path}/commands", {"name": name, "label": name}, expect=201)
    async with run_firmware(Tasmota, device, service) as plug:
        done = await order(owner, device, "DIMMER", params=60)
        assert (done["status"], done["result"]["data"]["Dimmer"]) == ("DONE", 60)
        failed = await order(owner, device, "DIMER", params=60)
        assert (failed["status"], failed["result"]["code"]) == ("FAILED", "UNKNOWN_COMMAND")
        assert (await order(owner, device, "ON"))["status"] == "DONE"
        plug.locked = True
        for cmd in ("OFF", "TOGGLE"):
            locked = await order(owner, device, cmd)
            assert (locked["status"], locked["result"]["code"]) == ("FAILED", "STATE_MISMATCH"), cmd
            assert locked["result"]["relay"] == "ON"
        begun = await order(owner, device, "UPGRADE", params=1, wait_s=1, ttlSeconds=60)
        assert begun["status"] == "ACKED"
        await plug.publish("stat/UPGRADE", {"Upgrade": "Successful. Restarting"})
        await plug.publish("tele/INFO1", {"Info1": {"Module": "Basic", "Version": "15.1.0(tasmota)"}})
        path = f"{device.path}/executions/{begun['executionId']}"
        ended = await owner.wait_until(path, lambda found: found["status"] != "ACKED")
        assert (ended["status"], ended["result"]["data"]["Version"]) == ("DONE", "15.1.0(tasmota)")


async def test_a_stale_status_of_shelly_is_asked_again_and_switches_nothing_back(service: Service, owner: ApiClient) -> None:
    device = await register_stock_device(owner, "shelly")
    async with run_firmware(Shelly, device, service, publishes_stale_status=True) as plug:
        await state(owner, device, lambda found: found["relayState"] is not None)
        async with service.feed(owner, f"?deviceId={device.device_id}&types=relay_changed") as feed:
            done = await order(owner, device, "ON")
            assert (done["status"], done["result"]["relay"]) == ("DONE", "ON")
            assert (await feed.wait_for("relay_changed"))["relay"] == "ON"
            await plug.wait_for(lambda topic, payload: "Switch.GetStatus" in payload)
            assert (await order(owner, device, "STATUS"))["status"] == "DONE", "so everything before it has been read"
            changes = await owner.get("/events", params={"deviceId": device.device_id, "type": "relay_changed"})
            assert [event["description"] for event in changes["data"]][:1] == ["Relay is ON"]
            assert (await owner.get(device.path))["relayState"] in ("ON", True)


async def test_a_shelly_without_notifications_is_known_by_its_answers(service: Service, owner: ApiClient) -> None:
    device = await register_stock_device(owner, "shelly")
    async with run_firmware(Shelly, device, service, notifies=False):
        for cmd, relay in (("ON", ("ON", True)), ("TOGGLE", ("OFF", False))):
            assert (await order(owner, device, cmd))["status"] == "DONE"
            assert (await owner.get(device.path))["relayState"] in relay


async def test_what_stock_firmware_reports_beside_its_relay_is_kept_or_told(service: Service, owner: ApiClient) -> None:
    meter = await register_stock_device(owner, "shelly")
    async with run_firmware(Shelly, meter, service) as plug:
        await plug.publish(
            "status/em:0", {"id": 0, "total_act_power": 2484.7, "n_current": None, "a_errors": ["power_meter_failure"]}
        )
        await plug.publish("status/script:1", {"id": 1, "running": True, "error_msg": "x" * 300})
        found = await owner.wait_until(
            f"{meter.path}/telemetry/latest",
            lambda answer: any(one["metric"] == "script1.running" for one in answer["telemetry"]),
        )
        kept = {one["metric"]: one["value"] if one["value"] is not None else one["valueText"] for one in found["telemetry"]}
        assert (kept["em0.total_act_power"], kept["em0.a_errors.1"]) == (2484.7, "power_meter_failure")
        page = await owner.wait_until(
            f"/events?deviceId={meter.device_id}&type=device_message_dropped", lambda page: page["data"]
        )
        assert page["data"][0]["description"].endswith("last: status/script:1, script1.error_msg")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_button_press_is_logged_as_triggered_by_the_device(service: Service, owner: ApiClient, kind: str) -> None:
    device = await register_stock_device(owner, kind)
    async with run_firmware(KINDS[kind], device, service) as plug, service.feed(owner, f"?deviceId={device.device_id}") as feed:
        await state(owner, device, lambda found: found["relayState"] is not None)
        plug.relay = True
        if kind == "tasmota":
            await plug.publish_power()
        elif kind == "esphome":
            await plug.publish("switch/relay/state", "ON", retain=True)
        else:
            await plug.notify({"output": True}, source="switch")
        assert (await feed.wait_for("relay_changed", relay="ON"))["triggeredBy"] == "device"


@pytest.mark.parametrize("kind", ["tasmota", "shelly"])
async def test_a_command_without_a_result_times_out(service: Service, owner: ApiClient, kind: str) -> None:
    device = await register_stock_device(owner, kind)
    async with run_firmware(KINDS[kind], device, service, unresponsive=True):
        await state(owner, device, lambda found: found["isOnline"])
        assert (await order(owner, device, "ON", wait_s=5, ttlSeconds=1))["status"] == "TIMED_OUT"


async def latest(owner: ApiClient, device: Any, count: int) -> dict[str, Any]:
    path = f"{device.path}/telemetry/latest"
    found = await owner.wait_until(path, lambda answer: len(answer["telemetry"]) >= count)
    return {each["metric"]: each["value"] if each["value"] is not None else each["valueText"] for each in found["telemetry"]}


async def test_tasmota_sensors_become_flat_metrics(service: Service, owner: ApiClient) -> None:
    device = await register_stock_device(owner, "tasmota")
    async with run_firmware(Tasmota, device, service) as plug:
        await plug.wait_for(lambda topic, payload: topic == "cmnd/STATE")
        sensor = {"Time": "2026-03-02T06:00:00", "DS18B20": {"Id": "01131B123456", "Temperature": 21.5}, "TempUnit": "C"}
        await plug.publish("tele/SENSOR", sensor)
        energy = {"ENERGY": {"TotalStartTime": "2025-01-01T00:00:00", "Total": 11.9, "Power": 18, "Voltage": 231}}
        await plug.publish("tele/SENSOR", {"Time": "2026-03-02T06:00:01", **energy})
        wanted = {"DS18B20.Temperature": 21.5, "ENERGY.Total": 11.9, "ENERGY.Power": 18, "ENERGY.Voltage": 231, "Wifi.RSSI": 72}
        found = await owner.wait_until(
            f"{device.path}/telemetry/latest", lambda answer: wanted.keys() <= {each["metric"] for each in answer["telemetry"]}
        )
        values = {each["metric"]: each["value"] for each in found["telemetry"]}
        assert {name: values[name] for name in wanted} == wanted


async def test_esphome_sensors_become_metrics_and_nan_is_dropped(service: Service, owner: ApiClient) -> None:
    device = await register_stock_device(owner, "esphome")
    async with run_firmware(EspHome, device, service) as plug:
        await plug.publish("sensor/room_temperature/state", "20.75", retain=True)
        await plug.publish("binary_sensor/door/state", "ON")
        await plug.publish("text_sensor/mode/state", "eco")
        assert await latest(owner, device, 3) == {"room_temperature": 20.75, "door": 1, "mode": "eco"}


async def test_partial_notifications_of_shelly_change_only_their_fields(service: Service, owner: ApiClient) -> None:
    device = await register_stock_device(owner, "shelly")
    async with run_firmware(Shelly, device, service) as plug:
        await order(owner, device, "ON")
        assert (await latest(owner, device, 4))["apower"] == 18.4
        await plug.notify({"apower": 40.5})
        await owner.wait_until(
            f"{device.path}/telemetry/latest",
            lambda answer: any(each["metric"] == "apower" and each["value"] == 40.5 for each in answer["telemetry"]),
        )
        assert (await latest(owner, device, 4))["voltage"] == 231.2
        assert (await owner.get(device.path))["relayState"] in ("ON", True)


async def test_an_rpc_error_of_shelly_is_a_failure_with_its_code(service: Service, owner: ApiClient) -> None:
    device = await register_stock_device(owner, "shelly")
    async with run_firmware(Shelly, device, service) as plug:

        async def refuse(method: str, params: dict[str, Any]) -> Any:
            raise LookupError("No handler for Switch.Set")

        plug.execute = refuse
        done = await order(owner, device, "ON")
        assert (done["status"], done["result"]["code"]) == ("FAILED", "404")


async def test_tasmota_commands_can_be_defined_and_cannot_carry_a_second_one(service: Service, owner: ApiClient) -> None:
    device = await register_stock_device(owner, "tasmota")
    await owner.post(f"{device.path}/commands", {"name": "POWER2", "label": "Second relay"}, expect=201)
    async with run_firmware(Tasmota, device, service) as plug:
        assert (await order(owner, device, "POWER2", params="ON"))["status"] == "DONE"
        await plug.wait_for(lambda topic, payload: payload.startswith("POWER2 ON; Publish"))
        done = await order(owner, device, "POWER2", params="ON; Reset 1")
        assert (done["status"], done["result"]["code"]) == ("FAILED", "UNSUPPORTED")
        assert not any("Reset" in payload for _, payload in plug.received)


async def test_a_slot_is_written_to_tasmota_timers_and_removed_again(service: Service, owner: ApiClient) -> None:
    device = await register_stock_device(owner, "tasmota")
    on_ts = int(time.time()) // 60 * 60 + 600
    slot = await owner.post(f"{device.path}/schedules", {"slot": 1, "onTs": on_ts, "offTs": on_ts + 600}, expect=201)
    assert slot["firmwareSynced"] is False
    async with run_firmware(Tasmota, device, service) as plug:
        [held] = await owner.wait_until(f"{device.path}/schedules", lambda found: found[0]["firmwareSynced"])
        assert held["slot"] == 1
        assert plug.timezone == "0"
        at = time.gmtime(on_ts)
        assert (plug.timers[3]["Time"], plug.timers[3]["Action"]) == (f"{at.tm_hour:02}:{at.tm_min:02}", 1)
        assert plug.timers[3]["Days"].index("1") == (at.tm_wday + 1) % 7
        assert plug.timers[4]["Action"] == 0
        await owner.delete(f"{device.path}/schedules/1")
        await plug.wait_for(lambda topic, payload: "PLAN 2" in payload)
        assert not any(plug.timers.values())


async def test_a_slot_is_written_to_shelly_schedules(service: Service, owner: ApiClient) -> None:
    device = await register_stock_device(owner, "shelly")
    async with run_firmware(Shelly, device, service) as plug:
        await state(owner, device, lambda found: found["isOnline"])
        on_ts = int(time.time()) + 3_601
        await owner.post(f"{device.path}/schedules", {"slot": 0, "onTs": on_ts, "offTs": on_ts + 60}, expect=201)
        await owner.wait_until(f"{device.path}/schedules", lambda found: found[0]["firmwareSynced"])
        at = time.gmtime(on_ts)
        assert plug.jobs[0]["timespec"] == f"{at.tm_sec} {at.tm_min} {at.tm_hour} {at.tm_mday} {at.tm_mon} *"
        assert [job["calls"][0]["params"] for job in plug.jobs] == [{"id": 0, "on": True}, {"id": 0, "on": False}]
        assert plug.timezone == "Etc/UTC"


async def test_a_shelly_gets_its_jobs_only_after_it_has_confirmed_its_time_zone(service: Service, owner: ApiClient) -> None:
    device = await register_stock_device(owner, "shelly")
    async with run_firmware(Shelly, device, service, zones=(), timezone="Europe/Berlin") as plug:
        await state(owner, device, lambda found: found["isOnline"])
        on_ts = int(time.time()) + 3_600
        await owner.post(f"{device.path}/schedules", {"slot": 0, "onTs": on_ts, "offTs": on_ts + 60}, expect=201)
        for _ in range(2):  # the refusal makes the service send the plan once more
            await plug.wait_for(lambda topic, payload: topic == "rpc" and json.loads(payload)["method"] == "Sys.SetConfig")
            assert (await order(owner, device, "STATUS"))["status"] == "DONE", "so the answers before it have been read"
        [slot] = await owner.get(f"{device.path}/schedules")
        assert slot["firmwareSynced"] is False
        assert (plug.jobs, plug.timezone) == ([], "Europe/Berlin")
