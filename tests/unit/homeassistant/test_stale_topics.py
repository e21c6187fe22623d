"""Which topics of an earlier run are cleared: ours, also those of entities without a state; never those of others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from domain.homeassistant.discovery import HomeAssistantTopics, find_stale_topics
from domain.kernel.ids import AccountId

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
        ("latchboard/acc_1/dev_abcdefghij0123456789/set", ("dev_abcdefghij0123456789", None)),
        ("latchboard/acc_1/dev_abcdefghij0123456789/set/LEVEL", ("dev_abcdefghij0123456789", "LEVEL")),
        ("latchboard/acc_1/dev_abcdefghij0123456789/set/LEVEL/x", None),
        ("latchboard/acc_1/dev_abcdefghij0123456789/set/level", None),
        ("latchboard/acc_2/dev_abcdefghij0123456789/set/LEVEL", None),
    ],
)
def test_a_command_topic_names_a_device_and_a_command(topic: str, found: Any) -> None:
    assert HomeAssistantTopics("homeassistant", OURS).parse_command_topic(topic) == found
