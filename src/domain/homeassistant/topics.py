"""The topics that the bridge uses on Home Assistant's broker."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from domain.kernel.ids import AccountId, DeviceId

TOPIC_ROOT = "latchboard"
_DEVICE_ID = re.compile(r"dev_[a-z0-9]{20,}")

_COMMAND_NAME = re.compile(r"[A-Z0-9_]{1,64}")
RetainedMessages = Mapping[str, str]
"""Topic → payload."""


@dataclass(frozen=True, slots=True)
class HomeAssistantTopics:
    """Topics of an account: discovery messages below `discovery_prefix` (`homeassistant`), all others below
    `latchboard/<account>`."""

    discovery_prefix: str
    account_id: AccountId

    @property
    def base_topic(self) -> str:
        return f"{TOPIC_ROOT}/{self.account_id}"

    @property
    def status_topic(self) -> str:
        return f"{self.base_topic}/status"

    @property
    def command_filter(self) -> str:
        """Matches `…/set`, of the relay, and `…/set/<command>`."""
        return f"{self.base_topic}/+/set/#"

    def discovery_topic(self, component: str, *below: str) -> str:
        return "/".join((self.discovery_prefix, component, *below, "config"))

    def device_topic(self, device_id: DeviceId, below: str) -> str:
        return f"{self.base_topic}/{device_id}/{below}"

    def parse_command_topic(self, topic: str) -> tuple[DeviceId, str | None] | None:
        """The device of a command topic, and the command that it names (None: the relay's); None for any other topic."""
        parts = topic.removeprefix(self.base_topic + "/").split("/")
        if not topic.startswith(self.base_topic + "/") or parts[1:2] != ["set"] or not _DEVICE_ID.fullmatch(parts[0]):
            return None
        if len(parts) == 2:
            return DeviceId(parts[0]), None
        return (DeviceId(parts[0]), parts[2]) if len(parts) == 3 and _COMMAND_NAME.fullmatch(parts[2]) else None


def discovery_filters(prefix: str) -> tuple[str, ...]:
    """Topic filters that match our discovery messages."""
    return (
        f"{prefix}/switch/+/config",
        f"{prefix}/sensor/+/config",
        *(f"{prefix}/{component}/+/+/config" for component in ("sensor", "button", "number", "select")),
    )


def find_stale_topics(accounts: Collection[AccountId], topic: str, payload: bytes) -> frozenset[str]:
    """The topic and the topics that its discovery message names, if they belong to one of these accounts; else nothing.

    The broker is shared: other programs, other Latchboards included, may publish anything there."""
    parts = topic.split("/")
    if parts[0] == TOPIC_ROOT:
        return frozenset({topic}) if parts[1:2] and parts[1] in accounts else frozenset()
    try:
        named = _named_topics(json.loads(payload))
    except (ValueError, LookupError, TypeError, RecursionError, AttributeError):
        return frozenset()
    bases = tuple(f"{TOPIC_ROOT}/{account_id}/" for account_id in accounts)
    if not all(isinstance(name, str) and name.startswith(bases) and "+" not in name and "#" not in name for name in named):
        return frozenset()
    return frozenset({topic, *named} - {base + "status" for base in bases})


def _named_topics(config: Mapping[str, Any]) -> list[Any]:
    """Where its states are, retained. Every entity has an availability."""
    states = [config[name] for name in ("state_topic", "json_attributes_topic") if name in config]
    return [*states, *(each["topic"] for each in config["availability"])]
