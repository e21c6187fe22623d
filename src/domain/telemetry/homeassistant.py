"""What Home Assistant is told of a device, and what it may ask of one.

Home Assistant is an API key: it sees the devices that key's grants let it read, and its switch commands go the way of any command
of that key, through the same grants, windows, limits and approvals. It talks to topics of ours on its own broker and never to a
device. What it is told is a map from topic to retained payload; whoever keeps the connection publishes the difference to what
stands there, and clears what is no longer in the map.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from domain.commands.model import Execution
from domain.commands.service import Submitted
from domain.devices.model import Device, DeviceStatus
from domain.kernel.caller import ApiKeyCaller
from domain.kernel.clock import SECOND_MS, Clock
from domain.kernel.facts import Json
from domain.kernel.ids import AccountId, DeviceId
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.model import Reading
from domain.telemetry.ports import TelemetryTx
from domain.webhooks.audience import AudienceService

MAX_SENSORS = 64
"""Of one device, those it reported first."""
_UNITS = {
    "celsius": ("°C", "temperature"), "c": ("°C", "temperature"), "°c": ("°C", "temperature"),
    "fahrenheit": ("°F", "temperature"), "°f": ("°F", "temperature"), "w": ("W", "power"), "watt": ("W", "power"),
    "v": ("V", "voltage"), "volt": ("V", "voltage"), "a": ("A", "current"), "ampere": ("A", "current"),
    "kwh": ("kWh", None), "wh": ("Wh", None), "hpa": ("hPa", "atmospheric_pressure"), "%": ("%", None), "percent": ("%", None),
}  # fmt: skip
_ROOT = "latchboard"
_PLAIN = re.compile(r"[^A-Za-z0-9_-]")
_DEVICE = re.compile(r"dev_[a-z0-9]{20,}")

Retained = Mapping[str, str]
"""Topic → payload."""

Face = tuple[object, ...]


class Callers(Protocol):
    async def by_key(self, secret: str, address: str) -> ApiKeyCaller: ...


class Commands(Protocol):
    async def submit(
        self, caller: ApiKeyCaller, device_id: DeviceId, cmd: str, params: Json = None, *, ttl_ms: int | None = None
    ) -> Submitted: ...


class Values(Protocol):
    def latest(self, device_no: int) -> list[Reading]: ...


@dataclass(frozen=True, slots=True)
class Topics:
    """`discovery` is where Home Assistant looks (`homeassistant`); what is ours lies below `latchboard/<account>`."""

    discovery: str
    account_id: AccountId

    @property
    def base(self) -> str:
        return f"{_ROOT}/{self.account_id}"

    @property
    def status(self) -> str:
        return f"{self.base}/status"

    @property
    def commands(self) -> str:
        return f"{self.base}/+/set"

    def configs(self) -> tuple[str, str]:
        """Filters for the discovery messages we write."""
        return f"{self.discovery}/switch/+/config", f"{self.discovery}/sensor/+/+/config"

    def of(self, device_id: DeviceId, below: str) -> str:
        return f"{self.base}/{device_id}/{below}"

    def commanded(self, topic: str) -> DeviceId | None:
        """The device a command topic is about."""
        parts = topic.removeprefix(self.base + "/").split("/")
        fits = topic.startswith(self.base + "/") and len(parts) == 2 and parts[1] == "set"
        return DeviceId(parts[0]) if fits and _DEVICE.fullmatch(parts[0]) else None


@dataclass(frozen=True, slots=True)
class Seen:
    """`lasts_s`: how long that may be believed, because a grant runs out."""

    devices: Sequence[Device]
    lasts_s: float


def left_behind(accounts: Collection[AccountId], topic: str, payload: bytes) -> frozenset[str]:
    """What stands on the broker on `topic` and belongs to one of these accounts, with the topics it names; else nothing. The
    broker is shared: others put there what they like, other Latchboards too."""
    parts = topic.split("/")
    if parts[0] == _ROOT:
        return frozenset({topic}) if parts[1:2] and parts[1] in accounts else frozenset()
    try:
        config = json.loads(payload)
        named = [config["state_topic"], *(each["topic"] for each in config["availability"])]
    except (ValueError, LookupError, TypeError, RecursionError):
        return frozenset()
    bases = tuple(f"{_ROOT}/{account_id}/" for account_id in accounts)
    if not all(isinstance(name, str) and name.startswith(bases) and "+" not in name and "#" not in name for name in named):
        return frozenset()
    return frozenset({topic, *named} - {base + "status" for base in bases})


def face(device: Device) -> Face:
    """All of a device that Home Assistant is told, but for its readings."""
    return device.status, device.is_online, device.relay, device.name, device.about


def retained(topics: Topics, device: Device, readings: Iterable[Reading]) -> Retained:
    """Everything that stands on the broker for one device; nothing for one that cannot connect."""
    if device.status is not DeviceStatus.ACTIVE:
        return {}
    about = _about(device)
    availability: Json = [{"topic": topics.status}, {"topic": topics.of(device.device_id, "availability")}]
    shared: dict[str, Json] = {"device": about, "origin": {"name": "Latchboard"}, "availability": availability}
    shared["availability_mode"] = "all"
    relay = topics.of(device.device_id, "relay")
    switch = shared | {
        "name": None,
        "unique_id": f"latchboard_{device.device_id}_relay",
        "state_topic": relay,
        "command_topic": topics.of(device.device_id, "set"),
        "payload_on": "ON",
        "payload_off": "OFF",
        "qos": 1,
    }
    found = {
        f"{topics.discovery}/switch/{device.device_id}/config": _text(switch),
        topics.of(device.device_id, "availability"): "online" if device.is_online else "offline",
    }
    if device.relay is not None:
        found[relay] = "ON" if device.relay else "OFF"
    for reading in list(readings)[:MAX_SENSORS]:
        name = _slug(reading.metric)
        state = topics.of(device.device_id, f"metric/{name}")
        sensor = shared | _measured(reading) | {
            "name": reading.metric,
            "unique_id": f"latchboard_{device.device_id}_{name}",
            "state_topic": state,
        }  # fmt: skip
        found[f"{topics.discovery}/sensor/{device.device_id}/{name}/config"] = _text(sensor)
        found[state] = reading.value[:255] if isinstance(reading.value, str) else f"{float(reading.value):.10g}"
    return found


def _about(device: Device) -> dict[str, Json]:
    about: dict[str, Json] = {"identifiers": [f"latchboard_{device.device_id}"], "name": device.name}
    more = {"manufacturer": device.about.manufacturer, "model": device.about.model, "suggested_area": device.about.location}
    return about | {name: value for name, value in more.items() if value}


def _measured(reading: Reading) -> dict[str, Json]:
    """Home Assistant refuses a unit that does not belong to the class, so a class is named only with a unit it knows."""
    if isinstance(reading.value, str):
        return {}
    found: dict[str, Json] = {"state_class": "measurement"}
    if reading.unit:
        unit, device_class = _UNITS.get(reading.unit.lower(), (reading.unit[:32], None))
        found["unit_of_measurement"] = unit
        if device_class is not None:
            found["device_class"] = device_class
    return found


def _slug(metric: str) -> str:
    """A metric's name as part of a topic; two names never give the same."""
    plain = _PLAIN.sub("_", metric)
    if plain == metric and len(metric) <= 64:
        return metric
    return f"{plain[:48]}-{hashlib.sha256(metric.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def _text(config: Mapping[str, Json]) -> str:
    return json.dumps(config, separators=(",", ":"))


class BridgeService:
    def __init__(
        self,
        *,
        uow: UnitOfWork[TelemetryTx],
        clock: Clock,
        audience: AudienceService,
        callers: Callers,
        commands: Commands,
        values: Values,
        secret: str,
        discovery: str,
    ) -> None:
        """`secret` is the API key Home Assistant acts as."""
        self._uow = uow
        self._clock = clock
        self._audience = audience
        self._callers = callers
        self._commands = commands
        self._values = values
        self._secret = secret
        self._discovery = discovery

    async def identify(self) -> tuple[ApiKeyCaller, Topics]:
        """Raises Unauthenticated for a key that is unknown or disabled."""
        caller = await self._callers.by_key(self._secret, "homeassistant")
        return caller, Topics(self._discovery, caller.account_id)

    async def accounts(self) -> frozenset[AccountId]:
        """Those of this database."""
        async with self._uow.read() as tx:
            return frozenset(await tx.accounts.all_ids())

    def traces(self) -> tuple[str, ...]:
        """Filters for all that this bridge writes, whatever the account."""
        return (f"{self._discovery}/switch/+/config", f"{self._discovery}/sensor/+/+/config", f"{_ROOT}/#")

    async def seen(self, caller: ApiKeyCaller) -> Seen | None:
        """The devices the key may read; None when it has been shut out."""
        snapshot = await self._audience.snapshot(caller)
        if snapshot is None:
            return None
        return Seen(snapshot.devices, max(0.0, (snapshot.view.until_ms - self._clock.now_ms()) / SECOND_MS))

    async def present(self, topics: Topics, device_ids: Collection[DeviceId]) -> Sequence[Device]:
        """Those that were seen, as they are now."""
        async with self._uow.read() as tx:
            found = await tx.devices.find_all(device_ids)
        return [device for device in found if device.account_id == topics.account_id]

    def told(self, topics: Topics, devices: Iterable[Device]) -> Mapping[DeviceId, Retained]:
        return {device.device_id: retained(topics, device, self._values.latest(device.device_no)) for device in devices}

    async def command(self, device_id: DeviceId, word: str) -> Execution | None:
        """As the key, which is looked up anew. None when it waits for approval. Raises what refuses any other command of it."""
        caller, _ = await self.identify()
        submitted = await self._commands.submit(caller, device_id, word)
        return submitted.execution
