"""A device's slots in the words of its firmware."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from adapters.mqtt.codec import ProfileDispatchingDeviceCodec
from domain.devices.messages import DeviceClockReadyReport, DevicePlanRevisionReport, PlanRow
from domain.devices.model import FirmwareProfile
from domain.kernel.ids import DeviceId

codec = ProfileDispatchingDeviceCodec()
DEVICE = DeviceId("dev_0123456789abcdefghij")
NOW = datetime(2026, 3, 2, 5, 0, tzinfo=UTC)  # a Monday
NOW_MS = int(NOW.timestamp()) * 1000


def at(day: int, hour: int, minute: int, second: int = 0) -> int:
    return int(datetime(2026, 3, day, hour, minute, second, tzinfo=UTC).timestamp())


def reported(profile: FirmwareProfile, *rows: PlanRow, revision: int = 7) -> list[tuple[str, str]]:
    return [(each.topic, each.payload.decode()) for each in codec.encode_plan(profile, DEVICE, revision, rows, NOW_MS)]


def steps(*rows: PlanRow) -> list[str]:
    messages = reported(FirmwareProfile.TASMOTA, *rows)
    assert {topic for topic, _ in messages} == {"cmnd/Backlog0"}
    assert max(len(payload) for _, payload in messages) < 500
    return [step for _, payload in messages for step in payload.split("; ")]


def calls(*rows: PlanRow) -> list[dict[str, Any]]:
    messages = codec.encode_plan_jobs(DEVICE, 7, rows, NOW_MS)
    assert {message.topic for message in messages} <= {"rpc"}
    return [json.loads(message.payload) for message in messages]


def test_a_slot_becomes_two_timers_of_one_run_on_their_day_in_utc() -> None:
    found = steps((1, at(2, 6, 30), at(4, 22, 5), True, 1))
    assert found[:4] == ["Timezone 0", "Timers 1", "Timer1 0", "Timer2 0"]
    on, off = (json.loads(step.partition(" ")[2]) for step in found[4:6])
    assert found[4].startswith("Timer3 ")
    shared = {"Enable": 1, "Arm": 1, "Mode": 0, "Window": 0, "Repeat": 0, "Output": 1}
    assert on == shared | {"Time": "06:30", "Days": "0100000", "Action": 1}
    assert off == shared | {"Time": "22:05", "Days": "0001000", "Action": 0}
    assert found[6:] == [*(f"Timer{number} 0" for number in range(5, 11)), f"Publish devices/{DEVICE}/stat/PLAN 7"]


@pytest.mark.parametrize("row", [(0, at(2, 4, 0), at(2, 6, 0), True, 1), (0, at(2, 6, 0), at(2, 4, 0), True, 1)])
def test_a_past_edge_is_not_sent(row: PlanRow) -> None:
    assert sum("Enable" in step for step in steps(row)) == 1
    assert sum(call["method"] == "Schedule.Create" for call in calls(row)) == 1


def test_a_plan_with_an_edge_that_is_too_near_is_not_confirmed() -> None:
    row = (0, at(2, 5, 0, 59), at(2, 6, 0), True, 1)
    assert not any("PLAN" in step for step in steps(row))
    assert not any(call["method"] == "Schedule.List" for call in calls(row))


def test_a_disabled_slot_is_cleared() -> None:
    row = (0, at(2, 6, 0), at(2, 7, 0), False, 1)
    assert not any("Enable" in step for step in steps(row))
    assert [call["method"] for call in calls(row)] == ["Schedule.DeleteAll", "Schedule.List"]


def test_a_slot_becomes_two_jobs_on_their_second_in_utc() -> None:
    wipe, on, off, check = calls((0, at(2, 6, 30, 5), at(9, 8, 0), True, 1))
    assert wipe["method"] == "Schedule.DeleteAll"
    assert on["params"] == {
        "enable": True,
        "timespec": "5 30 6 2 3 *",
        "calls": [{"method": "Switch.Set", "params": {"id": 0, "on": True}}],
    }
    assert off["params"]["timespec"] == "0 0 8 9 3 *"
    assert (check["method"], check["id"]) == ("Schedule.List", "plan:7:2")
    assert {call["src"] for call in (wipe, on, off, check)} == {f"devices/{DEVICE}/answer"}


def test_a_shelly_loses_its_jobs_and_sets_its_zone_before_it_gets_a_plan() -> None:
    wipe, clock = (
        json.loads(payload) for _, payload in reported(FirmwareProfile.SHELLY, (0, at(2, 6, 30, 5), at(9, 8, 0), True, 1))
    )
    assert wipe["method"] == "Schedule.DeleteAll"
    assert (clock["id"], clock["method"]) == ("plan-clock:7", "Sys.SetConfig")
    assert clock["params"] == {"config": {"location": {"tz": "Etc/UTC"}}}


def answered(name: str, **answer: Any) -> list[Any]:
    payload = json.dumps({"id": name, "src": "shellyplus1-aabbcc", "dst": "x", **answer}).encode()
    return list(codec.decode(FirmwareProfile.SHELLY, "answer/rpc", payload, False))


def test_a_shelly_holds_a_plan_when_it_lists_every_job() -> None:
    assert answered("plan:7:2", result={"jobs": [{"id": 1}, {"id": 2}], "rev": 4}) == [DevicePlanRevisionReport(7)]
    assert answered("plan:7:2", result={"jobs": [{"id": 1}], "rev": 4}) == [DevicePlanRevisionReport(0)]
    assert answered("plan:7:2", error={"code": -103, "message": "no"}) == [DevicePlanRevisionReport(0)]
    assert answered("plan-clock:7", error={"code": -103, "message": "no such zone"}) == [DevicePlanRevisionReport(0)]
    assert answered("plan-clock:7", result={"restart_required": False}) == [DeviceClockReadyReport(7)]
    assert answered("plan-clock:7", result={"restart_required": True}) == [DevicePlanRevisionReport(0)]
    assert answered("plan-clock:7") == [DevicePlanRevisionReport(0)]
    assert answered("plan-step", error={"code": -103, "message": "full"}) == []
    assert answered("plan:7", result={"jobs": []}) == [DevicePlanRevisionReport(0)]
    for odd in ("plan:", "plan:x:1", "plan-clock", "plan-clock:", "plan-clock:x", "plan:" + "9" * 50 + ":1"):
        assert answered(odd, result={"jobs": []}) == []


def test_tasmota_says_which_plan_it_holds() -> None:
    assert codec.decode(FirmwareProfile.TASMOTA, "stat/PLAN", b"12", False) == (DevicePlanRevisionReport(12),)
    for odd in (b"", b"-1", b"1.5", b"9" * 16, b"x"):
        assert not any(
            isinstance(report, DevicePlanRevisionReport)
            for report in codec.decode(FirmwareProfile.TASMOTA, "stat/PLAN", odd, False)
        )


def test_esphome_holds_no_plan_and_our_own_firmware_one_message() -> None:
    assert reported(FirmwareProfile.ESPHOME, (0, at(2, 6, 0), at(2, 7, 0), True, 1)) == []
    [message] = codec.encode_plan(FirmwareProfile.NATIVE, DEVICE, 7, ((0, 1, 2, True, 1),), NOW_MS)
    assert (message.topic, message.payload, message.retain) == ("sched", b'{"rev":7,"s":[[0,1,2,true]]}', True)
