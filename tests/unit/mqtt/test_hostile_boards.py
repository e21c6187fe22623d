"""Whatever a board puts into a documented message, decoding never raises, and what a command says goes to its own channel only."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from domain.commands.model import CHANNEL_COMMANDS, built_in_for
from domain.devices.channels import ChannelKind
from domain.devices.messages import ChannelReport, CommandResultReport
from domain.devices.model import FirmwareProfile
from support.boards import Board, only
from support.firmware_messages import ESPHOME, SHELLY, TASMOTA

MESSAGES = {FirmwareProfile.TASMOTA: TASMOTA, FirmwareProfile.SHELLY: SHELLY, FirmwareProfile.ESPHOME: ESPHOME}
FURTHER = {
    FirmwareProfile.TASMOTA: [
        ("stat/STATUS13", '{"StatusSHT":{"SHT0":{"Relay1":1,"Relay2":2}}}'),
        ("stat/STATUS3", '{"StatusLOG":{"SetOption":["00008009","28","40000080"]}}'),
        ("tele/STATE", '{"POWER1":"ON","POWER2":"ON","Dimmer":1,"HSBColor":"1,2,3","White":1,"CT":200,"Uptime":"0T00:10:07"}'),
    ],
    FirmwareProfile.SHELLY: [
        ("answer/rpc", '{"id":"all-status","result":{"switch:0":{"id":0,"output":true},"input:0":{"id":0,"state":null}}}'),
        ("answer/rpc", '{"id":"all-config","result":{"switch:0":{"name":"Pump"}}}'),
        ("answer/rpc", '{"id":"question:light:0","result":{"id":0,"output":true,"brightness":5}}'),
    ],
    FirmwareProfile.ESPHOME: [("answer/switch", "exe_1 pump ON")],
}
ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    1e308,
    -1e308,
    5e-324,
    10**15,
    "",
    "-",
    "x" * 300,
    "\u0000",
    "1,2,3",
    [],
    [[]],
    {},
    {"": None},
]
WORDS = ["", "nan", "inf", "-inf", "1e400", "ON ON", "\x00", "{", "[]", "{}", "null", "[" * 2000, "9" * 400]


def variants(value: Any) -> Iterator[Any]:
    """The document with one part of it replaced by something odd."""
    yield from ODD
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        for odd in variants(part):
            changed = value.copy()
            changed[key] = odd
            yield changed


@pytest.mark.parametrize("profile", MESSAGES)
def test_no_message_raises(profile: FirmwareProfile) -> None:
    board = Board(profile)
    count = 0
    for topic, payload in [*MESSAGES[profile].values(), *FURTHER[profile]]:
        try:
            documents = [json.dumps(each) for each in variants(json.loads(payload))]
        except ValueError:
            documents = []
        for raw in (payload, *documents, *WORDS):
            for retain in (False, True):
                count += 1
                for report in only(ChannelReport, board.says(topic, raw, retain)):
                    assert report.state.level is None or 0 <= report.state.level <= 100
    assert count > 1_000


_SHELLY = {
    ChannelKind.RELAY: "switch",
    ChannelKind.LEVEL: "light",
    ChannelKind.COLOR: "rgb",
    ChannelKind.COVER: "cover",
    ChannelKind.CLIMATE: "thermostat",
}
_ESPHOME = {
    ChannelKind.RELAY: "switch",
    ChannelKind.LEVEL: "fan",
    ChannelKind.COLOR: "light",
    ChannelKind.COVER: "cover",
    ChannelKind.CLIMATE: "climate",
}
NAMES: dict[FirmwareProfile, Callable[[ChannelKind, int], str]] = {
    FirmwareProfile.TASMOTA: lambda kind, n: f"Shutter{n}" if kind is ChannelKind.COVER else f"Dimmer{n}",
    FirmwareProfile.SHELLY: lambda kind, n: f"{_SHELLY[kind]}:{n - 1}",
    FirmwareProfile.ESPHOME: lambda kind, n: f"{_ESPHOME[kind]}/part_{n}",
}
PARAMS = {
    "SET_LEVEL": {"level": 40},
    "SET_COLOR": {"color": "#ff0000"},
    "SET_POSITION": {"position": 40},
    "SET_TARGET": {"celsius": 20},
    "SET_MODE": {"mode": "HEAT"},
}
COMMANDS = ["ON", "OFF", "TOGGLE", *(each.name for each in CHANNEL_COMMANDS)]
CASES = [
    (profile, kind, cmd)
    for profile in MESSAGES
    for kind in _SHELLY
    for cmd in COMMANDS
    if built_in_for(cmd, kind) is not None and not (profile is FirmwareProfile.TASMOTA and kind is ChannelKind.CLIMATE)
]
TOUCHED = {
    FirmwareProfile.TASMOTA: re.compile(r"(?:Power|Dimmer|Shutter(?:Open|Close|Stop|Position))(\d+) ?"),
    FirmwareProfile.SHELLY: re.compile(r'"params":\{"id":(\d+)'),
    FirmwareProfile.ESPHOME: re.compile(r"(?:part_|exe_1 part_)(\d+)"),
}


@pytest.mark.parametrize(("profile", "kind", "cmd"), CASES)
def test_a_command_for_one_channel_touches_no_other(profile: FirmwareProfile, kind: ChannelKind, cmd: str) -> None:
    board = Board(profile)
    for channel in (1, 2, 7):
        messages = board.send(cmd, PARAMS.get(cmd), channel=channel, kind=kind, component=NAMES[profile](kind, channel))
        assert messages, "each command of the kind is sent"
        touched = {int(number) for topic, payload in messages for number in TOUCHED[profile].findall(f"{topic} {payload}")}
        assert touched <= {channel - 1 if profile is FirmwareProfile.SHELLY else channel}
        assert touched or (profile is FirmwareProfile.TASMOTA and cmd == "SET_COLOR"), "a board has one light with a colour"


def own_states(channel: int) -> list[tuple[FirmwareProfile, str, Any]]:
    return [
        (FirmwareProfile.TASMOTA, "stat/RESULT", {f"POWER{channel}": "ON"}),
        (FirmwareProfile.TASMOTA, f"stat/POWER{channel}", "ON"),
        (FirmwareProfile.SHELLY, f"status/switch:{channel - 1}", {"id": channel - 1, "output": True}),
        (FirmwareProfile.ESPHOME, f"switch/part_{channel}/state", "ON"),
    ]


@pytest.mark.parametrize(("profile", "topic", "payload"), [one for channel in (1, 2, 3) for one in own_states(channel)])
def test_a_state_of_one_channel_carries_no_command_of_another(profile: FirmwareProfile, topic: str, payload: Any) -> None:
    """Tasmota's and ESPHome's states name no command; whose they are, the channel of the report says."""
    board = Board(profile)
    said = int(re.findall(r"\d+", f"{topic} {json.dumps(payload)}")[0]) + (profile is FirmwareProfile.SHELLY)
    for channel in (1, 2, 3):
        board.send("ON", execution_id=f"exe_{channel}", channel=channel, component=NAMES[profile](ChannelKind.RELAY, channel))
        if profile is FirmwareProfile.TASMOTA:
            board.says("stat/ACK", f"exe_{channel} {channel}" if channel != 1 else "exe_1")
    found = {report.execution_id for report in only(CommandResultReport, board.says(topic, payload))}
    assert found == ({f"exe_{said}"} if profile is FirmwareProfile.TASMOTA else set())
