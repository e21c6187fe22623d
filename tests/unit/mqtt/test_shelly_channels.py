"""Real Shelly devices of Gen2 to Gen4, by their whole status: their channels, the states of these, and the commands for them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from domain.devices.channels import ChannelKind, ChannelState, DeclaredChannel, InputAction
from domain.devices.messages import (
    ChannelReport,
    ChannelsReport,
    CommandResultReport,
    DeviceReport,
    InputReport,
    PresenceReport,
    RelayReport,
    StateQuestion,
    StockFirmwareTelemetryReport,
    UnreadableMessage,
)
from domain.devices.model import FirmwareProfile
from support.boards import DEVICE, NOW, Board, metrics, only, readings

SYSTEM: dict[str, Any] = {
    "ble": {},
    "cloud": {"connected": False},
    "mqtt": {"connected": True},
    "sys": {"mac": "A8032AB12345", "restart_required": False, "unixtime": 1772431200, "uptime": 501, "ram_free": 140000},
    "wifi": {"sta_ip": "192.168.2.30", "status": "got ip", "ssid": "home", "rssi": -53},
    "ws": {"connected": False},
}


def switch(number: int, on: bool = False) -> dict[str, Any]:
    energy = {"total": 11.2, "by_minute": [0.0, 0.0, 0.0], "minute_ts": 1772431200}
    measured = {"apower": 0.0, "voltage": 231.2, "current": 0.0, "aenergy": energy, "temperature": {"tC": 41.3, "tF": 106.3}}
    return {"id": number, "source": "init", "output": on, **measured}


COVER = {
    "id": 0,
    "source": "limit_switch",
    "state": "stopped",
    "apower": 0.0,
    "voltage": 233.3,
    "pos_control": True,
    "last_direction": "open",
    "current_pos": 40,
}
Channels = list[tuple[int | None, ChannelKind, str]]
MODELS: dict[str, tuple[dict[str, Any], Channels]] = {
    "Plug S": ({"switch:0": switch(0)}, [(1, ChannelKind.RELAY, "switch:0")]),
    "Plus 2PM": (
        {f"switch:{n}": switch(n, n == 1) for n in (0, 1)} | {f"input:{n}": {"id": n, "state": n == 0} for n in (0, 1)},
        [
            (1, ChannelKind.RELAY, "switch:0"),
            (2, ChannelKind.RELAY, "switch:1"),
            (None, ChannelKind.INPUT, "input:0"),
            (None, ChannelKind.INPUT, "input:1"),
        ],
    ),
    "Plus 2PM as a cover": (
        {"cover:0": COVER, "input:0": {"id": 0, "state": False}},
        [(1, ChannelKind.COVER, "cover:0"), (None, ChannelKind.INPUT, "input:0")],
    ),
    "Plus i4": (
        {f"input:{n}": {"id": n, "state": None} for n in range(3)} | {"input:3": {"id": 3, "percent": 40.0}},
        [(None, ChannelKind.INPUT, f"input:{n}") for n in range(3)],
    ),
    "Pro 4PM": (
        {f"switch:{n}": switch(n, n == 3) for n in range(4)} | {"eth": {"ip": None}},
        [(n + 1, ChannelKind.RELAY, f"switch:{n}") for n in range(4)],
    ),
    "Dimmer Gen3": (
        {"light:0": {"id": 0, "source": "init", "output": True, "brightness": 60.0}},
        [(1, ChannelKind.LEVEL, "light:0")],
    ),
    "Plus RGBW PM": (
        {"rgbw:0": {"id": 0, "source": "init", "output": True, "rgb": [255, 128, 0], "brightness": 50, "white": 120}},
        [(1, ChannelKind.COLOR, "rgbw:0")],
    ),
    "Plus RGBW PM as four lights": (
        {f"light:{n}": {"id": n, "source": "init", "output": False, "brightness": 10.0 * n} for n in range(4)},
        [(n + 1, ChannelKind.LEVEL, f"light:{n}") for n in range(4)],
    ),
    "Pro RGBWW PM": (
        {
            "cct:0": {"id": 0, "source": "init", "output": False, "brightness": 55, "ct": 3200},
            "rgb:0": {"id": 0, "source": "init", "output": True, "rgb": [0, 0, 255], "brightness": 20},
        },
        [(1, ChannelKind.COLOR, "rgb:0"), (None, ChannelKind.COLOR, "cct:0")],
    ),
    "Wall Display": (
        {"switch:0": switch(0), "thermostat:0": {"id": 0, "enable": True, "target_C": 21.5, "current_C": 20.4, "output": True}},
        [(1, ChannelKind.RELAY, "switch:0"), (None, ChannelKind.CLIMATE, "thermostat:0")],
    ),
    "Wall Display without a relay": (
        {"thermostat:0": {"id": 0, "enable": False, "target_C": 21.5, "current_C": 20.4, "output": False}},
        [(None, ChannelKind.CLIMATE, "thermostat:0")],
    ),
    "BLU TRV at its gateway": (
        {"blutrv:200": {"id": 200, "target_C": 19.0, "current_C": 20.4, "pos": 30, "rssi": -60, "battery": 96}},
        [(None, ChannelKind.CLIMATE, "blutrv:200")],
    ),
}
SENSORS: dict[str, dict[str, Any]] = {
    "Plus H&T": {
        "temperature:0": {"id": 0, "tC": 21.5, "tF": 70.7},
        "humidity:0": {"id": 0, "rh": 45.2},
        "devicepower:0": {"id": 0, "battery": {"V": 5.26, "percent": 96}},
    },
    "Flood Gen4": {"flood:0": {"id": 0, "alarm": True, "mute": False}, "devicepower:0": {"id": 0, "battery": {"percent": 80}}},
    "Plus Smoke": {"smoke:0": {"id": 0, "alarm": False, "mute": False}},
    "Pro 3EM": {"em:0": {"id": 0, "a_act_power": 951.2, "total_act_power": 2484.782}, "emdata:0": {"id": 0, "total_act": 3.3}},
    "Pro EM-50": {"em1:0": {"id": 0, "act_power": 210.0}, "em1:1": {"id": 1, "act_power": -20.0}},
    "PM Mini": {"pm1:0": {"id": 0, "apower": 110.2, "voltage": 230.1}},
}


class ShellyDevice(Board):
    def __init__(self) -> None:
        super().__init__(FirmwareProfile.SHELLY)

    def connects_as(self, components: dict[str, Any], config: dict[str, Any] | None = None) -> list[DeviceReport]:
        """It comes online and answers what it is asked."""
        answers = {"Shelly.GetConfig": config or {}, "Shelly.GetStatus": SYSTEM | components}
        presence, *questions = self.says("online", "true")
        assert presence == PresenceReport(True)
        asked = [json.loads(question.message.payload) for question in only(StateQuestion, questions)]
        assert {each["src"] for each in asked} == {f"devices/{DEVICE}/answer"}
        return [
            report for each in asked for report in self.says("answer/rpc", {"id": each["id"], "result": answers[each["method"]]})
        ]

    def notifies(self, component: str, **status: Any) -> list[DeviceReport]:
        params = {"ts": 1.0, component: status}
        return self.says("events/rpc", {"src": "s", "dst": "d", "method": "NotifyStatus", "params": params})

    def tells(self, *events: dict[str, Any], retain: bool = False) -> list[DeviceReport]:
        params = {"ts": 1.0, "events": [*events]}
        return self.says("events/rpc", {"src": "s", "dst": "d", "method": "NotifyEvent", "params": params}, retain)

    def call(self, cmd: str, params: Any = None, **channel: Any) -> tuple[str, dict[str, Any]] | None:
        messages = self.send(cmd, params, **channel)
        if not messages:
            return None
        [(topic, payload)] = messages
        request = json.loads(payload)
        assert (topic, request["id"]) == ("rpc", "exe_1")
        return request["method"], request["params"]


@pytest.fixture
def device() -> ShellyDevice:
    return ShellyDevice()


@pytest.mark.parametrize("model", MODELS)
def test_a_device_declares_its_channels_when_it_has_come_online(device: ShellyDevice, model: str) -> None:
    components, channels = MODELS[model]
    reports = device.connects_as(components)
    declared = tuple(DeclaredChannel(number, kind, None, component) for number, kind, component in channels)
    assert only(ChannelsReport, reports) == [ChannelsReport(declared)]
    assert isinstance(reports[0], ChannelsReport), "the states come after it"
    assert only(UnreadableMessage, reports) == []


@pytest.mark.parametrize("model", SENSORS)
def test_a_device_that_only_measures_has_readings_only(device: ShellyDevice, model: str) -> None:
    reports = device.connects_as(SENSORS[model])
    assert {type(report) for report in reports} == {StockFirmwareTelemetryReport}
    for component, status in SENSORS[model].items():
        [(name, value), *_] = [each for each in status.items() if each[0] not in ("id", "battery")] or [("battery.percent", None)]
        metric = f"{component.replace(':', '')}.{name}"
        assert metric in metrics(reports)
        assert value is None or metrics(reports)[metric] == value


def test_a_device_that_sleeps_says_all_when_it_wakes_up(device: ShellyDevice) -> None:
    components = {"input:0": {"id": 0, "state": None}, "devicepower:0": {"id": 0, "battery": {"percent": 80}}}
    whole = {"src": "s", "dst": "d", "method": "NotifyFullStatus", "params": {"ts": 1.0, **SYSTEM, **components}}
    reports = device.says("events/rpc", whole)
    assert only(ChannelsReport, reports) == [ChannelsReport((DeclaredChannel(None, ChannelKind.INPUT, None, "input:0"),))]
    assert metrics(reports)["devicepower0.battery.percent"] == 80


def test_channels_have_the_names_that_a_person_gave_them(device: ShellyDevice) -> None:
    config = {"switch:0": {"id": 0, "name": " Pump "}, "switch:1": {"id": 1, "name": None}, "sys": {"device": {"name": "x"}}}
    [found] = only(ChannelsReport, device.connects_as(MODELS["Plus 2PM"][0], config | {"input:0": {"name": "Wall"}}))
    assert [each.name for each in found.channels] == ["Pump", None, "Wall", None]


def test_a_device_that_was_asked_too_early_is_asked_again(device: ShellyDevice) -> None:
    device.says("online", "true")
    assert only(StateQuestion, device.notifies("switch:1", id=1, output=True)) == []
    device.now_ms += 30_000
    questions = only(StateQuestion, device.notifies("switch:1", id=1, output=True))
    methods = [json.loads(question.message.payload)["method"] for question in questions]
    assert methods == ["Shelly.GetConfig", "Shelly.GetStatus"]
    device.says("answer/rpc", {"id": "all-status", "result": MODELS["Plus 2PM"][0]})
    device.now_ms += 30_000
    assert only(StateQuestion, device.notifies("switch:1", id=1, output=True)) == []


def test_a_device_that_does_not_know_the_question_loses_nothing(device: ShellyDevice) -> None:
    for name in ("all-config", "all-status"):
        assert device.says("answer/rpc", {"id": name, "error": {"code": 404, "message": "No handler"}}) == []


def test_each_switch_has_its_state_and_its_reading(device: ShellyDevice) -> None:
    reports = device.connects_as(MODELS["Pro 4PM"][0])
    assert {report.channel: report.relay for report in only(RelayReport, reports)} == {1: False, 2: False, 3: False, 4: True}
    assert metrics(reports)["switch3.output"] is True
    device.now_ms += 3_000
    assert only(RelayReport, device.notifies("switch:2", id=2, output=True)) == [RelayReport(True, channel=3)]
    assert only(RelayReport, device.says("status/switch:1", {"id": 1, "output": True})) == [RelayReport(True, channel=2)]


@pytest.mark.parametrize(
    ("component", "status", "state"),
    [
        ("light:0", {"brightness": 60.4}, ChannelState(level=60)),
        ("rgb:0", {"rgb": [255, 128, 0], "brightness": 50}, ChannelState(level=50, details={"color": "#ff8000"})),
        ("rgbw:0", {"rgb": [1, 2, 300], "white": 5}, ChannelState(details={"color": "#0102ff"})),
        ("cct:0", {"ct": 3200}, ChannelState(details={"kelvin": 3200})),
        ("cover:0", {"state": "opening", "current_pos": 40}, ChannelState(level=40, details={"moving": "OPENING"})),
        ("cover:0", {"state": "closing"}, ChannelState(details={"moving": "CLOSING"})),
        ("cover:0", {"state": "stopped", "current_pos": None}, ChannelState(details={"moving": None})),
        ("cover:0", {"state": "closed", "current_pos": None}, ChannelState(level=0, details={"moving": None})),
        ("cover:0", {"state": "open", "current_pos": 98}, ChannelState(level=98, details={"moving": None})),
        ("cover:0", {"current_pos": 41}, ChannelState(level=41)),
        (
            "thermostat:0",
            {"target_C": 21.5, "enable": True, "output": False},
            ChannelState(details={"targetCelsius": 21.5, "mode": "HEAT", "action": "IDLE"}),
        ),
        ("blutrv:200", {"target_C": 19}, ChannelState(details={"targetCelsius": 19})),
    ],
)
def test_a_component_says_its_state(device: ShellyDevice, component: str, status: dict[str, Any], state: ChannelState) -> None:
    assert only(ChannelReport, device.notifies(component, **status)) == [ChannelReport(component, state)]


@pytest.mark.parametrize(
    ("component", "status"),
    [
        ("light:0", {"brightness": None}),
        ("light:0", {"brightness": True}),
        ("rgb:0", {"rgb": [1, 2]}),
        ("rgb:0", {"rgb": [1, 2, None]}),
        ("cct:0", {"ct": 1e300}),
        ("thermostat:0", {"target_C": 1e9}),
        ("switch:0", {"brightness": 5, "state": "open"}),
        ("em:0", {"current_pos": 5}),
    ],
)
def test_what_is_no_state_of_a_component_is_none(device: ShellyDevice, component: str, status: dict[str, Any]) -> None:
    assert only(ChannelReport, device.notifies(component, **status)) == []


def test_a_light_is_switched_by_its_component(device: ShellyDevice) -> None:
    assert only(RelayReport, device.notifies("light:1", id=1, output=True)) == [RelayReport(True, channel="light:1")]
    assert only(RelayReport, device.notifies("thermostat:0", id=0, output=True)) == []


@pytest.mark.parametrize(
    ("event", "action"),
    [
        ("single_push", InputAction.SINGLE),
        ("double_push", InputAction.DOUBLE),
        ("triple_push", InputAction.TRIPLE),
        ("long_push", InputAction.LONG),
    ],
)
def test_a_push_is_an_input_and_a_text_that_ends_at_once(device: ShellyDevice, event: str, action: InputAction) -> None:
    reports = device.tells({"component": "input:2", "id": 2, "event": event, "ts": 1.0})
    assert only(InputReport, reports) == [InputReport("input:2", action)]
    assert readings(reports) == [
        [{"m": {"input2": action.value}}, {"m": {"input2": "NONE"}, "ts": device.now_ms + 1}],
        {"m": {"input2.event": event}},
    ]


@pytest.mark.parametrize("event", ["btn_down", "btn_up", "config_changed", None, ["single_push"]])
def test_another_event_of_an_input_is_no_push(device: ShellyDevice, event: Any) -> None:
    assert only(InputReport, device.tells({"component": "input:0", "id": 0, "event": event})) == []


def test_two_pushes_of_one_notification_are_two(device: ShellyDevice) -> None:
    push = {"component": "input:0", "id": 0, "event": "single_push", "ts": 1.0}
    assert len(only(InputReport, device.tells(push, push))) == 2


def test_a_retained_push_is_no_push_and_is_told(device: ShellyDevice) -> None:
    reports = device.tells({"component": "input:0", "id": 0, "event": "single_push"}, retain=True)
    assert only(InputReport, reports) == []
    assert [drop.code for drop in only(UnreadableMessage, reports)] == ["RETAINED_PRESS"]


def test_a_contact_is_an_input_that_lasts(device: ShellyDevice) -> None:
    reports = device.notifies("input:1", id=1, state=True)
    assert only(InputReport, reports) == [InputReport("input:1", InputAction.ON)]
    assert metrics(reports) == {"input1.state": True}
    assert only(InputReport, device.notifies("input:1", id=1, state=None)) == []


LIGHT = {"channel": 2, "kind": ChannelKind.LEVEL, "component": "light:1"}
RGBW = {"channel": 1, "kind": ChannelKind.COLOR, "component": "rgbw:0"}
CCT = {"channel": 2, "kind": ChannelKind.COLOR, "component": "cct:0"}
BLIND = {"channel": 1, "kind": ChannelKind.COVER, "component": "cover:0"}
HEATER = {"channel": 2, "kind": ChannelKind.CLIMATE, "component": "thermostat:0"}
VALVE = {"channel": 2, "kind": ChannelKind.CLIMATE, "component": "blutrv:200"}


@pytest.mark.parametrize(
    ("cmd", "params", "channel", "call"),
    [
        ("ON", None, {}, ("Switch.Set", {"id": 0, "on": True})),
        ("OFF", None, {"channel": 4}, ("Switch.Set", {"id": 3, "on": False})),
        ("TOGGLE", None, {"channel": 2, "component": "switch:1"}, ("Switch.Toggle", {"id": 1})),
        ("STATUS", None, {"channel": 2}, ("Switch.GetStatus", {"id": 1})),
        ("STATUS", None, BLIND, ("Cover.GetStatus", {"id": 0})),
        ("STATUS", None, {"channel": 3, "kind": ChannelKind.INPUT, "component": "input:1"}, ("Input.GetStatus", {"id": 1})),
        ("GET_SCHEDULES", None, BLIND, ("Schedule.List", {})),
        ("ON", None, LIGHT, ("Light.Set", {"id": 1, "on": True})),
        ("TOGGLE", None, RGBW, ("RGBW.Toggle", {"id": 0})),
        ("SET_LEVEL", {"level": 40}, LIGHT, ("Light.Set", {"id": 1, "on": True, "brightness": 40})),
        ("SET_LEVEL", {"level": 0}, LIGHT, ("Light.Set", {"id": 1, "on": False})),
        (
            "SET_LEVEL",
            {"level": 40, "seconds": 2.5},
            CCT,
            ("CCT.Set", {"id": 0, "on": True, "brightness": 40, "transition_duration": 2.5}),
        ),
        (
            "SET_LEVEL",
            {"level": 7},
            {"channel": 3, "kind": ChannelKind.LEVEL},
            ("Light.Set", {"id": 2, "on": True, "brightness": 7}),
        ),
        ("SET_COLOR", {"color": "#ff8000"}, RGBW, ("RGBW.Set", {"id": 0, "on": True, "rgb": [255, 128, 0]})),
        ("SET_COLOR", {"kelvin": 3000, "level": 5}, CCT, ("CCT.Set", {"id": 0, "on": True, "brightness": 5, "ct": 3000})),
        ("OPEN", None, BLIND, ("Cover.Open", {"id": 0})),
        ("CLOSE", None, BLIND, ("Cover.Close", {"id": 0})),
        ("STOP", None, BLIND, ("Cover.Stop", {"id": 0})),
        ("SET_POSITION", {"position": 0}, BLIND, ("Cover.GoToPosition", {"id": 0, "pos": 0})),
        ("SET_POSITION", {"position": 9}, {"channel": 2, "kind": ChannelKind.COVER}, ("Cover.GoToPosition", {"id": 1, "pos": 9})),
        ("SET_TARGET", {"celsius": 21.5}, HEATER, ("Thermostat.SetConfig", {"id": 0, "config": {"target_C": 21.5}})),
        ("SET_MODE", {"mode": "OFF"}, HEATER, ("Thermostat.SetConfig", {"id": 0, "config": {"enable": False}})),
        (
            "SET_TARGET",
            {"celsius": 21},
            VALVE,
            ("BluTRV.Call", {"id": 200, "method": "TRV.SetTarget", "params": {"id": 0, "target_C": 21}}),
        ),
    ],
)
def test_a_command_becomes_a_call_of_the_channels_component(
    device: ShellyDevice, cmd: str, params: Any, channel: dict[str, Any], call: tuple[str, dict[str, Any]]
) -> None:
    assert device.call(cmd, params, **channel) == call


@pytest.mark.parametrize(
    ("cmd", "params", "channel"),
    [
        ("SET_COLOR", {"kelvin": 3000}, RGBW),
        ("SET_COLOR", {"color": "#ff8000"}, CCT),
        ("SET_COLOR", {"color": "red"}, RGBW),
        ("SET_LEVEL", {"level": 4}, {"channel": 2}),
        ("SET_LEVEL", None, LIGHT),
        ("SET_POSITION", {}, BLIND),
        ("SET_MODE", {"mode": "COOL"}, HEATER),
        ("SET_MODE", {"mode": "HEAT"}, VALVE),
        ("ON", None, BLIND),
        ("ON", None, {"channel": 3, "kind": ChannelKind.INPUT, "component": "input:1"}),
        ("REBOOT", None, {}),
    ],
)
def test_what_a_component_cannot_do_is_not_sent(device: ShellyDevice, cmd: str, params: Any, channel: dict[str, Any]) -> None:
    assert device.call(cmd, params, **channel) is None


def result(reports: list[DeviceReport]) -> CommandResultReport:
    [found] = only(CommandResultReport, reports)
    return found


class TestTheAnswersOfSeveralChannels:
    def test_the_answer_is_a_state_of_the_commands_own_channel(self, device: ShellyDevice) -> None:
        device.says("status/switch:0", {"id": 0, "output": False})
        device.send("ON", channel=2)
        assert result(device.says("answer/rpc", {"id": "exe_1", "result": {"was_on": False}})).relay is True
        assert only(RelayReport, device.says("status/switch:0", {"id": 0, "output": False})) == [RelayReport(False)]

    def test_a_stale_status_is_doubted_on_its_own_channel_only(self, device: ShellyDevice) -> None:
        device.connects_as(MODELS["Plus 2PM"][0])
        device.now_ms += 60_000
        device.send("OFF", channel=2)
        device.says("answer/rpc", {"id": "exe_1", "result": {"was_on": True}})
        assert only(RelayReport, device.says("status/switch:0", {"id": 0, "output": True})) == [RelayReport(True)]
        [question] = only(StateQuestion, device.says("status/switch:1", {"id": 1, "output": True}))
        asked = json.loads(question.message.payload)
        assert (asked["method"], asked["params"]) == ("Switch.GetStatus", {"id": 1})
        answer = {"id": asked["id"], "result": {"id": 1, "output": False}}
        assert only(RelayReport, device.says("answer/rpc", answer)) == [RelayReport(False, channel=2)]

    def test_a_doubted_light_is_asked_by_its_own_method(self, device: ShellyDevice) -> None:
        device.send("ON", **LIGHT)
        assert result(device.says("answer/rpc", {"id": "exe_1", "result": None})).relay is True
        [question] = only(StateQuestion, device.says("status/light:1", {"id": 1, "output": False}))[:1]
        asked = json.loads(question.message.payload)
        assert (asked["method"], asked["params"]) == ("Light.GetStatus", {"id": 1})

    def test_an_answer_that_nobody_expects_switches_nothing(self, device: ShellyDevice) -> None:
        found = result(device.says("answer/rpc", {"id": "exe_before_the_restart", "result": {"was_on": False}}))
        assert (found.status, found.relay) == ("done", None)


def test_jobs_switch_the_channel_of_their_slot(device: ShellyDevice) -> None:
    at_s = NOW // 1000 + 3_600
    rows = ((0, at_s, at_s + 600, True, 1), (1, at_s, at_s + 600, True, 3))
    calls = [json.loads(message.payload) for message in device.codec.encode_plan_jobs(DEVICE, 7, rows, NOW)]
    jobs = [call["params"]["calls"][0] for call in calls if call["method"] == "Schedule.Create"]
    assert [(job["method"], job["params"]["id"]) for job in jobs] == [("Switch.Set", n) for n in (0, 0, 2, 2)]


def test_what_a_device_can_make_the_service_remember_is_bounded(device: ShellyDevice) -> None:
    for number in range(200):
        device.notifies(f"switch:{number}", id=number, output=True)
        device.send("ON", execution_id=f"exe_{number}", channel=2)
    memory = device.codec._memories[FirmwareProfile.SHELLY, DEVICE]
    assert (len(memory.outputs), len(memory.sent)) == (64, 64)
