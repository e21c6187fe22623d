"""A model of Home Assistant: a real Mosquitto broker, and a client that interprets discovery messages as Home Assistant does.

The client validates them by the published options of each MQTT entity, more strictly than Home Assistant: it takes no entity with
an unknown option, a wrong unit for its device class or an invalid character in its id.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from paho.mqtt.subscribeoptions import SubscribeOptions

from support.device import cancel_tasks
from support.mosquitto import BINARY, require_mosquitto
from support.waiting import TIMEOUT_S

PASSWORD = "p@ss:w/rd%"
PASSWORD_IN_URL = "p%40ss%3Aw%2Frd%25"
_SHARED = {
    "name",
    "unique_id",
    "state_topic",
    "device",
    "origin",
    "availability",
    "availability_mode",
    "qos",
    "payload_available",
    "payload_not_available",
    "icon",
    "entity_category",
    "enabled_by_default",
    "value_template",
    "message_expiry_interval",
}
_COMMANDED = {"command_topic", "optimistic", "retain"}
OPTIONS = {
    "button": _SHARED - {"state_topic", "value_template"} | {"command_topic", "payload_press", "retain", "device_class"},
    "number": _SHARED | {"command_topic", "min", "max", "step", "mode", "optimistic", "retain", "unit_of_measurement"},
    "select": _SHARED | {"command_topic", "options", "optimistic", "retain"},
    "switch": _SHARED | {"command_topic", "payload_on", "payload_off", "state_on", "state_off", "optimistic", "retain"},
    "light": _SHARED
    | _COMMANDED
    | {"schema", "brightness", "brightness_scale", "supported_color_modes", "color_temp_kelvin", "min_kelvin", "max_kelvin"}
    | {"flash", "transition", "effect", "effect_list"},
    "cover": _SHARED
    | _COMMANDED
    | {"position_topic", "set_position_topic", "device_class", "payload_open", "payload_close", "payload_stop"}
    | {"position_open", "position_closed", "state_open", "state_closed", "state_opening", "state_closing", "state_stopped"},
    "climate": _SHARED - {"state_topic"}
    | {"modes", "mode_command_topic", "mode_state_topic", "temperature_command_topic", "temperature_state_topic"}
    | {"temperature_unit", "temp_step", "min_temp", "max_temp", "precision", "optimistic", "retain"},
    "event": _SHARED | {"event_types", "device_class"},
    "binary_sensor": _SHARED | {"payload_on", "payload_off", "off_delay", "expire_after", "device_class"},
    "sensor": _SHARED
    | {"unit_of_measurement", "device_class", "state_class", "expire_after", "options", "json_attributes_topic"},
}
DEVICE = {"identifiers", "name", "manufacturer", "model", "suggested_area", "sw_version", "hw_version", "serial_number"}
UNITS = {
    "temperature": {"°C", "°F", "K"},
    "power": {"W", "kW", "MW"},
    "apparent_power": {"VA"},
    "energy": {"Wh", "kWh", "MWh"},
    "frequency": {"Hz"},
    "voltage": {"V", "mV"},
    "current": {"A", "mA"},
    "atmospheric_pressure": {"hPa", "kPa", "mbar", "Pa"},
}
COVER_CLASSES = {"awning", "blind", "curtain", "damper", "door", "garage", "gate", "shade", "shutter", "window"}
MODES = {"auto", "off", "cool", "heat", "dry", "fan_only", "heat_cool"}
STATE_CLASSES = {"energy": {"total", "total_increasing"}}
TOPIC_OPTIONS = {name for options in OPTIONS.values() for name in options if name.endswith("_topic")}
REQUIRED = {
    "climate": {"modes", "mode_command_topic", "mode_state_topic"},
    "event": {"state_topic", "event_types"},
    "cover": {"command_topic", "state_topic", "position_topic", "set_position_topic"},
    "light": {"command_topic", "schema", "supported_color_modes"},
    "button": {"command_topic"},
    "number": {"command_topic"},
    "select": {"command_topic", "options"},
}
_ID = re.compile(r"[a-zA-Z0-9_-]+")


class MosquittoProcess:
    """Mosquitto without persistence: a restart loses every retained message."""

    def __init__(self, folder: Path, port: int) -> None:
        self.port = port
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"mqtt://latchboard:{PASSWORD_IN_URL}@127.0.0.1:{self.port}"

    def start(self) -> None:
        require_mosquitto()
        maker = shutil.which("mosquitto_passwd")
        if maker is None or BINARY is None:
            pytest.skip("mosquitto_passwd is not installed")
        passwords = self._folder / "passwords"
        passwords.touch(mode=0o600)
        for user in ("latchboard", "homeassistant"):
            subprocess.run([maker, "-b", str(passwords), user, PASSWORD], check=True, timeout=10, capture_output=True)
        configuration = self._folder / "mosquitto.conf"
        configuration.write_text(
            f"user root\nlog_dest none\nlistener {self.port} 127.0.0.1\nallow_anonymous false\n"
            f"password_file {passwords}\nmax_queued_messages 0\npersistence false\n"
        )
        command = [BINARY, "-c", str(configuration)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + TIMEOUT_S
        while not self._listens():
            assert time.monotonic() < deadline, "mosquitto does not listen"
            time.sleep(0.02)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(TIMEOUT_S)
            self._process = None


@dataclass
class HomeAssistant:
    """`retained`: the retained messages on the broker, by topic; `received`: every message in order; `passing`: those that were
    not retained, each with its expiry in seconds."""

    client: aiomqtt.Client
    retained: dict[str, str] = field(default_factory=dict)
    received: list[tuple[str, str]] = field(default_factory=list)
    passing: list[tuple[str, str, int | None]] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def listen(self) -> None:
        with contextlib.suppress(aiomqtt.MqttError):
            async for message in self.client.messages:
                topic, text = str(message.topic), bytes(message.payload).decode()
                async with self.changed:
                    self.received.append((topic, text))
                    if not message.retain:
                        self.passing.append((topic, text, getattr(message.properties, "MessageExpiryInterval", None)))
                    elif text:
                        self.retained[topic] = text
                    else:
                        self.retained.pop(topic, None)
                    self.changed.notify_all()

    async def wait_until(self, wanted: Any) -> Any:
        """Wait until `wanted(self)` is true, and return it."""
        async with asyncio.timeout(TIMEOUT_S), self.changed:
            return await self.changed.wait_for(lambda: wanted(self))

    def configs(self) -> dict[str, dict[str, Any]]:
        return {topic: json.loads(text) for topic, text in self.retained.items() if topic.endswith("/config")}

    def switch(self, device: Any) -> dict[str, Any] | None:
        """The validated switch entity of a device; None if there is none."""
        found = self.configs().get(f"homeassistant/switch/{device.device_id}/config")
        return None if found is None else validate("switch", found)

    def channel(self, component: str, device: Any, number: int) -> dict[str, Any] | None:
        """The validated entity of a channel."""
        suffix = "" if number == 1 else f"_{number}"
        found = self.configs().get(f"homeassistant/{component}/{device.device_id}{suffix}/config")
        return None if found is None else validate(component, found)

    def sensor(self, device: Any, name: str, component: str = "sensor") -> dict[str, Any] | None:
        at = f"homeassistant/{component}/{device.device_id}/"
        found = [config for topic, config in self.configs().items() if topic.startswith(at) and config["name"] == name]
        return validate(component, found[0]) if found else None

    def command(self, component: str, device: Any, name: str) -> dict[str, Any] | None:
        """The validated button, number or select of a command."""
        found = self.configs().get(f"homeassistant/{component}/{device.device_id}/{name}/config")
        return None if found is None else validate(component, found)

    def refusal(self, device: Any) -> dict[str, Any] | None:
        found = self.configs().get(f"homeassistant/sensor/{device.device_id}_refusal/config")
        return None if found is None else validate("sensor", found)

    def approvals(self, device: Any) -> dict[str, Any] | None:
        found = self.configs().get(f"homeassistant/sensor/{device.device_id}_approvals/config")
        return None if found is None else validate("sensor", found)

    def attributes(self, config: dict[str, Any]) -> dict[str, Any]:
        return json.loads(self.retained.get(config["json_attributes_topic"], "{}"))  # type: ignore[no-any-return]

    def displayed_state(self, config: dict[str, Any] | None, option: str = "state_topic") -> str | None:
        """The state of an entity as a user sees it; `option`: that names its topic."""
        if config is None:
            return None
        ready = [self.retained.get(each["topic"]) == "online" for each in config["availability"]]
        return self.retained.get(config[option], "unknown") if all(ready) else "unavailable"

    def retained_topics_of(self, device: Any) -> list[str]:
        """Topics of retained messages that mention the device, without those that Home Assistant published."""
        others = {topic: text for topic, text in self.retained.items() if not topic.endswith("/set")}
        return [topic for topic, text in others.items() if device.device_id in topic + text]

    async def press(self, device: Any, command: str, *, retain: bool = False) -> None:
        await self.client.publish(f"{self.base(device)}/set", command, qos=1, retain=retain, timeout=TIMEOUT_S)

    def base(self, device: Any) -> str:
        config = self.switch(device)
        assert config is not None
        return str(config["state_topic"]).rpartition("/")[0]


def validate(kind: str, config: dict[str, Any]) -> dict[str, Any]:
    assert config.keys() <= OPTIONS[kind], config.keys() - OPTIONS[kind]
    assert config["device"].keys() <= DEVICE
    assert config["device"]["identifiers"]
    assert config["device"]["name"]
    assert _ID.fullmatch(config["unique_id"])
    assert config["origin"]["name"] == "Latchboard"
    assert REQUIRED.get(kind, {"state_topic"}) <= config.keys()
    _check_limits(config)
    named = (config.get(name, "x") for name in TOPIC_OPTIONS)
    topics = [*named, *(each["topic"] for each in config["availability"])]
    assert not any(sign in topic for topic in topics for sign in "+#\0")
    if kind in ("switch", "light", "cover", "climate", "number", "select", "button"):
        assert config["message_expiry_interval"] > 0
    if kind == "cover":
        assert config.get("device_class") in {None, *COVER_CLASSES}
    elif kind == "climate":
        assert set(config["modes"]) <= MODES
    elif "device_class" in config:
        assert config["unit_of_measurement"] in UNITS[config["device_class"]]
        assert config["state_class"] in STATE_CLASSES.get(config["device_class"], {"measurement"})
    return config


def _check_limits(config: dict[str, Any]) -> None:
    """Of a number."""
    assert config.get("min", 1) < config.get("max", 100)
    assert config.get("step", 1) >= 0.001
    assert config.get("mode", "auto") in {"auto", "box", "slider"}


@asynccontextmanager
async def home_assistant(broker: MosquittoProcess) -> AsyncIterator[HomeAssistant]:
    options: dict[str, Any] = {"username": "homeassistant", "password": PASSWORD, "timeout": TIMEOUT_S}
    async with aiomqtt.Client("127.0.0.1", broker.port, protocol=aiomqtt.ProtocolVersion.V5, **options) as client:
        home = HomeAssistant(client)
        listening = asyncio.create_task(home.listen())
        try:
            for each in ("homeassistant/#", "latchboard/#"):
                await client.subscribe(each, options=SubscribeOptions(qos=1, retainAsPublished=True))
            yield home
        finally:
            await cancel_tasks(listening)
