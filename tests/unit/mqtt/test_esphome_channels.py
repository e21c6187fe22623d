"""ESPHome boards, by what their components publish: their channels, the states of these, and the commands for them."""

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
    OutboundCommand,
    RelayReport,
    StockFirmwareTelemetryReport,
    UnreadableMessage,
)
from domain.devices.model import FirmwareProfile
from support.boards import DEVICE, NOW, Board, metrics, only, readings


@pytest.fixture
def board() -> Board:
    return Board(FirmwareProfile.ESPHOME)


def lamp(**fields: Any) -> dict[str, Any]:
    return {
        "effect": "None",
        "effect_index": 0,
        "effect_count": 2,
        "color_mode": "brightness",
        "state": "ON",
        "color": {},
    } | fields


RGB = {"color_mode": "rgb", "brightness": 255, "color": {"r": 255, "g": 136, "b": 0}}
WHITE = {"color_mode": "cwww", "brightness": 128, "color": {"c": 255, "w": 0}, "color_temp": 250}


@pytest.mark.parametrize(
    ("topic", "payload", "kind", "name", "on", "state"),
    [
        ("switch/pump_2/state", "ON", ChannelKind.RELAY, "pump 2", True, None),
        ("light/lamp/state", lamp(color_mode="onoff", state="OFF"), ChannelKind.RELAY, "lamp", False, None),
        ("light/lamp/state", lamp(brightness=153), ChannelKind.LEVEL, "lamp", True, ChannelState(level=60)),
        ("light/lamp/state", {"state": "ON", "brightness": 255}, ChannelKind.LEVEL, "lamp", True, ChannelState(level=100)),
        (
            "light/strip/state",
            lamp(**RGB),
            ChannelKind.COLOR,
            "strip",
            True,
            ChannelState(level=100, details={"color": "#ff8800", "kelvin": None}),
        ),
        (
            "light/strip/state",
            lamp(**WHITE, state="OFF"),
            ChannelKind.COLOR,
            "strip",
            False,
            ChannelState(level=50, details={"color": None, "kelvin": 4000}),
        ),
        ("light/strip/state", lamp(color_mode="white"), ChannelKind.COLOR, "strip", True, None),
        ("fan/ceiling/state", "OFF", ChannelKind.LEVEL, "ceiling", False, None),
        ("fan/ceiling/speed_level/state", "3", ChannelKind.LEVEL, "ceiling", None, ChannelState(level=3)),
        ("cover/blind/state", "opening", ChannelKind.COVER, "blind", None, ChannelState(details={"moving": "OPENING"})),
        ("cover/blind/state", "open", ChannelKind.COVER, "blind", None, ChannelState(details={"moving": None})),
        ("cover/blind/state", "closed", ChannelKind.COVER, "blind", None, ChannelState(level=0, details={"moving": None})),
        ("cover/blind/position/state", "55", ChannelKind.COVER, "blind", None, ChannelState(level=55)),
        ("valve/water/position/state", "0", ChannelKind.COVER, "water", None, ChannelState(level=0)),
        ("climate/heating/mode/state", "heat_cool", ChannelKind.CLIMATE, "heating", None, ChannelState(details={"mode": "AUTO"})),
        (
            "climate/heating/target_temperature/state",
            "21.5",
            ChannelKind.CLIMATE,
            "heating",
            None,
            ChannelState(details={"targetCelsius": 21.5}),
        ),
        (
            "climate/heating/action/state",
            "heating",
            ChannelKind.CLIMATE,
            "heating",
            None,
            ChannelState(details={"action": "HEATING"}),
        ),
    ],
)
def test_a_component_names_itself_and_says_its_state(
    board: Board, topic: str, payload: Any, kind: ChannelKind, name: str, on: bool | None, state: ChannelState | None
) -> None:
    reports = board.says(topic, payload, retain=True)
    component = "/".join(topic.split("/")[:2])
    assert reports[0] == ChannelsReport((DeclaredChannel(None, kind, name, component),), is_complete=False)
    assert only(RelayReport, reports) == ([] if on is None else [RelayReport(on, channel=component)])
    assert only(ChannelReport, reports) == ([] if state is None else [ChannelReport(component, state)])
    assert only(StockFirmwareTelemetryReport, reports), "the readings stay"


@pytest.mark.parametrize(
    ("topic", "payload"),
    [
        ("switch/relay/state", "ON"),
        ("switch/pump/state", "perhaps"),
        ("light/lamp/state", "broken"),
        ("cover/blind/tilt/state", "20"),
        ("cover/blind/position/state", "nan"),
        ("fan/ceiling/speed_level/state", "inf"),
        ("climate/heating/current_temperature/state", "20.5"),
        ("climate/heating/target_temperature/state", "nan"),
        ("binary_sensor/door/state", "ON"),
        ("number/level/state", "42.5"),
        ("select/mode/state", "3"),
        ("switch/" + "n" * 60 + "/state", "ON"),
    ],
)
def test_what_is_no_channel_names_none(board: Board, topic: str, payload: str) -> None:
    reports = board.says(topic, payload)
    assert only(ChannelsReport, reports) == []
    assert only(ChannelReport, reports) == []


@pytest.mark.parametrize(
    ("word", "action"),
    [
        ("press", InputAction.SINGLE),
        ("double_press", InputAction.DOUBLE),
        ("triple_click", InputAction.TRIPLE),
        ("hold", InputAction.LONG),
    ],
)
def test_an_event_of_a_button_is_a_press(board: Board, word: str, action: InputAction) -> None:
    reports = board.says("event/doorbell/state", {"event_type": word})
    assert only(ChannelsReport, reports) == [
        ChannelsReport((DeclaredChannel(None, ChannelKind.INPUT, "doorbell", "event/doorbell"),), is_complete=False)
    ]
    assert only(InputReport, reports) == [InputReport("event/doorbell", action)]
    assert readings(reports) == [
        [{"m": {"event.doorbell": action.value}}, {"m": {"event.doorbell": "NONE"}, "ts": board.now_ms + 1}],
        {"m": {"event.doorbell.event_type": word}},
    ]


def test_a_retained_event_is_no_press_and_is_told(board: Board) -> None:
    reports = board.says("event/doorbell/state", {"event_type": "press"}, retain=True)
    assert only(InputReport, reports) == []
    assert [drop.code for drop in only(UnreadableMessage, reports)] == ["RETAINED_PRESS"]
    assert metrics(reports) == {"event.doorbell.event_type": "press"}


def test_another_event_is_a_reading(board: Board) -> None:
    reports = board.says("event/doorbell/state", {"event_type": "rotated"})
    assert [type(report) for report in reports] == [StockFirmwareTelemetryReport]


PUMP = {"channel": 2, "component": "switch/pump"}
LAMP = {"channel": 3, "kind": ChannelKind.LEVEL, "component": "light/lamp"}
STRIP = {"channel": 4, "kind": ChannelKind.COLOR, "component": "light/strip"}
FAN = {"channel": 5, "kind": ChannelKind.LEVEL, "component": "fan/ceiling"}
BLIND = {"channel": 6, "kind": ChannelKind.COVER, "component": "cover/blind"}
VALVE = {"channel": 7, "kind": ChannelKind.COVER, "component": "valve/water"}
HEATING = {"channel": 8, "kind": ChannelKind.CLIMATE, "component": "climate/heating"}


@pytest.mark.parametrize(
    ("cmd", "params", "channel", "messages"),
    [
        ("ON", None, {}, [("switch/relay/command", "ON"), ("ask/relay/command", "exe_1")]),
        ("OFF", None, PUMP, [("switch/pump/command", "OFF"), ("ask/switch/command", "exe_1 pump")]),
        ("TOGGLE", None, LAMP, [("light/lamp/command", {"state": "TOGGLE"})]),
        ("SET_LEVEL", {"level": 60}, LAMP, [("light/lamp/command", {"state": "ON", "brightness": 153})]),
        (
            "SET_LEVEL",
            {"level": 1, "seconds": 2.6},
            LAMP,
            [("light/lamp/command", {"state": "ON", "brightness": 3, "transition": 3})],
        ),
        ("SET_LEVEL", {"level": 0}, LAMP, [("light/lamp/command", {"state": "OFF"})]),
        (
            "SET_COLOR",
            {"color": "#ff8800"},
            STRIP,
            [("light/strip/command", {"state": "ON", "color": {"r": 255, "g": 136, "b": 0}})],
        ),
        (
            "SET_COLOR",
            {"kelvin": 4000, "level": 100},
            STRIP,
            [("light/strip/command", {"state": "ON", "brightness": 255, "color_temp": 250})],
        ),
        ("ON", None, FAN, [("fan/ceiling/command", "ON")]),
        ("SET_LEVEL", {"level": 3}, FAN, [("fan/ceiling/command", "ON"), ("fan/ceiling/speed_level/command", "3")]),
        ("SET_LEVEL", {"level": 0}, FAN, [("fan/ceiling/command", "OFF")]),
        ("OPEN", None, BLIND, [("cover/blind/command", "OPEN")]),
        ("STOP", None, VALVE, [("valve/water/command", "STOP")]),
        ("SET_POSITION", {"position": 0}, BLIND, [("cover/blind/position/command", "0")]),
        ("SET_TARGET", {"celsius": 21.5}, HEATING, [("climate/heating/target_temperature/command", "21.5")]),
        ("SET_MODE", {"mode": "AUTO"}, HEATING, [("climate/heating/mode/command", "heat_cool")]),
    ],
)
def test_a_command_goes_to_the_topic_of_its_component(
    board: Board, cmd: str, params: Any, channel: dict[str, Any], messages: list[tuple[str, Any]]
) -> None:
    sent = [
        (topic, json.loads(payload) if payload[:1] == "{" else payload) for topic, payload in board.send(cmd, params, **channel)
    ]
    assert sent == messages


@pytest.mark.parametrize(
    ("cmd", "params", "channel"),
    [
        ("ON", None, {"channel": 2}),
        ("ON", None, {"kind": ChannelKind.LEVEL}),
        ("ON", None, BLIND),
        ("OPEN", None, LAMP),
        ("STATUS", None, {}),
        ("SET_LEVEL", {"level": 60}, PUMP),
        ("SET_LEVEL", {"level": -1}, FAN),
        ("SET_COLOR", {"color": "#ff8800"}, LAMP),
        ("SET_COLOR", {"level": 4}, STRIP),
        ("SET_POSITION", {"position": 101}, BLIND),
        ("SET_MODE", {"mode": "TURBO"}, HEATING),
        ("SET_TARGET", {}, HEATING),
        ("PRESS", None, {"channel": 9, "kind": ChannelKind.INPUT, "component": "event/doorbell"}),
    ],
)
def test_what_a_component_cannot_do_is_not_sent(board: Board, cmd: str, params: Any, channel: dict[str, Any]) -> None:
    assert board.send(cmd, params, **channel) == []


def test_only_the_question_is_optional(board: Board) -> None:
    command = OutboundCommand("exe_1", "ON", None, NOW + 60_000, **PUMP)  # type: ignore[arg-type]
    messages = board.codec.encode_command(FirmwareProfile.ESPHOME, DEVICE, command, NOW)
    assert [message.is_optional for message in messages] == [False, True]


@pytest.mark.parametrize(
    ("topic", "said", "relay"),
    [("answer/switch", "exe_1 pump ON", True), ("answer/switch", "exe_1 a pump OFF", False), ("answer/relay", "exe_1 ON", True)],
)
def test_a_switch_that_is_asked_answers_with_the_id(board: Board, topic: str, said: str, relay: bool) -> None:
    assert board.says(topic, said) == [CommandResultReport("exe_1", "done", relay=relay)]


@pytest.mark.parametrize("odd", ["", "exe_1", "exe_1 pump", "exe_1 pump on", "ON "])
def test_an_odd_answer_is_told(board: Board, odd: str) -> None:
    assert [type(report) for report in board.says("answer/switch", odd)] == [UnreadableMessage]


def results(reports: list[DeviceReport]) -> list[tuple[str, str, bool | None]]:
    return [(report.execution_id, report.status, report.relay) for report in only(CommandResultReport, reports)]


DONE = [("exe_1", "done", None)]
LIT = [("exe_1", "done", True)]


@pytest.mark.parametrize(
    ("cmd", "params", "channel", "topic", "wanted", "others", "done"),
    [
        (
            "SET_LEVEL",
            {"level": 60},
            LAMP,
            "light/lamp/state",
            lamp(brightness=153),
            [lamp(brightness=20), lamp(state="OFF")],
            LIT,
        ),
        (
            "SET_LEVEL",
            {"level": 0},
            LAMP,
            "light/lamp/state",
            lamp(state="OFF", brightness=153),
            [lamp(brightness=20)],
            [("exe_1", "done", False)],
        ),
        (
            "SET_COLOR",
            {"color": "#ff8701"},
            STRIP,
            "light/strip/state",
            lamp(**RGB),
            [lamp(**WHITE), lamp(**RGB, state="OFF")],
            LIT,
        ),
        ("SET_COLOR", {"kelvin": 4000}, STRIP, "light/strip/state", lamp(**WHITE), [lamp(**WHITE, state="OFF")], LIT),
        ("SET_LEVEL", {"level": 50}, FAN, "fan/ceiling/speed_level/state", "50", ["nan", "20"], DONE),
        ("OPEN", None, BLIND, "cover/blind/state", "opening", ["closing", "closed"], DONE),
        ("CLOSE", None, BLIND, "cover/blind/state", "closed", ["opening", "open"], DONE),
        ("STOP", None, BLIND, "cover/blind/state", "open", ["opening", "closing"], DONE),
        ("SET_POSITION", {"position": 55}, BLIND, "cover/blind/position/state", "55", ["54"], DONE),
        ("SET_POSITION", {"position": 55}, BLIND, "cover/blind/state", "closing", ["open"], DONE),
        ("SET_TARGET", {"celsius": 21.3}, HEATING, "climate/heating/target_temperature/state", "21.5", ["19", "nan"], DONE),
        ("SET_MODE", {"mode": "AUTO"}, HEATING, "climate/heating/mode/state", "auto", ["heat"], DONE),
    ],
)
def test_a_command_is_done_with_the_first_state_that_it_wanted(
    board: Board, cmd: str, params: Any, channel: dict[str, Any], topic: str, wanted: Any, others: list[Any], done: Any
) -> None:
    board.says(topic, wanted)
    board.send(cmd, params, **channel)
    for other in others:
        assert results(board.says(topic, other)) == []
    kind, name, *rest = topic.split("/")
    assert results(board.says("/".join((kind, f"{name}_2", *rest)), wanted)) == [], "of another component"
    assert results(board.says(topic, wanted)) == done
    assert results(board.says(topic, wanted)) == [], "once"


def test_a_state_after_the_deadline_confirms_nothing(board: Board) -> None:
    board.send("OPEN", **BLIND)
    assert results(board.says("cover/blind/state", "opening", after_ms=60_000)) == []


def test_after_a_restart_of_the_service_a_state_confirms_nothing(board: Board) -> None:
    board.send("OPEN", **BLIND)
    assert results(Board(FirmwareProfile.ESPHOME).says("cover/blind/state", "opening")) == []


def test_what_is_remembered_is_bounded(board: Board) -> None:
    for number in range(200):
        board.send("OPEN", execution_id=f"exe_{number}", **BLIND)
    assert len(board.codec._memories[FirmwareProfile.ESPHOME, DEVICE].sent) == 64


@pytest.mark.parametrize(
    "topic_filter",
    [
        "switch/pump/command",
        "light/lamp/command",
        "fan/ceiling/speed_level/command",
        "cover/blind/position/command",
        "climate/heating/target_temperature/command",
    ],
)
def test_a_board_without_a_relay_hears_commands_too(board: Board, topic_filter: str) -> None:
    assert board.codec.is_command_subscription(FirmwareProfile.ESPHOME, topic_filter)


@pytest.mark.parametrize(
    "topic_filter", ["ask/relay/command", "number/level/command", "button/restart/command", "switch/command"]
)
def test_other_subscriptions_are_none_for_commands(board: Board, topic_filter: str) -> None:
    assert not board.codec.is_command_subscription(FirmwareProfile.ESPHOME, topic_filter)
