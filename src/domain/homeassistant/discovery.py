"""What Home Assistant shows of a device: discovery messages and states, all retained."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from domain.commands.model import CommandDefinition
from domain.devices.model import Device, DeviceStatus
from domain.homeassistant.command_entities import command_entities
from domain.homeassistant.topics import HomeAssistantTopics, RetainedMessages
from domain.kernel.domain_event import Json
from domain.rules.model import LatestReading

MAX_SENSORS = 64
"""Per device; the metrics that it reported first."""
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


@dataclass(frozen=True, slots=True)
class HomeAssistantCommandDefinitions:
    """The definitions that apply to a device, and the names of the commands that wait for approval."""

    definitions: Sequence[CommandDefinition] = ()
    waiting: Sequence[str] = ()


def retained_messages(
    topics: HomeAssistantTopics, device: Device, readings: Iterable[LatestReading], commands: HomeAssistantCommandDefinitions
) -> RetainedMessages:
    """All retained messages of a device; none for a device that may not connect."""
    if device.status is not DeviceStatus.ACTIVE:
        return {}
    shared = _shared_config(topics, device)
    return {
        **_relay(topics, device, shared),
        **_sensors(topics, device, shared, readings),
        **_commands(topics, device, shared, commands.definitions),
        **_approvals(topics, device, shared, commands),
    }


def _shared_config(topics: HomeAssistantTopics, device: Device) -> dict[str, Json]:
    availability: Json = [{"topic": topics.status_topic}, {"topic": topics.device_topic(device.device_id, "availability")}]
    about: dict[str, Json] = {"device": _device_info(device), "origin": {"name": "Latchboard"}, "availability": availability}
    return about | {"availability_mode": "all"}


def _relay(topics: HomeAssistantTopics, device: Device, shared: dict[str, Json]) -> dict[str, str]:
    relay = topics.device_topic(device.device_id, "relay")
    switch = shared | {
        "name": None,
        "unique_id": f"latchboard_{device.device_id}_relay",
        "state_topic": relay,
        "command_topic": topics.device_topic(device.device_id, "set"),
        "payload_on": "ON",
        "payload_off": "OFF",
        "qos": 1,
    }
    messages = {
        topics.discovery_topic("switch", device.device_id): _to_json(switch),
        topics.device_topic(device.device_id, "availability"): "online" if device.is_online else "offline",
    }
    if device.relay is not None:
        messages[relay] = "ON" if device.relay else "OFF"
    return messages


def _sensors(
    topics: HomeAssistantTopics, device: Device, shared: dict[str, Json], readings: Iterable[LatestReading]
) -> dict[str, str]:
    messages = {}
    for reading in list(readings)[:MAX_SENSORS]:
        name = _topic_slug(reading.metric)
        state = topics.device_topic(device.device_id, f"metric/{name}")
        identity = f"latchboard_{device.device_id}_{name}"
        sensor = shared | _measurement_config(reading) | {"name": reading.metric, "unique_id": identity, "state_topic": state}
        messages[topics.discovery_topic("sensor", device.device_id, name)] = _to_json(sensor)
        messages[state] = reading.value[:255] if isinstance(reading.value, str) else f"{float(reading.value):.10g}"
    return messages


def _commands(
    topics: HomeAssistantTopics, device: Device, shared: dict[str, Json], definitions: Sequence[CommandDefinition]
) -> dict[str, str]:
    """Without a state: a device reports what it measures, not which command it got last."""
    messages = {}
    for entity in command_entities(definitions):
        name = entity.definition.name
        config = {
            **shared,
            **entity.config,
            "name": entity.definition.label,
            "unique_id": f"latchboard_command_{device.device_id}_{name}",
            "command_topic": topics.device_topic(device.device_id, f"set/{name}"),
            "qos": 1,
        }
        messages[topics.discovery_topic(entity.component, device.device_id, name)] = _to_json(config)
    return messages


def _approvals(
    topics: HomeAssistantTopics, device: Device, shared: dict[str, Json], commands: HomeAssistantCommandDefinitions
) -> dict[str, str]:
    """How many requests wait for a person; for devices with a command that needs approval. There is no button that decides: Home
    Assistant acts as a key, and a key cannot approve."""
    if not commands.waiting and not any(definition.requires_approval for definition in commands.definitions):
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
        state: str(len(commands.waiting)),
        f"{state}/commands": _to_json({"commands": list[Json](sorted(commands.waiting))}),
    }


def _device_info(device: Device) -> dict[str, Json]:
    about: dict[str, Json] = {"identifiers": [f"latchboard_{device.device_id}"], "name": device.name}
    more = {"manufacturer": device.about.manufacturer, "model": device.about.model, "suggested_area": device.about.location}
    return about | {name: value for name, value in more.items() if value}


def _measurement_config(reading: LatestReading) -> dict[str, Json]:
    """Home Assistant rejects a unit that does not fit the device class, so a class is set only together with a known unit."""
    if isinstance(reading.value, str):
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
