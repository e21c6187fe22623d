"""Which entity a channel is in Home Assistant, what of its state it shows, and what its payloads mean."""

from __future__ import annotations

import json
from typing import Any

import pytest

from domain.devices.channels import Channel, ChannelKind, ChannelState
from domain.homeassistant.channels import channel_entity, parse_channel_command
from support.storage import a_device


def shown(kind: str, state: ChannelState | None = None, **device: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    entity = channel_entity(a_device("acc_1", "prj_1", **device), Channel(2, ChannelKind(kind), state=state or ChannelState()))
    return entity.component, dict(entity.states), dict(entity.config)


@pytest.mark.parametrize(
    ("kind", "state", "component", "states"),
    [
        ("RELAY", ChannelState(on=False), "switch", {"state_topic": "OFF"}),
        ("RELAY", None, "switch", {"state_topic": None}),
        ("LEVEL", None, "light", {"state_topic": None}),
        ("COVER", None, "cover", {"state_topic": None, "position_topic": None}),
        ("COVER", ChannelState(level=0), "cover", {"state_topic": "closed", "position_topic": "0"}),
        (
            "COVER",
            ChannelState(level=1, details={"moving": "CLOSING"}),
            "cover",
            {"state_topic": "closing", "position_topic": "1"},
        ),
        ("CLIMATE", None, "climate", {"temperature_state_topic": None, "mode_state_topic": None}),
        ("INPUT", None, "event", {"state_topic": None}),
        ("INPUT", ChannelState(details={"action": "LONG"}), "event", {"state_topic": None}),
        ("INPUT", ChannelState(details={"action": "OFF"}), "binary_sensor", {"state_topic": "OFF"}),
    ],
)
def test_a_channel_is_the_entity_of_its_kind(kind: str, state: ChannelState | None, component: str, states: Any) -> None:
    assert shown(kind, state)[:2] == (component, states)


def test_a_light_tells_its_colour_or_its_white_and_a_dimmer_neither() -> None:
    white = ChannelState(on=True, level=50, details={"kelvin": 2700})
    state = json.loads(shown("COLOR", white)[1]["state_topic"])
    assert state == {"state": "ON", "brightness": 50, "color_mode": "color_temp", "color_temp": 2700}
    assert json.loads(shown("LEVEL", white)[1]["state_topic"]) == {"state": "ON", "brightness": 50}
    assert json.loads(shown("COLOR", ChannelState(level=5))[1]["state_topic"]) == {"state": None, "brightness": 5}


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ({"app_type": "GATE"}, "gate"),
        ({"app_type": "MOTOR"}, "shutter"),
        ({"app_type": "OTHER", "app_type_other": "Garage doors"}, "garage"),
        ({"app_type": "OTHER", "app_type_other": "Gateway"}, None),
        ({"app_type": "PUMP"}, None),
    ],
)
def test_a_cover_has_a_class_where_somebody_named_it(device: dict[str, Any], expected: str | None) -> None:
    assert shown("COVER", **device)[2].get("device_class") == expected


@pytest.mark.parametrize(
    ("kind", "payload", "command"),
    [
        ("RELAY", "ON", ("ON", None)),
        ("RELAY", "TOGGLE", None),
        ("RELAY", "", None),
        ("LEVEL", '{"state": "ON"}', ("ON", None)),
        ("LEVEL", '{"state": "OFF", "brightness": 3}', ("OFF", None)),
        ("LEVEL", '{"state": "ON", "brightness": 0}', ("SET_LEVEL", {"level": 0})),
        ("COLOR", '{"state": "ON", "color_temp": 2700, "brightness": 9}', ("SET_COLOR", {"kelvin": 2700, "level": 9})),
        ("COLOR", '{"state": "ON", "color": {"r": 256, "g": 0, "b": 0}}', None),
        ("COLOR", '{"brightness": 9}', None),
        ("COLOR", "ON", None),
        ("COLOR", "[" * 1000, None),
        ("COLOR", "[1]", None),
        ("COVER", "STOP", ("STOP", None)),
        ("COVER", "0", ("SET_POSITION", {"position": 0})),
        ("COVER", "1e2", None),
        ("COVER", "nan", None),
        ("CLIMATE", "fan_only", ("SET_MODE", {"mode": "FAN_ONLY"})),
        ("CLIMATE", "-18", ("SET_TARGET", {"celsius": -18})),
        ("CLIMATE", "21.5", ("SET_TARGET", {"celsius": 21.5})),
        ("CLIMATE", "boost", None),
        ("INPUT", "ON", None),
    ],
)
def test_payloads_are_commands_of_the_kind(kind: str, payload: str, command: Any) -> None:
    assert parse_channel_command(ChannelKind(kind), payload) == command
