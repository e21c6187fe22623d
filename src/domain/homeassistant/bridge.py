"""The bridge to Home Assistant: MQTT discovery messages and states of devices out, switch commands in.

Home Assistant acts as an API key: it sees the devices that the key may read, and its switch commands pass the same grants,
windows, limits and approvals as any command of that key. It uses topics on its own broker and never talks to a device. The bridge
maps each device to retained messages (topic → payload); the worker publishes the differences and clears topics that are no longer
in the map.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from domain.accounts.ports import HasAccounts
from domain.commands.model import Execution
from domain.commands.service import SubmissionResult
from domain.devices.model import Device, DeviceStatus
from domain.devices.ports import HasDevices
from domain.feed.audience import AudienceService
from domain.kernel.caller import ApiKeyCaller
from domain.kernel.clock import SECOND_MS, Clock
from domain.kernel.domain_events import Json
from domain.kernel.ids import AccountId, DeviceId
from domain.kernel.unit_of_work import UnitOfWork
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
    "v": ("V", "voltage"),
    "volt": ("V", "voltage"),
    "a": ("A", "current"),
    "ampere": ("A", "current"),
    "kwh": ("kWh", None),
    "wh": ("Wh", None),
    "hpa": ("hPa", "atmospheric_pressure"),
    "%": ("%", None),
    "percent": ("%", None),
}
_TOPIC_ROOT = "latchboard"
_UNSAFE_IN_TOPIC = re.compile(r"[^A-Za-z0-9_-]")
_DEVICE_ID = re.compile(r"dev_[a-z0-9]{20,}")

RetainedMessages = Mapping[str, str]
"""Topic → payload."""

DeviceFingerprint = tuple[object, ...]


class HomeAssistantTx(HasAccounts, HasDevices, Protocol): ...


class KeyAuthenticator(Protocol):
    async def authenticate_key(self, secret: str, address: str) -> ApiKeyCaller: ...


class CommandSubmitter(Protocol):
    async def submit(
        self, caller: ApiKeyCaller, device_id: DeviceId, cmd: str, params: Json = None, *, ttl_ms: int | None = None
    ) -> SubmissionResult: ...


class LatestValueSource(Protocol):
    def latest(self, device_no: int) -> list[LatestReading]: ...


@dataclass(frozen=True, slots=True)
class HomeAssistantTopics:
    """Topics of an account: discovery messages below `discovery_prefix` (`homeassistant`), all others below
    `latchboard/<account>`."""

    discovery_prefix: str
    account_id: AccountId

    @property
    def base_topic(self) -> str:
        return f"{_TOPIC_ROOT}/{self.account_id}"

    @property
    def status_topic(self) -> str:
        return f"{self.base_topic}/status"

    @property
    def command_filter(self) -> str:
        return f"{self.base_topic}/+/set"

    def discovery_filters(self) -> tuple[str, str]:
        """Topic filters that match our discovery messages."""
        return f"{self.discovery_prefix}/switch/+/config", f"{self.discovery_prefix}/sensor/+/+/config"

    def device_topic(self, device_id: DeviceId, below: str) -> str:
        return f"{self.base_topic}/{device_id}/{below}"

    def parse_command_topic(self, topic: str) -> DeviceId | None:
        """The device of a command topic; None for any other topic."""
        parts = topic.removeprefix(self.base_topic + "/").split("/")
        matches = topic.startswith(self.base_topic + "/") and len(parts) == 2 and parts[1] == "set"
        return DeviceId(parts[0]) if matches and _DEVICE_ID.fullmatch(parts[0]) else None


@dataclass(frozen=True, slots=True)
class VisibleDevices:
    """`valid_for_s`: seconds until a grant expires and the devices must be loaded again."""

    devices: Sequence[Device]
    valid_for_s: float


def find_stale_topics(accounts: Collection[AccountId], topic: str, payload: bytes) -> frozenset[str]:
    """The topic and the topics that its discovery message names, if they belong to one of these accounts; else nothing.

    The broker is shared: other programs, other Latchboards included, may publish anything there."""
    parts = topic.split("/")
    if parts[0] == _TOPIC_ROOT:
        return frozenset({topic}) if parts[1:2] and parts[1] in accounts else frozenset()
    try:
        config = json.loads(payload)
        named = [config["state_topic"], *(each["topic"] for each in config["availability"])]
    except (ValueError, LookupError, TypeError, RecursionError):
        return frozenset()
    bases = tuple(f"{_TOPIC_ROOT}/{account_id}/" for account_id in accounts)
    if not all(isinstance(name, str) and name.startswith(bases) and "+" not in name and "#" not in name for name in named):
        return frozenset()
    return frozenset({topic, *named} - {base + "status" for base in bases})


def device_fingerprint(device: Device) -> DeviceFingerprint:
    """Everything about a device that Home Assistant shows, without its readings."""
    return device.status, device.is_online, device.relay, device.name, device.about


def retained_messages(topics: HomeAssistantTopics, device: Device, readings: Iterable[LatestReading]) -> RetainedMessages:
    """All retained messages of a device; none for a device that may not connect."""
    if device.status is not DeviceStatus.ACTIVE:
        return {}
    about = _device_info(device)
    availability: Json = [{"topic": topics.status_topic}, {"topic": topics.device_topic(device.device_id, "availability")}]
    shared: dict[str, Json] = {"device": about, "origin": {"name": "Latchboard"}, "availability": availability}
    shared["availability_mode"] = "all"
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
        f"{topics.discovery_prefix}/switch/{device.device_id}/config": _to_json(switch),
        topics.device_topic(device.device_id, "availability"): "online" if device.is_online else "offline",
    }
    if device.relay is not None:
        messages[relay] = "ON" if device.relay else "OFF"
    for reading in list(readings)[:MAX_SENSORS]:
        name = _topic_slug(reading.metric)
        state = topics.device_topic(device.device_id, f"metric/{name}")
        sensor = (
            shared
            | _measurement_config(reading)
            | {
                "name": reading.metric,
                "unique_id": f"latchboard_{device.device_id}_{name}",
                "state_topic": state,
            }
        )
        messages[f"{topics.discovery_prefix}/sensor/{device.device_id}/{name}/config"] = _to_json(sensor)
        messages[state] = reading.value[:255] if isinstance(reading.value, str) else f"{float(reading.value):.10g}"
    return messages


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
        unit, device_class = _UNITS.get(reading.unit.lower(), (reading.unit[:32], None))
        config["unit_of_measurement"] = unit
        if device_class is not None:
            config["device_class"] = device_class
    return config


def _topic_slug(metric: str) -> str:
    """A metric's name as a topic level; different names give different slugs."""
    plain = _UNSAFE_IN_TOPIC.sub("_", metric)
    if plain == metric and len(metric) <= 64:
        return metric
    return f"{plain[:48]}-{hashlib.sha256(metric.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def _to_json(config: Mapping[str, Json]) -> str:
    return json.dumps(config, separators=(",", ":"))


class HomeAssistantBridge:
    def __init__(
        self,
        *,
        uow: UnitOfWork[HomeAssistantTx],
        clock: Clock,
        audience: AudienceService,
        authenticator: KeyAuthenticator,
        commands: CommandSubmitter,
        latest_values: LatestValueSource,
        secret: str,
        discovery_prefix: str,
    ) -> None:
        """`secret` is the API key that Home Assistant acts as; `discovery_prefix` is Home Assistant's own setting."""
        self._uow = uow
        self._clock = clock
        self._audience = audience
        self._authenticator = authenticator
        self._commands = commands
        self._latest_values = latest_values
        self._secret = secret
        self._discovery_prefix = discovery_prefix

    async def authenticate(self) -> tuple[ApiKeyCaller, HomeAssistantTopics]:
        """The caller and its topics. Raises Unauthenticated for an unknown or disabled key."""
        caller = await self._authenticator.authenticate_key(self._secret, "homeassistant")
        return caller, HomeAssistantTopics(self._discovery_prefix, caller.account_id)

    async def list_account_ids(self) -> frozenset[AccountId]:
        """Every account in this database."""
        async with self._uow.read() as tx:
            return frozenset(await tx.accounts.list_ids())

    def owned_topic_filters(self) -> tuple[str, ...]:
        """Topic filters that match everything the bridge publishes, for any account."""
        return (f"{self._discovery_prefix}/switch/+/config", f"{self._discovery_prefix}/sensor/+/+/config", f"{_TOPIC_ROOT}/#")

    async def find_visible_devices(self, caller: ApiKeyCaller) -> VisibleDevices | None:
        """The devices that the key may read; None if the key has been disabled or deleted."""
        snapshot = await self._audience.snapshot(caller)
        if snapshot is None:
            return None
        return VisibleDevices(snapshot.devices, max(0.0, (snapshot.visibility.valid_until_ms - self._clock.now_ms()) / SECOND_MS))

    async def reload_devices(self, topics: HomeAssistantTopics, device_ids: Collection[DeviceId]) -> Sequence[Device]:
        """Load the current state of these devices of the account."""
        async with self._uow.read() as tx:
            devices = await tx.devices.list_by_ids(device_ids)
        return [device for device in devices if device.account_id == topics.account_id]

    def retained_by_device(self, topics: HomeAssistantTopics, devices: Iterable[Device]) -> Mapping[DeviceId, RetainedMessages]:
        return {
            device.device_id: retained_messages(topics, device, self._latest_values.latest(device.device_no))
            for device in devices
        }

    async def submit_command(self, device_id: DeviceId, command: str) -> Execution | None:
        """Submit as the key, which is authenticated again. Returns None if the command waits for approval. Raises any denial."""
        caller, _ = await self.authenticate()
        submitted = await self._commands.submit(caller, device_id, command)
        return submitted.execution
