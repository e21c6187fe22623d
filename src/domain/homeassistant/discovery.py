"""What Home Assistant shows of a device, by MQTT discovery: the topics, the messages and states, all retained, and its commands.

Each channel is an entity of its kind (`channels.py`). A command of the user's own is shown if it needs no parameter (button), or
exactly one: a number with limits, or a choice of texts. Other commands stay with the dashboard and the API. A refusal is the
state of a sensor, because MQTT has no answer that Home Assistant would show.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from domain.commands.model import CommandDefinition, CommandWidget, built_in_for
from domain.devices.channels import RELAY_CHANNEL, Channel, ChannelKind, on_channel
from domain.devices.model import Device, DeviceStatus
from domain.homeassistant.channels import PRESSES, channel_entity
from domain.kernel.clock import to_iso
from domain.kernel.domain_event import Json, JsonObject
from domain.kernel.ids import AccountId, DeviceId
from domain.rules.model import LatestReading, MetricValue

TOPIC_ROOT = "latchboard"
_COMMAND_TOPIC = re.compile(r"(dev_[a-z0-9]{20,})/set(?:/channel/([1-9]\d?)|/([A-Z0-9_]{1,64})(?:/([1-9]\d?))?)?", re.ASCII)
PRESS: Final = "PRESS"
MAX_OPTIONS: Final = 64
MIN_STEP: Final = 0.001
"""Of Home Assistant."""
MAX_ENTITIES: Final = 32
"""Per device; the first ones by name."""
COMMAND_EXPIRY_S: Final = 60
"""Home Assistant gives it to the broker with each command: one that could not be delivered in this time never arrives."""
MAX_STATE = 255
"""Of Home Assistant, characters."""
MAX_SENSORS = 64
"""Per device; the metrics that it reported first."""
_STATE_OPTIONS: Final = ("state_topic", "json_attributes_topic", "position_topic", "mode_state_topic", "temperature_state_topic")
_READ_COMPONENTS: Final = ("sensor", "binary_sensor")
ONLY_RELAY: Final = Channel(RELAY_CHANNEL, ChannelKind.RELAY)
_UNITS = {
    "celsius": ("°C", "temperature"),
    "c": ("°C", "temperature"),
    "°c": ("°C", "temperature"),
    "fahrenheit": ("°F", "temperature"),
    "°f": ("°F", "temperature"),
    "w": ("W", "power"),
    "watt": ("W", "power"),
    "kw": ("kW", "power"),
    "va": ("VA", "apparent_power"),
    "v": ("V", "voltage"),
    "volt": ("V", "voltage"),
    "mv": ("mV", "voltage"),
    "a": ("A", "current"),
    "ma": ("mA", "current"),
    "ampere": ("A", "current"),
    "kwh": ("kWh", "energy"),
    "wh": ("Wh", "energy"),
    "mwh": ("MWh", "energy"),
    "hz": ("Hz", "frequency"),
    "hpa": ("hPa", "atmospheric_pressure"),
    "%": ("%", None),
    "percent": ("%", None),
}
_UNIT_CASES = {"MW": ("MW", "power"), "mWh": ("mWh", None)}
"""Units that differ from another one only by case."""
_UNSAFE_IN_TOPIC = re.compile(r"[^A-Za-z0-9_-]")

RetainedMessages = Mapping[str, str]
"""Topic → payload."""


@dataclass(frozen=True, slots=True)
class RefusedCommand:
    """A command of Home Assistant that was not accepted, and why. `at_ms`: Unix ms."""

    command: str
    channel: int
    code: str
    message: str
    at_ms: int


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
        """Matches every topic that `parse_command_topic` knows."""
        return f"{self.base_topic}/+/set/#"

    def discovery_topic(self, component: str, *below: str) -> str:
        return "/".join((self.discovery_prefix, component, *below, "config"))

    def device_topic(self, device_id: DeviceId, below: str) -> str:
        return f"{self.base_topic}/{device_id}/{below}"

    def channel_topic(self, device_id: DeviceId, channel: Channel, option: str) -> str:
        """Of the state that this option of an entity names."""
        if channel.channel == RELAY_CHANNEL and channel.kind is ChannelKind.RELAY:
            return self.device_topic(device_id, "relay")
        return self.device_topic(device_id, f"channel/{channel.channel}/{option.split('_')[0]}")

    def parse_command_topic(self, topic: str) -> tuple[DeviceId, str | None, int] | None:
        """The device of a command topic, the command that it names (None: the payload does), and the channel: `…/set` of channel
        1, `…/set/channel/<number>`, `…/set/<command>` of channel 1, `…/set/<command>/<number>`. None for any other topic."""
        found = _COMMAND_TOPIC.fullmatch(topic.removeprefix(self.base_topic + "/"))
        if found is None or not topic.startswith(self.base_topic + "/"):
            return None
        device_id, number, name, number_of_name = found.groups()
        return DeviceId(device_id), name, int(number or number_of_name or RELAY_CHANNEL)


def retained_messages(
    topics: HomeAssistantTopics,
    device: Device,
    readings: Iterable[LatestReading],
    definitions: Sequence[CommandDefinition],
    waiting: Sequence[str],
    refused: RefusedCommand | None = None,
) -> RetainedMessages:
    """All retained messages of a device; none for a device that may not connect. `definitions`: of its commands; `waiting`: the
    names of those that wait for approval; `refused`: the last one that was refused."""
    if device.status is not DeviceStatus.ACTIVE:
        return {}
    shared = _shared_config(topics, device)
    return {
        **_channels(topics, device, shared),
        **_sensors(topics, device, shared, readings),
        **_commands(topics, device, shared, definitions),
        **_approvals(topics, device, shared, definitions, waiting),
        **({} if refused is None else _refusal(topics, device, shared, refused)),
    }


def _shared_config(topics: HomeAssistantTopics, device: Device) -> dict[str, Json]:
    availability: Json = [{"topic": topics.status_topic}, {"topic": topics.device_topic(device.device_id, "availability")}]
    about: dict[str, Json] = {"device": _device_info(device), "origin": {"name": "Latchboard"}, "availability": availability}
    return about | {"availability_mode": "all"}


def _channels(topics: HomeAssistantTopics, device: Device, shared: dict[str, Json]) -> dict[str, str]:
    """The relay of a device that has one only is the device itself, and needs no name."""
    messages = {topics.device_topic(device.device_id, "availability"): "online" if device.is_online else "offline"}
    channels = device.all_channels
    for each in channels:
        entity = channel_entity(device, each)
        is_relay = each.channel == RELAY_CHANNEL and each.kind is ChannelKind.RELAY
        below = "set" if each.channel == RELAY_CHANNEL else f"set/channel/{each.channel}"
        config = {
            **shared,
            **entity.config,
            "name": None if len(channels) == 1 and is_relay else each.name,
            "unique_id": f"latchboard_{device.device_id}_relay"
            if is_relay
            else f"latchboard_channel_{device.device_id}_{each.channel}",
            **{option: topics.channel_topic(device.device_id, each, option) for option in entity.states},
            **dict.fromkeys(entity.commands, topics.device_topic(device.device_id, below)),
            "qos": 1,
        }
        if entity.commands:
            config["message_expiry_interval"] = COMMAND_EXPIRY_S
        suffix = "" if each.channel == RELAY_CHANNEL else f"_{each.channel}"
        messages[topics.discovery_topic(entity.component, f"{device.device_id}{suffix}")] = _to_json(config)
        messages |= {
            topics.channel_topic(device.device_id, each, option): state
            for option, state in entity.states.items()
            if state is not None
        }
    return messages


def press_message(topics: HomeAssistantTopics, device_id: DeviceId, event: bytes) -> tuple[str, str] | None:
    """Topic and payload for the event entity of an input, of an `input_changed` event. None for a contact: its state is
    retained."""
    payload = json.loads(event)
    if payload["action"] not in PRESSES:
        return None
    channel = Channel(payload["channel"], ChannelKind.INPUT)
    return topics.channel_topic(device_id, channel, "state_topic"), _to_json({"event_type": payload["action"]})


def _sensors(
    topics: HomeAssistantTopics, device: Device, shared: dict[str, Json], readings: Iterable[LatestReading]
) -> dict[str, str]:
    """A boolean is a binary sensor, everything else a sensor."""
    messages = {}
    for reading in list(readings)[:MAX_SENSORS]:
        name = _topic_slug(reading.metric)
        state = topics.device_topic(device.device_id, f"metric/{name}")
        identity = f"latchboard_{device.device_id}_{name}"
        sensor = shared | _measurement_config(reading) | {"name": reading.metric, "unique_id": identity, "state_topic": state}
        component = "binary_sensor" if isinstance(reading.value, bool) else "sensor"
        messages[topics.discovery_topic(component, device.device_id, name)] = _to_json(sensor)
        messages[state] = _shown_value(reading.value)
    return messages


def _shown_value(value: MetricValue) -> str:
    if isinstance(value, bool):
        return "ON" if value else "OFF"
    return value[:MAX_STATE] if isinstance(value, str) else f"{float(value):.10g}"


def _commands(
    topics: HomeAssistantTopics, device: Device, shared: dict[str, Json], definitions: Sequence[CommandDefinition]
) -> dict[str, str]:
    """Without a state: a device reports what it measures, not which command it got last."""
    messages = {}
    for entity in command_entities(definitions, device.all_channels):
        name, channel = entity.definition.name, entity.channel
        is_first = channel.channel == RELAY_CHANNEL
        label = entity.definition.label
        below = name if is_first else f"{name}-{channel.channel}"
        config = {
            **shared,
            **entity.config,
            "name": label if is_first else f"{label} {channel.name}",
            "unique_id": f"latchboard_command_{device.device_id}_{below}",
            "command_topic": topics.device_topic(device.device_id, f"set/{name}" + ("" if is_first else f"/{channel.channel}")),
            "message_expiry_interval": COMMAND_EXPIRY_S,
            "qos": 1,
        }
        messages[topics.discovery_topic(entity.component, device.device_id, below)] = _to_json(config)
    return messages


def _approvals(
    topics: HomeAssistantTopics,
    device: Device,
    shared: dict[str, Json],
    definitions: Sequence[CommandDefinition],
    waiting: Sequence[str],
) -> dict[str, str]:
    """How many requests wait for a person; for devices with a command that needs approval. There is no button that decides: Home
    Assistant acts as a key, and a key cannot approve."""
    if not waiting and not any(definition.requires_approval for definition in definitions):
        return {}
    state = topics.device_topic(device.device_id, "approvals")
    sensor: dict[str, Json] = {
        **shared,
        "name": "Approvals waiting",
        "unique_id": f"latchboard_approvals_{device.device_id}",
        "state_topic": state,
        "json_attributes_topic": f"{state}/commands",
        "icon": "mdi:account-check",
        "availability": [{"topic": topics.status_topic}],
    }
    return {
        topics.discovery_topic("sensor", f"{device.device_id}_approvals"): _to_json(sensor),
        state: str(len(waiting)),
        f"{state}/commands": _to_json({"commands": list[Json](sorted(waiting))}),
    }


def _refusal(topics: HomeAssistantTopics, device: Device, shared: dict[str, Json], refused: RefusedCommand) -> dict[str, str]:
    state = topics.device_topic(device.device_id, "refusal")
    sensor: dict[str, Json] = {
        **shared,
        "name": "Last refusal",
        "unique_id": f"latchboard_refusal_{device.device_id}",
        "state_topic": state,
        "json_attributes_topic": f"{state}/about",
        "icon": "mdi:hand-back-right-off",
        "entity_category": "diagnostic",
        "availability": [{"topic": topics.status_topic}],
    }
    about: dict[str, Json] = {"command": on_channel(refused.command, refused.channel), "channel": refused.channel}
    return {
        topics.discovery_topic("sensor", f"{device.device_id}_refusal"): _to_json(sensor),
        state: refused.message[:MAX_STATE],
        f"{state}/about": _to_json({**about, "code": refused.code, "message": refused.message, "at": to_iso(refused.at_ms)}),
    }


def _device_info(device: Device) -> dict[str, Json]:
    about: dict[str, Json] = {"identifiers": [f"latchboard_{device.device_id}"], "name": device.name}
    more = {"manufacturer": device.about.manufacturer, "model": device.about.model, "suggested_area": device.about.location}
    return about | {name: value for name, value in more.items() if value}


def _measurement_config(reading: LatestReading) -> dict[str, Json]:
    """Home Assistant rejects a unit that does not fit the device class, so a class is set only together with a known unit."""
    if isinstance(reading.value, str | bool):
        return {}
    config: dict[str, Json] = {"state_class": "measurement"}
    if reading.unit:
        unit, device_class = _UNIT_CASES.get(reading.unit) or _UNITS.get(reading.unit.lower(), (reading.unit[:32], None))
        config["unit_of_measurement"] = unit
        if device_class is not None:
            config["device_class"] = device_class
        if device_class == "energy":
            config["state_class"] = "total_increasing"  # a meter; Home Assistant allows no "measurement" for energy
    return config


def _topic_slug(metric: str) -> str:
    """A metric's name as a topic level; different names give different slugs."""
    plain = _UNSAFE_IN_TOPIC.sub("_", metric)
    if plain == metric and len(metric) <= 64:
        return metric
    return f"{plain[:48]}-{hashlib.sha256(metric.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def _to_json(config: Mapping[str, Json]) -> str:
    return json.dumps(config, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class HomeAssistantCommandEntity:
    """`component`: of Home Assistant. `parameter`: the name of the only parameter; None for a button. `channel`: on which it
    runs."""

    definition: CommandDefinition
    component: str
    parameter: str | None = None
    config: Mapping[str, Json] = field(default_factory=dict)
    channel: Channel = ONLY_RELAY

    def parse_params(self, payload: str) -> JsonObject | None:
        """The command's parameters. Raises ValueError for what Home Assistant does not send."""
        if self.parameter is None:
            if payload != PRESS:
                raise ValueError(f"a button sends {PRESS}")
            return None
        if self.component == "select":
            return {self.parameter: payload}
        number = float(payload)
        if not math.isfinite(number):
            raise ValueError("not a finite number")
        return {self.parameter: int(number) if number.is_integer() else number}


def command_entities(
    definitions: Iterable[CommandDefinition], channels: Sequence[Channel] = (ONLY_RELAY,)
) -> list[HomeAssistantCommandEntity]:
    """Of a device's definitions, by name and channel. Those for certain channels have an entity for each; those for all run on
    channel 1. Built-in commands of a channel's kind are not among them: the channel's own entity has them."""
    known = {each.channel: each for each in channels}
    found = [
        replace(entity, channel=known[number])
        for definition in sorted(definitions, key=lambda each: each.name)
        for number in sorted(definition.channels or (RELAY_CHANNEL,))
        if number in known and built_in_for(definition.name, known[number].kind) is None
        if (entity := _entity(definition)) is not None
    ]
    return sorted(found, key=lambda each: (each.definition.name, each.channel.channel))[:MAX_ENTITIES]


def _entity(definition: CommandDefinition) -> HomeAssistantCommandEntity | None:
    schema = definition.params_schema or {}
    match definition.shape:
        case CommandWidget.BUTTON if not schema.get("required"):
            return HomeAssistantCommandEntity(definition, "button", None, {"payload_press": PRESS})
        case CommandWidget.NUMBER:
            return _number(definition, *_only_property(schema))
        case CommandWidget.SELECT:
            return _select(definition, *_only_property(schema))
        case _:
            return None


def _only_property(schema: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Name and schema of the only parameter; an empty name if there is not exactly one, or another one is required."""
    properties = schema.get("properties")
    if not isinstance(properties, dict) or len(properties) != 1:
        return "", {}
    [(name, found)] = properties.items()
    required = schema.get("required")
    others = set(required) - {name} if isinstance(required, list) else set()
    return (name, found) if isinstance(found, dict) and not others else ("", {})


def _number(definition: CommandDefinition, name: str, schema: Mapping[str, Any]) -> HomeAssistantCommandEntity | None:
    """Home Assistant shows 1 to 100 where a limit is missing, so both are needed."""
    low, high = schema.get("minimum"), schema.get("maximum")
    if not name or not isinstance(low, int | float) or not isinstance(high, int | float) or not low < high:
        return None
    whole = schema.get("type") == "integer"
    step = schema.get("multipleOf", 1 if whole else 0.1)
    config: dict[str, Json] = {"min": low, "max": high, "mode": "box"}
    if isinstance(step, int | float) and step >= MIN_STEP:
        config["step"] = step
    return HomeAssistantCommandEntity(definition, "number", name, config)


def _select(definition: CommandDefinition, name: str, schema: Mapping[str, Any]) -> HomeAssistantCommandEntity | None:
    options = schema.get("enum")
    if not name or not isinstance(options, list) or not 0 < len(options) <= MAX_OPTIONS:
        return None
    if not all(isinstance(option, str) and option for option in options):
        return None
    return HomeAssistantCommandEntity(definition, "select", name, {"options": options})


def discovery_filters(prefix: str) -> tuple[str, ...]:
    """Topic filters that match our discovery messages."""
    return (
        *(f"{prefix}/{component}/+/config" for component in ("switch", "light", "cover", "climate", "event", *_READ_COMPONENTS)),
        *(f"{prefix}/{component}/+/+/config" for component in (*_READ_COMPONENTS, "button", "number", "select")),
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
    states = [config[name] for name in _STATE_OPTIONS if name in config]
    return [*states, *(each["topic"] for each in config["availability"])]
