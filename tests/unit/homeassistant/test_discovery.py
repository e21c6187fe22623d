"""Which commands Home Assistant can show, what its payloads mean, and which topics of an earlier run are cleared: ours, also those of
entities without a state; never those of others."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from domain.commands.model import BUILT_IN_COMMANDS, CommandDefinition, CommandKind, CommandWidget
from domain.devices.channels import Channel, ChannelKind
from domain.homeassistant.discovery import (
    MAX_ENTITIES,
    HomeAssistantCommandEntity,
    HomeAssistantTopics,
    command_entities,
    find_stale_topics,
)
from domain.kernel.ids import AccountId


def define(shape: str, schema: Any = None, name: str = "LEVEL") -> CommandDefinition:
    return CommandDefinition(
        None, None, None, None, name, name, None, CommandKind.ACTION, schema, CommandWidget(shape), requires_approval=False
    )


def entity(shape: str, schema: Any = None) -> HomeAssistantCommandEntity | None:
    return next(iter(command_entities([define(shape, schema)])), None)


def one(**schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"value": schema}, "required": ["value"]}


@pytest.mark.parametrize(
    ("shape", "schema", "component", "config"),
    [
        ("BUTTON", None, "button", {"payload_press": "PRESS"}),
        ("BUTTON", {"properties": {"note": {}}}, "button", {"payload_press": "PRESS"}),
        ("NUMBER", one(type="integer", minimum=0, maximum=9), "number", {"min": 0, "max": 9, "mode": "box", "step": 1}),
        ("NUMBER", one(type="number", minimum=-1.5, maximum=2), "number", {"min": -1.5, "max": 2, "mode": "box", "step": 0.1}),
        ("NUMBER", one(minimum=0, maximum=9, multipleOf=0.5), "number", {"min": 0, "max": 9, "mode": "box", "step": 0.5}),
        ("NUMBER", one(minimum=0, maximum=1, multipleOf=1e-6), "number", {"min": 0, "max": 1, "mode": "box"}),
        ("SELECT", one(enum=["a", "b"]), "select", {"options": ["a", "b"]}),
    ],
)
def test_a_command_with_one_value_is_an_entity(shape: str, schema: Any, component: str, config: Any) -> None:
    found = entity(shape, schema)
    assert found is not None
    assert (found.component, found.config) == (component, config)


@pytest.mark.parametrize(
    ("shape", "schema"),
    [
        ("BUTTON", one(type="integer")),
        ("NUMBER", None),
        ("NUMBER", one(type="integer", minimum=0)),
        ("NUMBER", one(minimum=5, maximum=5)),
        ("NUMBER", one(minimum="0", maximum="9")),
        ("NUMBER", {"properties": {"a": {"minimum": 0, "maximum": 1}, "b": {}}}),
        ("NUMBER", {"properties": {"a": {"minimum": 0, "maximum": 1}}, "required": ["a", "b"]}),
        ("SELECT", one(enum=[])),
        ("SELECT", one(enum=["a", 1])),
        ("SELECT", one(enum=[str(number) for number in range(65)])),
        ("SELECT", {"properties": {"a": True}}),
        ("TOGGLE", None),
        ("MULTI", one(enum=["a"])),
    ],
)
def test_a_command_that_needs_more_or_nothing_known_is_not_shown(shape: str, schema: Any) -> None:
    assert entity(shape, schema) is None


def test_the_relay_is_a_switch_and_the_number_of_entities_is_bounded() -> None:
    assert command_entities(BUILT_IN_COMMANDS) == []
    many = command_entities([define("BUTTON", name=f"B{number:03}") for number in range(100)])
    assert [each.definition.name for each in many] == [f"B{number:03}" for number in range(MAX_ENTITIES)]


def test_a_command_for_certain_channels_has_an_entity_for_each() -> None:
    channels = (Channel(1, ChannelKind.RELAY), Channel(2, ChannelKind.COVER), Channel(3, ChannelKind.RELAY))
    given = [replace(define("BUTTON", name="OPEN"), channels=(1, 2, 9)), define("BUTTON", name="BEEP")]
    found = [(each.definition.name, each.channel.channel) for each in command_entities(given, channels)]
    assert found == [("BEEP", 1), ("OPEN", 1)]  # the cover has OPEN itself, and there is no channel 9
    given = [replace(define("BUTTON"), channels=(3,)), define("BUTTON")]
    assert [each.channel.channel for each in command_entities(given, channels)] == [1, 3]


def test_payloads_become_parameters() -> None:
    number, select, button = entity("NUMBER", one(minimum=0, maximum=9)), entity("SELECT", one(enum=["a"])), entity("BUTTON")
    assert number is not None
    assert select is not None
    assert button is not None
    assert [number.parse_params(text) for text in ("4", "4.0", "4.5")] == [{"value": 4}, {"value": 4}, {"value": 4.5}]
    assert (select.parse_params("a"), button.parse_params("PRESS")) == ({"value": "a"}, None)
    for wrong in ("", "x", "nan", "inf", "1e999"):
        with pytest.raises(ValueError):
            number.parse_params(wrong)
    with pytest.raises(ValueError, match="PRESS"):
        button.parse_params("ON")


OURS = AccountId("acc_1")
BASE = "latchboard/acc_1/dev_1"
AVAILABILITY = [{"topic": "latchboard/acc_1/status"}, {"topic": f"{BASE}/availability"}]


def stale(**config: Any) -> frozenset[str]:
    topic = "homeassistant/button/dev_1/BEEP/config"
    return find_stale_topics([OURS], topic, json.dumps({"availability": AVAILABILITY, **config}).encode()) - {topic}


def test_an_entity_is_cleared_with_all_its_states() -> None:
    assert stale(command_topic=f"{BASE}/set/BEEP") == {f"{BASE}/availability"}
    assert stale(state_topic=f"{BASE}/approvals", json_attributes_topic=f"{BASE}/approvals/commands") == {
        *(f"{BASE}/availability", f"{BASE}/approvals", f"{BASE}/approvals/commands")
    }


@pytest.mark.parametrize(
    "config",
    [
        {"availability": [{"topic": "latchboard/acc_2/status"}]},
        {"state_topic": "latchboard/acc_2/dev_1/relay"},
        {"json_attributes_topic": "zigbee2mqtt/lamp"},
        {"state_topic": f"{BASE}/#"},
        {"state_topic": 5},
        {"availability": 5},
    ],
)
def test_an_entity_of_somebody_else_is_left(config: dict[str, Any]) -> None:
    assert find_stale_topics([OURS], "t/config", json.dumps({"availability": AVAILABILITY, **config}).encode()) == frozenset()


@pytest.mark.parametrize(
    ("topic", "found"),
    [
        (f"{BASE}x/set", None),
        ("latchboard/acc_1/dev_abcdefghij0123456789/set", ("dev_abcdefghij0123456789", None, 1)),
        ("latchboard/acc_1/dev_abcdefghij0123456789/set/channel/2", ("dev_abcdefghij0123456789", None, 2)),
        ("latchboard/acc_1/dev_abcdefghij0123456789/set/LEVEL", ("dev_abcdefghij0123456789", "LEVEL", 1)),
        ("latchboard/acc_1/dev_abcdefghij0123456789/set/LEVEL/12", ("dev_abcdefghij0123456789", "LEVEL", 12)),
        ("latchboard/acc_1/dev_abcdefghij0123456789/set/LEVEL/x", None),
        ("latchboard/acc_1/dev_abcdefghij0123456789/set/LEVEL/0", None),
        ("latchboard/acc_1/dev_abcdefghij0123456789/set/channel", None),
        ("latchboard/acc_1/dev_abcdefghij0123456789/set/channel/100", None),
        ("latchboard/acc_1/dev_abcdefghij0123456789/set/", None),
        ("dev_abcdefghij0123456789/set", None),
        ("latchboard/acc_1/dev_abcdefghij0123456789/set/level", None),
        ("latchboard/acc_2/dev_abcdefghij0123456789/set/LEVEL", None),
    ],
)
def test_a_command_topic_names_a_device_a_command_and_a_channel(topic: str, found: Any) -> None:
    assert HomeAssistantTopics("homeassistant", OURS).parse_command_topic(topic) == found
