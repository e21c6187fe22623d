"""Real Tasmota boards, by what they publish: their channels, the states of these, and the commands for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from adapters.mqtt.profiles.tasmota_channels import BoardLayout
from domain.devices.channels import ChannelKind, ChannelState, DeclaredChannel, InputAction
from domain.devices.messages import (
    ChannelReport,
    ChannelsReport,
    CommandResultReport,
    DeviceReport,
    InputReport,
    RelayReport,
    StateQuestion,
    StockFirmwareTelemetryReport,
    UnreadableMessage,
)
from domain.devices.model import FirmwareProfile
from support.boards import DEVICE, NOW, Board, metrics, only, readings

WIFI = '"Wifi":{"AP":1,"SSId":"home","BSSId":"AA:BB:CC:00:11:22","Channel":6,"Mode":"11n","RSSI":72,"Signal":-64}'
HEAD = '{"Time":"2026-03-02T06:00:00","Uptime":"2T01:10:07","UptimeSec":177007,"Heap":26,"MqttCount":1,'


def status(names: Sequence[str]) -> str:
    shown = json.dumps([*names])
    return '{"Status":{"Module":0,"DeviceName":"Tasmota","FriendlyName":' + shown + ',"Topic":"x","Power":"0","PowerOnState":3}}'


WITHOUT_SHUTTERS = (
    '{"StatusLOG":{"SerialLog":2,"WebLog":2,"MqttLog":0,"SysLog":0,"TelePeriod":300,"Resolution":"558180C0",'
    '"SetOption":["00008009","2805C80001000600003C5A0A190000000000","00000080","00006000","00004000","00000000"]}}'
)
WITH_SHUTTERS = WITHOUT_SHUTTERS.replace('"00000080"', '"40000080"')
SHUTTERS = (
    '{"StatusSHT":{"SHT0":{"Relay1":1,"Relay2":2,"Open":100,"Close":100,"50perc":50,"Delay":0,"Opt":"0000",'
    '"Calib":["30","50","70","90","100"],"Mode":"1"}}}'
)
BOARDS: dict[str, tuple[str, str, list[str], str, list[tuple[int, ChannelKind, str | None, str]]]] = {
    "Sonoff 4CH Pro": (
        HEAD + '"POWER1":"ON","POWER2":"OFF","POWER3":"OFF","POWER4":"ON",' + WIFI + "}",
        WITHOUT_SHUTTERS,
        ["Pump", "Valve", "Tasmota3", "Tasmota4"],
        "",
        [
            (1, ChannelKind.RELAY, "Pump", "POWER1"),
            (2, ChannelKind.RELAY, "Valve", "POWER2"),
            (3, ChannelKind.RELAY, None, "POWER3"),
            (4, ChannelKind.RELAY, None, "POWER4"),
        ],
    ),
    "Sonoff Dual R3 as a shutter": (
        HEAD + '"POWER1":"OFF","POWER2":"OFF",' + WIFI + "}",
        WITH_SHUTTERS,
        ["Blind", "Tasmota2"],
        SHUTTERS,
        [(1, ChannelKind.COVER, "Blind", "Shutter1")],
    ),
    "four relays, two of them a shutter": (
        HEAD + '"POWER1":"OFF","POWER2":"OFF","POWER3":"ON","POWER4":"OFF",' + WIFI + "}",
        WITH_SHUTTERS,
        ["Light", "Fan", "Blind", "Blind"],
        SHUTTERS.replace('"Relay1":1,"Relay2":2', '"Relay1":3,"Relay2":4'),
        [
            (1, ChannelKind.RELAY, "Light", "POWER1"),
            (2, ChannelKind.RELAY, "Fan", "POWER2"),
            (3, ChannelKind.COVER, "Blind", "Shutter1"),
        ],
    ),
    "dimmer": (
        HEAD + '"POWER":"ON","Dimmer":60,"Fade":"OFF","Speed":1,"LedTable":"ON",' + WIFI + "}",
        WITHOUT_SHUTTERS,
        ["Lamp"],
        "",
        [(1, ChannelKind.LEVEL, "Lamp", "Dimmer")],
    ),
    "bulb of five channels": (
        HEAD + '"POWER":"ON","Dimmer":60,"Color":"995200","HSBColor":"32,100,60","White":0,"CT":327,'
        '"Channel":[60,32,0,0,0],"Scheme":0,"Fade":"ON","Speed":4,"LedTable":"ON",' + WIFI + "}",
        WITHOUT_SHUTTERS,
        ["Tasmota"],
        "",
        [(1, ChannelKind.COLOR, None, "Dimmer")],
    ),
    "a relay and a light": (
        HEAD + '"POWER1":"OFF","POWER2":"ON","Dimmer":25,"Color":"40","Channel":[25],' + WIFI + "}",
        WITHOUT_SHUTTERS,
        ["Socket", "Lamp"],
        "",
        [(1, ChannelKind.RELAY, "Socket", "POWER1"), (2, ChannelKind.LEVEL, "Lamp", "Dimmer")],
    ),
    "PWM channels of their own (SetOption68)": (
        HEAD + '"POWER1":"ON","Channel1":100,"POWER2":"OFF","Channel2":0,"Color":"FF,00",' + WIFI + "}",
        WITHOUT_SHUTTERS,
        ["Red", "Blue"],
        "",
        [(1, ChannelKind.LEVEL, "Red", "Channel1"), (2, ChannelKind.LEVEL, "Blue", "Channel2")],
    ),
    "colour and white apart (SetOption37)": (
        HEAD + '"POWER1":"ON","Dimmer1":50,"POWER2":"OFF","Dimmer2":10,"Color":"7F00000000","HSBColor":"0,100,50","White":10,'
        '"Channel":[50,0,0,10],' + WIFI + "}",
        WITHOUT_SHUTTERS,
        ["Strip", "White"],
        "",
        [(1, ChannelKind.COLOR, "Strip", "Dimmer1"), (2, ChannelKind.LEVEL, "White", "Dimmer2")],
    ),
}


class TasmotaBoard(Board):
    def __init__(self) -> None:
        super().__init__(FirmwareProfile.TASMOTA)

    def connects_as(self, name: str) -> list[DeviceReport]:
        state, options, names, shutters, _ = BOARDS[name]
        reports = [*self.says("tele/LWT", "Online"), *self.says("stat/RESULT", state)]
        reports += [*self.says("stat/STATUS", status(names)), *self.says("stat/STATUS3", options)]
        return [*reports, *self.says("stat/STATUS13", shutters)] if shutters else reports

    def steps(self, cmd: str, params: Any = None, **channel: Any) -> list[str]:
        messages = self.send(cmd, params, **channel)
        assert {topic for topic, _ in messages} <= {"cmnd/Backlog0"}
        return [step for _, payload in messages for step in payload.split("; ")]


@pytest.fixture
def board() -> TasmotaBoard:
    return TasmotaBoard()


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_declares_its_channels_once_it_has_answered(board: TasmotaBoard, name: str) -> None:
    reports = board.connects_as(name)
    declared = [DeclaredChannel(*each) for each in BOARDS[name][4]]
    assert only(ChannelsReport, reports) == [ChannelsReport(tuple(declared), is_complete=False)]
    asked = [each.message.payload for each in only(StateQuestion, reports)]
    assert asked == ([b"", b"3", b"13", b"10"] if BOARDS[name][3] else [b"", b"3"])
    assert only(UnreadableMessage, reports) == [], "the answers to these questions are no diagnostics"
    assert only(ChannelsReport, board.says("tele/STATE", BOARDS[name][0])) == [], "it has said so already"


def test_a_board_of_one_relay_is_as_ever(board: TasmotaBoard) -> None:
    assert only(RelayReport, board.says("tele/LWT", "Online")) == []
    reports = board.says("stat/RESULT", HEAD + '"POWER1":"ON",' + WIFI + "}")
    assert [report for report in reports if not isinstance(report, StockFirmwareTelemetryReport)] == [RelayReport(True)]
    board.says("stat/STATUS", status(["Pump"]))
    assert only(ChannelsReport, board.says("stat/STATUS3", WITHOUT_SHUTTERS)) == []


def test_each_relay_has_its_state_and_its_reading(board: TasmotaBoard) -> None:
    reports = board.connects_as("Sonoff 4CH Pro")
    states = {report.channel: report.relay for report in only(RelayReport, reports)}
    assert states == {1: True, 2: False, 3: False, 4: True}
    assert {name: value for name, value in metrics(reports).items() if name.startswith("power")} == {
        "power2": False,
        "power3": False,
        "power4": True,
    }
    [after] = [place for place, report in enumerate(reports) if isinstance(report, ChannelsReport)]
    assert {report.channel for report in only(RelayReport, reports[after:])} == {1, 2, 3, 4}, "also after they were named"


def test_the_relays_of_a_shutter_are_readings_only(board: TasmotaBoard) -> None:
    board.connects_as("Sonoff Dual R3 as a shutter")
    reports = board.says("stat/RESULT", {"POWER1": "ON", "POWER2": "OFF"})
    assert only(RelayReport, reports) == []
    assert metrics(reports) == {"power1": True, "power2": False}


def test_a_shutter_board_is_not_taken_for_relays_while_it_has_not_answered(board: TasmotaBoard) -> None:
    state, options, names, shutters, _ = BOARDS["Sonoff Dual R3 as a shutter"]
    reports = [*board.says("tele/LWT", "Online"), *board.says("tele/STATE", state), *board.says("stat/STATUS", status(names))]
    reports += board.says("stat/STATUS3", options)
    assert only(ChannelsReport, reports) == []
    [found] = only(ChannelsReport, board.says("stat/STATUS13", shutters))
    assert [each.kind for each in found.channels] == [ChannelKind.COVER]


def test_questions_that_were_lost_are_asked_again_but_not_at_each_state(board: TasmotaBoard) -> None:
    state = BOARDS["Sonoff 4CH Pro"][0]
    board.says("tele/LWT", "Online")
    assert len(only(StateQuestion, board.says("tele/STATE", state))) == 2
    assert only(StateQuestion, board.says("tele/STATE", state)) == []
    board.says("stat/STATUS", status(["a"]))
    board.now_ms += 300_000
    [question] = only(StateQuestion, board.says("tele/STATE", state))
    assert question.message.payload == b"3"


def test_only_a_whole_state_leads_to_questions(board: TasmotaBoard) -> None:
    board.says("tele/LWT", "Online")
    assert only(StateQuestion, board.says("stat/RESULT", {"POWER2": "ON"})) == []
    by_cable = BOARDS["Sonoff 4CH Pro"][0].replace(f",{WIFI}", "")
    assert len(only(StateQuestion, board.says("tele/STATE", by_cable))) == 2


def test_channels_of_another_template_are_gone(board: TasmotaBoard) -> None:
    board.connects_as("Sonoff 4CH Pro")
    [found] = only(ChannelsReport, board.connects_as("a relay and a light"))
    assert found.is_complete
    assert [each.channel for each in found.channels] == [1, 2]


@pytest.mark.parametrize(
    ("name", "component", "state"),
    [
        ("dimmer", "Dimmer", ChannelState(level=60)),
        ("bulb of five channels", "Dimmer", ChannelState(level=60, details={"color": "#ff8800", "kelvin": None})),
        ("PWM channels of their own (SetOption68)", "Channel2", ChannelState(level=0)),
        ("colour and white apart (SetOption37)", "Dimmer1", ChannelState(level=50, details={"color": "#ff0000", "kelvin": None})),
    ],
)
def test_a_light_says_its_level_and_colour(board: TasmotaBoard, name: str, component: str, state: ChannelState) -> None:
    assert ChannelReport(component, state) in board.says("tele/STATE", BOARDS[name][0])


@pytest.mark.parametrize(
    ("said", "details"),
    [
        ('"HSBColor":"240,50,100","White":0,"CT":153', {"color": "#8080ff", "kelvin": None}),
        ('"HSBColor":"0,0,0","White":80,"CT":250', {"color": None, "kelvin": 4000}),
        ('"CT":500', {"color": None, "kelvin": 2000}),
        ('"HSBColor":"odd","White":0', {"color": None, "kelvin": None}),
    ],
)
def test_white_and_colour_exclude_each_other(board: TasmotaBoard, said: str, details: dict[str, Any]) -> None:
    [report] = only(ChannelReport, board.says("stat/RESULT", '{"POWER":"ON","Dimmer":80,' + said + "}"))
    assert report.state == ChannelState(level=80, details=details)


@pytest.mark.parametrize(
    ("direction", "moving"), [(1, "OPENING"), (-1, "CLOSING"), (0, None), ("1", None), ([1], None), (None, None)]
)
def test_a_shutter_says_its_position_and_direction(board: TasmotaBoard, direction: Any, moving: str | None) -> None:
    shutter = {"Shutter2": {"Position": 45, "Direction": direction, "Target": 0, "Tilt": 0}}
    for topic in ("stat/RESULT", "tele/SENSOR"):
        reports = board.says(topic, shutter)
        assert only(ChannelReport, reports) == [ChannelReport("Shutter2", ChannelState(level=45, details={"moving": moving}))]
        assert metrics(reports)["Shutter2.Position"] == 45


@pytest.mark.parametrize(
    ("payload", "component", "action"),
    [
        ({"Button1": {"Action": "SINGLE"}}, "Button1", InputAction.SINGLE),
        ({"Button2": {"Action": "HOLD"}}, "Button2", InputAction.LONG),
        ({"Switch1": {"Action": "TOGGLE"}}, "Switch1", InputAction.SINGLE),
    ],
)
def test_a_press_is_an_input_and_a_text_that_ends_at_once(
    board: TasmotaBoard, payload: dict[str, Any], component: str, action: InputAction
) -> None:
    declared, pressed, press, reading = board.says("stat/RESULT", payload)
    assert declared == ChannelsReport((DeclaredChannel(None, ChannelKind.INPUT, None, component),), is_complete=False)
    assert pressed == InputReport(component, action)
    assert isinstance(press, StockFirmwareTelemetryReport)
    assert isinstance(reading, StockFirmwareTelemetryReport)
    name = component.lower()
    assert json.loads(press.payload) == [{"m": {name: action.value}}, {"m": {name: "NONE"}, "ts": board.now_ms + 1}]
    assert json.loads(reading.payload)["m"] == {f"{component}.Action": payload[component]["Action"]}


def test_a_contact_lasts(board: TasmotaBoard) -> None:
    reports = board.says("stat/RESULT", {"Switch1": {"Action": "ON"}}, retain=True)
    assert InputReport("Switch1", InputAction.ON) in reports
    assert readings(reports) == [{"m": {"Switch1.Action": "ON"}}]


def test_a_retained_press_is_no_press_and_is_told(board: TasmotaBoard) -> None:
    reports = board.says("stat/RESULT", {"Button1": {"Action": "SINGLE"}}, retain=True)
    assert only(InputReport, reports) == []
    [drop] = only(UnreadableMessage, reports)
    assert (drop.code, drop.metric, drop.topic) == ("RETAINED_PRESS", "button1", "stat/RESULT")


@pytest.mark.parametrize("action", ["CLEAR", "QUAD", "POWER_INCREMENT"])
def test_another_word_of_a_button_is_a_reading(board: TasmotaBoard, action: str) -> None:
    reports = board.says("stat/RESULT", {"Button1": {"Action": action}})
    assert metrics(reports) == {"Button1.Action": action}
    assert only(InputReport, reports) == []


def test_inputs_that_were_heard_remain_when_channels_go(board: TasmotaBoard) -> None:
    board.connects_as("Sonoff 4CH Pro")
    board.says("stat/RESULT", {"Button1": {"Action": "SINGLE"}})
    [found] = only(ChannelsReport, board.connects_as("a relay and a light"))
    assert DeclaredChannel(None, ChannelKind.INPUT, None, "Button1") in found.channels


LAMP = {"channel": 2, "kind": ChannelKind.LEVEL, "component": "Dimmer"}
BULB = {"channel": 1, "kind": ChannelKind.COLOR, "component": "Dimmer"}
BLIND = {"channel": 3, "kind": ChannelKind.COVER, "component": "Shutter2"}


@pytest.mark.parametrize(
    ("cmd", "params", "channel", "steps"),
    [
        ("ON", None, {}, ["Power1 ON"]),
        ("OFF", None, {"channel": 4}, ["Power4 OFF"]),
        ("TOGGLE", None, LAMP, ["Power2 TOGGLE"]),
        ("STATUS", None, {"channel": 4}, ["State"]),
        ("SET_LEVEL", {"level": 60}, LAMP, ["Dimmer 60"]),
        ("SET_LEVEL", {"level": 60, "seconds": 3}, LAMP, ["Speed2 6", "Dimmer 60"]),
        ("SET_LEVEL", {"level": 60, "seconds": 600}, LAMP, ["Speed2 40", "Dimmer 60"]),
        ("SET_LEVEL", {"level": 0}, LAMP | {"component": "Channel2"}, ["Channel2 0"]),
        ("SET_LEVEL", {"level": 5}, {"channel": 2, "kind": ChannelKind.LEVEL}, ["Dimmer 5"]),
        ("SET_COLOR", {"color": "#ff8800"}, BULB, ["Color2 FF8800"]),
        ("SET_COLOR", {"color": "#ff8800", "level": 30}, BULB, ["Color2 FF8800", "Dimmer 30"]),
        ("SET_COLOR", {"kelvin": 4000, "level": 30}, BULB, ["CT 250", "Dimmer 30"]),
        ("SET_COLOR", {"kelvin": 1000}, BULB, ["CT 500"]),
        ("OPEN", None, BLIND, ["ShutterOpen2"]),
        ("CLOSE", None, BLIND, ["ShutterClose2"]),
        ("STOP", None, BLIND, ["ShutterStop2"]),
        ("SET_POSITION", {"position": 0}, BLIND, ["ShutterPosition2 0"]),
        ("SET_POSITION", {"position": 45}, {"channel": 3, "kind": ChannelKind.COVER}, ["ShutterPosition2 45"]),
    ],
)
def test_a_command_becomes_the_boards_own(
    board: TasmotaBoard, cmd: str, params: Any, channel: dict[str, Any], steps: list[str]
) -> None:
    end = "exe_1" if channel.get("channel", 1) == 1 else f"exe_1 {channel['channel']}"
    assert board.steps(cmd, params, **channel) == [*steps, f"Publish devices/{DEVICE}/stat/ACK {end}"]


@pytest.mark.parametrize(
    ("cmd", "params", "channel"),
    [
        ("SET_LEVEL", {"level": "60; Reset 1"}, LAMP),
        ("SET_LEVEL", {"level": 101}, LAMP),
        ("SET_LEVEL", {"level": 60, "more": 1}, LAMP),
        ("SET_COLOR", {"color": "#ff8800; Reset 1"}, BULB),
        ("SET_COLOR", {"level": 30}, BULB),
        ("SET_COLOR", {"color": "#ff8800"}, LAMP),
        ("SET_POSITION", {"position": -1}, BLIND),
    ],
)
def test_what_is_no_parameter_is_not_sent(board: TasmotaBoard, cmd: str, params: Any, channel: dict[str, Any]) -> None:
    assert board.steps(cmd, params, **channel) == []


def test_a_component_cannot_carry_a_command(board: TasmotaBoard) -> None:
    for cmd, params, channel in (("SET_LEVEL", {"level": 1}, LAMP), ("OPEN", None, BLIND)):
        steps = board.steps(cmd, params, **channel | {"component": "Dimmer 1; Reset"})
        assert len(steps) == 2
        assert "Reset" not in "".join(steps)


def result(board: TasmotaBoard, said: str = "exe_1 2") -> list[CommandResultReport]:
    return only(CommandResultReport, board.says("stat/ACK", said))


class TestTheAnswersOfSeveralChannels:
    def test_the_channels_own_relay_is_the_result(self, board: TasmotaBoard) -> None:
        board.send("ON", channel=2)
        board.says("stat/RESULT", {"POWER2": "ON"})
        assert result(board) == [CommandResultReport("exe_1", "done", None, True, {"POWER2": "ON"})]

    def test_another_relay_confirms_nothing(self, board: TasmotaBoard) -> None:
        board.send("ON", channel=2)
        board.says("stat/RESULT", {"POWER1": "ON"})
        assert result(board) == [CommandResultReport("exe_1", "ack")]
        assert only(CommandResultReport, board.says("stat/RESULT", {"POWER1": "ON", "POWER3": "ON"})) == []
        assert only(CommandResultReport, board.says("stat/RESULT", {"POWER2": "ON"})) == [
            CommandResultReport("exe_1", "done", relay=True)
        ]

    def test_the_first_relay_is_not_confirmed_by_another_either(self, board: TasmotaBoard) -> None:
        board.send("ON")
        board.says("stat/RESULT", {"POWER2": "ON"})
        assert result(board, "exe_1") == [CommandResultReport("exe_1", "ack")]
        assert only(CommandResultReport, board.says("stat/RESULT", {"POWER2": "ON"})) == []

    def test_two_channels_wait_for_their_states_apart(self, board: TasmotaBoard) -> None:
        for channel, execution_id in ((1, "exe_1"), (2, "exe_2")):
            board.send("ON", execution_id=execution_id, channel=channel)
        result(board, "exe_1")
        result(board, "exe_2 2")
        reports = only(CommandResultReport, board.says("stat/RESULT", {"POWER1": "ON", "POWER2": "OFF"}))
        assert [(report.execution_id, report.relay) for report in reports] == [("exe_1", True), ("exe_2", False)]

    def test_a_toggle_is_compared_with_its_own_relay(self, board: TasmotaBoard) -> None:
        board.says("tele/STATE", {"POWER1": "ON", "POWER2": "OFF"})
        board.send("TOGGLE", channel=2)
        board.says("stat/RESULT", {"POWER2": "OFF"})
        [report] = only(CommandResultReport, board.says("stat/ACK", "exe_1 2"))
        assert report.code == "STATE_MISMATCH"

    def test_a_command_for_another_channel_does_not_spoil_a_toggle(self, board: TasmotaBoard) -> None:
        board.says("tele/STATE", {"POWER1": "ON", "POWER2": "OFF"})
        board.send("ON", execution_id="exe_open", channel=1)
        board.says("stat/POWER2", "ON")  # at the button
        board.send("TOGGLE", channel=2)
        board.says("stat/RESULT", {"POWER2": "OFF"})
        [report] = only(CommandResultReport, board.says("stat/ACK", "exe_1 2"))
        assert report.status == "done"

    def test_after_a_restart_of_the_service_the_channel_is_still_known(self, board: TasmotaBoard) -> None:
        board.says("stat/RESULT", {"POWER1": "ON"})
        [report] = only(CommandResultReport, board.says("stat/ACK", "exe_1 2"))
        assert (report.status, report.relay) == ("done", None)
        board.says("stat/RESULT", {"POWER2": "ON"})
        [report] = only(CommandResultReport, board.says("stat/ACK", "exe_2 2"))
        assert report.relay is True

    @pytest.mark.parametrize("odd", ["exe_1 ", "exe_1 x", "exe_1 0", "exe_1 999", "exe_1 -1", " 2", "exe_1 2 3"])
    def test_an_odd_end_is_one_of_the_first_channel(self, board: TasmotaBoard, odd: str) -> None:
        board.says("stat/RESULT", {"POWER2": "ON"})
        assert [report.relay for report in only(CommandResultReport, board.says("stat/ACK", odd))] == [None]

    def test_what_a_light_refuses_has_failed(self, board: TasmotaBoard) -> None:
        board.send("SET_LEVEL", {"level": 60}, **LAMP)
        board.says("stat/RESULT", {"Dimmer": "Error"})
        [report] = only(CommandResultReport, board.says("stat/ACK", "exe_1 2"))
        assert (report.status, report.code) == ("error", "ERROR")

    def test_a_level_is_done_with_its_answer(self, board: TasmotaBoard) -> None:
        board.send("SET_LEVEL", {"level": 60}, **LAMP)
        board.says("stat/RESULT", {"POWER2": "ON", "Dimmer": 60})
        assert result(board) == [CommandResultReport("exe_1", "done", None, True, {"POWER2": "ON", "Dimmer": 60})]

    def test_a_shutters_relay_is_no_state_of_a_cover(self, board: TasmotaBoard) -> None:
        board.connects_as("Sonoff Dual R3 as a shutter")
        board.send("OPEN", channel=1, kind=ChannelKind.COVER, component="Shutter1")
        board.says("stat/RESULT", {"POWER1": "ON", "POWER2": "OFF"})
        [report] = only(CommandResultReport, board.says("stat/ACK", "exe_1"))
        assert (report.status, report.relay) == ("done", None)

    def test_the_status_that_a_command_asked_for_is_its_answer(self, board: TasmotaBoard) -> None:
        board.says("tele/LWT", "Online")
        board.says("tele/STATE", BOARDS["Sonoff 4CH Pro"][0])
        board.send("Status", 0, "exe_3")
        board.says("stat/STATUS", status(["a"]))
        [report] = only(CommandResultReport, board.says("stat/ACK", "exe_3"))
        assert isinstance(report.data, dict)
        assert "Status" in report.data


def test_timers_switch_the_channel_of_their_slot(board: TasmotaBoard) -> None:
    at_s = NOW // 1000 + 3_600
    rows = ((0, at_s, at_s + 600, True, 1), (1, at_s, at_s + 600, True, 3))
    messages = board.codec.encode_plan(FirmwareProfile.TASMOTA, DEVICE, 7, rows, NOW)
    timers = {
        name: json.loads(argument)
        for message in messages
        for name, _, argument in (step.partition(" ") for step in message.payload.decode().split("; "))
        if name.startswith("Timer") and argument.startswith("{")
    }
    assert {name: timer["Output"] for name, timer in timers.items()} == {"Timer1": 1, "Timer2": 1, "Timer3": 3, "Timer4": 3}


def test_what_a_board_can_make_the_service_remember_is_bounded() -> None:
    layout = BoardLayout()
    for number in range(100):
        layout.add_input(f"Button{number}")
    assert len(layout.inputs) == 32
