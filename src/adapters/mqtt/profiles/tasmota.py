"""Tasmota with FullTopic `devices/<id>/%prefix%/`: `stat/…` and `tele/…` up, `cmnd/…` down.

Tasmota has no command ids, so a command is sent as a Backlog whose last step publishes the execution's id on `stat/ACK`: when
the id arrives, the steps before it have run, and what `stat/RESULT` said since the command was sent is its answer. A Backlog runs
to its end whatever its steps say, so the answer decides: `{"Command":"Unknown"}` is a failure, and a relay that is not as
commanded too. What only begins with its Backlog (an upgrade, a restart) ends with the device's next boot.

Tasmota publishes its relay only on a change, so it is queried when it connects. States and commands are kept by channel, and
`stat/ACK` says which one it was: what one channel does confirms nothing on another. What the channels are: `tasmota_channels.py`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from adapters.mqtt.profiles import conversion
from adapters.mqtt.profiles.conversion import FuturePlanEdge, upcoming_edges
from adapters.mqtt.profiles.tasmota_channels import POWER, BoardLayout, command_steps, find_actions, read_channels
from domain.devices.channels import RELAY_CHANNEL
from domain.devices.messages import (
    CommandResultReport,
    DevicePlanRevisionReport,
    DeviceReport,
    HelloReport,
    OutboundCommand,
    OutboundMessage,
    PlanRow,
    PresenceReport,
    RelayReport,
    StateQuestion,
    UnreadableMessage,
)
from domain.kernel.domain_event import Json

_BEGINNING = frozenset({"UPGRADE", "UPLOAD", "RESTART"})
"""Commands that have only begun when their Backlog has run."""

IGNORED: Mapping[str, str] = {
    "Time": "the device's local time; the arrival is the time of a reading",
    "Uptime": "a text; UptimeSec has it as a number",
    "TempUnit": "the unit of other readings",
    "PressureUnit": "the unit of other readings",
    "SpeedUnit": "the unit of other readings",
    "*.Id": "the serial number of a sensor",
    "*.ID": "the serial number of a sensor",
    "*.TotalStartTime": "an instant",
    "Info1.Version": "it is `health.firmware`",
    "Info1.FallbackTopic": "a setting, which the service has made",
    "Info1.GroupTopic": "a setting, which the service has made",
    "Timezone": "the echo of the schedule plan",
    "Timers": "the echo of the schedule plan",
    **{f"Timer{number}": "the echo of the schedule plan" for number in range(1, 11)},
}
"""What is left out on purpose, with the reason; names as in `conversion.flatten`."""
IGNORED_TOPICS: Mapping[str, str] = {"stat/LOGGING": "log lines, which MqttLog turns on", "tele/LOGGING": "log lines"}

_TEMPERATURES = ("Temperature", "DewPoint", "HeatIndex", "FeelsLike", "ObjectTemperature", "AmbientTemperature")
_UNIT_FIELDS = {"TempUnit": _TEMPERATURES, "PressureUnit": ("Pressure", "SeaPressure"), "SpeedUnit": ("Speed",)}
_DEGREES = {"C": "°C", "F": "°F"}
_FIXED_UNITS = {
    "ApparentPower": "VA",
    "Current": "A",
    "Dimmer": "%",
    "Frequency": "Hz",
    "Humidity": "%",
    "Illuminance": "lx",
    "Power": "W",
    "ReactivePower": "var",
    "RSSI": "%",
    "Signal": "dBm",
    "Today": "kWh",
    "Total": "kWh",
    "UptimeSec": "s",
    "Voltage": "V",
    "Yesterday": "kWh",
}
_SENSOR_ANSWERS = {"STATUS8": "StatusSNS", "STATUS10": "StatusSNS", "STATUS11": "StatusSTS"}
_SWITCH_WORDS = {"ON": True, "1": True, "OFF": False, "0": False}
_STATUS = re.compile(r"STATUS\d{0,2}")
_CHANNEL = re.compile(r"[1-9]\d?")
_DIAGNOSTICS = UnreadableMessage("DIAGNOSTICS", "settings and diagnostics are no readings")
_REFUSALS = {"unknown": "UNKNOWN_COMMAND", "error": "ERROR", "failed": "FAILED"}

MAX_SLOTS = 5
_QUERY = OutboundMessage("cmnd/STATE", b"")
PLAN_EXPIRY_S = 30
"""The plan is sent again when the device reconnects, so an older one must expire before that."""

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


ANSWER_MS = 10_000
"""An answer is not older than this when its command's end arrives and it is not known when the command was sent."""
MAX_ANSWERS = 32
MAX_SENT = 64
MAX_ANSWER_BYTES = 4096


@dataclass(frozen=True, slots=True)
class SentCommand:
    cmd: str
    steps: Sequence[str]
    sent_ms: int
    expires_ms: int
    channel: int = RELAY_CHANNEL

    @property
    def switches_relay(self) -> bool:
        return self.cmd in ("ON", "OFF", "TOGGLE")

    @property
    def names(self) -> set[str]:
        """The Tasmota commands in it."""
        return {step.partition(" ")[0].upper() for step in self.steps}

    @property
    def argument(self) -> str:
        return self.steps[-1].partition(" ")[2].upper()


@dataclass(slots=True)
class TasmotaState:
    """What one device was sent, and what it has said since."""

    sent: dict[str, SentCommand] = field(default_factory=dict)
    """By execution id, oldest first."""
    answers: deque[tuple[int, Mapping[str, Any]]] = field(default_factory=lambda: deque(maxlen=MAX_ANSWERS))
    """(arrival, what `stat/…` said) since the last command ended."""
    relays: dict[int, bool] = field(default_factory=dict)
    """By channel."""
    relays_before: dict[int, bool] = field(default_factory=dict)
    """What each was before the oldest command for it that has not ended."""
    awaiting: dict[int, tuple[str, int]] = field(default_factory=dict)
    """By channel, the command (and when it ended) that the relay's state is still to confirm."""
    beginning: tuple[str, SentCommand, dict[str, Any]] | None = None
    """The command that a boot ends, and what was said of it."""
    layout: BoardLayout = field(default_factory=BoardLayout)

    def remember(self, execution_id: str, command: SentCommand) -> None:
        self._forget_expired(command.sent_ms)
        self.sent.pop(execution_id, None)
        while len(self.sent) >= MAX_SENT:
            del self.sent[next(iter(self.sent))]
        self.sent[execution_id] = command

    def set_relay(self, channel: int, relay: bool, at_ms: int) -> None:
        self._forget_expired(at_ms)
        self.relays[channel] = relay
        self._keep_before()

    def _forget_expired(self, now_ms: int) -> None:
        if any(one.expires_ms <= now_ms for one in self.sent.values()):
            self.sent = {key: one for key, one in self.sent.items() if one.expires_ms > now_ms}
        self._keep_before()

    def _keep_before(self) -> None:
        pending = {one.channel for one in self.sent.values()}
        self.relays_before |= {channel: relay for channel, relay in self.relays.items() if channel not in pending}

    def take_answer(self, since_ms: int) -> dict[str, Any]:
        """What was said since then; of a name that occurs twice, the last."""
        answer: dict[str, Any] = {}
        for at_ms, document in self.answers:
            if at_ms >= since_ms and len(msgspec.json.encode(answer)) < MAX_ANSWER_BYTES:
                answer |= {name: value for name, value in document.items() if name not in IGNORED}
        self.answers.clear()
        return answer


def encode_command(
    device_id: str, command: OutboundCommand, now_ms: int, memory: TasmotaState | None = None
) -> Sequence[OutboundMessage]:
    steps = command_steps(command) or _custom_command(command)
    if not steps:
        return ()
    if memory is not None:
        sent = SentCommand(command.cmd, steps, now_ms, command.expires_ms, command.channel)
        memory.remember(command.execution_id, sent)
    end = "STARTED" if command.cmd in _BEGINNING else "ACK"
    name = command.execution_id + ("" if command.channel == RELAY_CHANNEL else f" {command.channel}")
    backlog = "; ".join([*steps, f"Publish devices/{device_id}/stat/{end} {name}"])
    return (OutboundMessage("cmnd/Backlog0", backlog.encode(), expiry_s=command.expiry_s(now_ms)),)


def decode(
    topic: str, payload: bytes, retain: bool, memory: TasmotaState | None = None, at_ms: int = 0
) -> Sequence[DeviceReport]:
    if topic in IGNORED_TOPICS:
        return ()
    prefix, _, name = topic.partition("/")
    if prefix not in ("stat", "tele") or not name:
        return (UnreadableMessage("UNKNOWN_TOPIC", f"nothing is expected on {topic[:64]!r}"),)
    if topic == "tele/LWT":
        return _decode_presence(payload.strip(), memory)
    if topic in ("stat/ACK", "stat/STARTED"):
        return _decode_end(payload.strip().decode("ascii", "replace"), name == "STARTED", memory, at_ms)
    if topic == "stat/PLAN":
        return _decode_plan_revision(payload.strip())
    if (power := POWER.fullmatch(name)) is not None:
        return _decode_document(prefix, {power[0]: payload.strip().decode("utf-8", "replace")}, retain, memory, at_ms)
    if name in ("INFO1", "INFO2", "INFO3"):
        return _decode_info(name.capitalize(), payload, memory)
    if payload.lstrip()[:1] != b"{" and name not in ("RESULT", "SENSOR", "STATE"):
        return conversion.read_plain(name.replace("/", "."), payload)
    document = _decode_object(payload)
    if (inner := document.get(_SENSOR_ANSWERS.get(name, ""))) is not None and isinstance(inner, dict):
        document = inner
    elif prefix == "stat" and _STATUS.fullmatch(name):
        return _decode_status(name, document, memory, at_ms)
    return _decode_document(prefix, document, retain, memory, at_ms)


def is_command_subscription(topic_filter: str) -> bool:
    return topic_filter in ("cmnd/#", "#")


def state_queries() -> Sequence[OutboundMessage]:
    return (_QUERY,)


def encode_plan(device_id: str, revision: int, rows: Sequence[PlanRow], now_ms: int) -> Sequence[OutboundMessage]:
    """Timers 1 to 10, two for each slot; one Backlog for each slot, because Tasmota accepts about 500 bytes at a time. The first
    step sets the device's time zone to UTC, which the one-time timers need. Timers of past edges are cleared."""
    edges, complete = upcoming_edges(rows, now_ms)
    timers = {2 * edge.slot + (1 if edge.relay else 2): _timer_json(edge) for edge in edges}
    messages = []
    for slot in range(MAX_SLOTS):
        steps = [f"Timer{number} {timers.get(number, '0')}" for number in (2 * slot + 1, 2 * slot + 2)]
        if slot == 0:
            steps = ["Timezone 0", "Timers 1", *steps]
        if slot == MAX_SLOTS - 1 and complete:
            steps.append(f"Publish devices/{device_id}/stat/PLAN {revision}")
        messages.append(OutboundMessage("cmnd/Backlog0", "; ".join(steps).encode(), expiry_s=PLAN_EXPIRY_S))
    return messages


def _timer_json(edge: FuturePlanEdge) -> str:
    """`Days` begins with Sunday. The switch is `Enable` since version 9 and was `Arm` before; Tasmota ignores the other one."""
    day, second = divmod(edge.ts, 86_400)
    days = "".join("1" if index == (day + 4) % 7 else "0" for index in range(7))  # 1970 began on a Thursday
    time = f"{second // 3600:02}:{second % 3600 // 60:02}"
    timer = {"Enable": 1, "Arm": 1, "Mode": 0, "Time": time, "Window": 0, "Days": days, "Repeat": 0, "Output": edge.channel}
    return msgspec.json.encode(timer | {"Action": int(edge.relay)}).decode()


def _decode_plan_revision(word: bytes) -> Sequence[DeviceReport]:
    if not word.isdigit() or len(word) > 15:
        return (UnreadableMessage("MALFORMED", "PLAN is a revision"),)
    return (DevicePlanRevisionReport(int(word)),)


def _decode_presence(word: bytes, memory: TasmotaState | None) -> Sequence[DeviceReport]:
    if memory is not None and word.lower() == b"online":
        memory.layout.forget()
    if word.lower() in (b"online", b"offline"):
        return (PresenceReport(word.lower() == b"online"),)
    return (UnreadableMessage("MALFORMED", "LWT is Online or Offline"),)


def _decode_info(name: str, payload: bytes, memory: TasmotaState | None) -> Sequence[DeviceReport]:
    """`{"Info1": {"Module": "Sonoff Basic", "Version": "14.2.0(tasmota)", …}}`; before version 10 without `Info1` around it.
    INFO1 is published once after a boot."""
    document = _decode_object(payload)
    info = document.get(name, document)
    if not isinstance(info, dict):
        return (UnreadableMessage("MALFORMED", f"{name} is an object"),)
    reports = conversion.flatten({name: info}, ignored=IGNORED).to_reports()
    if name == "Info1":
        version = info.get("Version")
        if isinstance(version, str):
            reports.append(HelloReport(version[:64], None))
        reports += _decode_boot(version, memory)
    return reports


def _decode_boot(version: Json, memory: TasmotaState | None) -> Sequence[DeviceReport]:
    """A restart is done with it; an upgrade too, if the device had said that it succeeded."""
    if memory is None or memory.beginning is None:
        return ()
    execution_id, command, answer = memory.beginning
    if command.cmd != "RESTART" and not _upgrade_word(answer).startswith("successful"):
        return ()
    memory.beginning = None
    return (CommandResultReport(execution_id, "done", data={**answer, "Version": version}),)


def _decode_status(name: str, document: Mapping[str, Any], memory: TasmotaState | None, at_ms: int) -> Sequence[DeviceReport]:
    """The answers to `Status`: settings and diagnostics. They are the answer of a command, or of nobody we know, or tell the
    channels that were asked for."""
    if memory is None:
        return (_DIAGNOSTICS,)
    is_of_command = any("STATUS" in one.names for one in memory.sent.values())
    is_expected = memory.layout.is_expected(name) and not is_of_command
    reports = memory.layout.learn_status(name, document)
    if not is_expected and memory.sent:
        memory.answers.append((at_ms, document))
    elif not is_expected:
        reports.append(_DIAGNOSTICS)
    return reports


def _custom_command(command: OutboundCommand) -> list[str] | None:
    """A defined command of another name is Tasmota's own command; a string or number is its argument.

    A `;` would start another command without permission, so it is refused."""
    argument = "" if command.params is None else command.params
    if isinstance(argument, bool) or not isinstance(argument, str | int | float):
        return None
    text = f"{command.cmd} {argument}".strip()
    return None if any(sign in text for sign in ";\r\n\0") else [text]


def _units(document: Mapping[str, Any], values: Iterable[str]) -> dict[str, str]:
    """Tasmota gives the units of temperature, pressure and speed once for the whole message; those of energy are fixed."""
    chosen = {name: document[field] for field, names in _UNIT_FIELDS.items() for name in names if field in document}
    units = {}
    for path in values:
        name = next(part for part in reversed(path.split(".")) if not part.isdigit())
        unit = chosen.get(name, _FIXED_UNITS.get(name))
        if isinstance(unit, str):
            units[path] = _DEGREES.get(unit, unit) if name in _TEMPERATURES else unit
    return units


def _decode_document(
    prefix: str, document: Mapping[str, Any], retain: bool, memory: TasmotaState | None, at_ms: int
) -> Sequence[DeviceReport]:
    """`POWER` and `POWER1` are the relay; other relays are channels and also readings `power2`…, and so is everything else, under
    its own name. A relay that moves a shutter is only a reading."""
    if memory is not None and prefix == "stat":
        memory.answers.append((at_ms, document))
    layout = None if memory is None else memory.layout
    reports: list[DeviceReport] = []
    flat, others = conversion.FlatReadings(), {}
    for name, value in document.items():
        power = POWER.fullmatch(name)
        if power is None or not isinstance(value, str):
            others[name] = value
            continue
        channel, relay = int(power[1] or RELAY_CHANNEL), _switch_state(value)
        is_channel = channel >= RELAY_CHANNEL and (layout is None or not layout.moves_shutter(channel))
        if is_channel and (channel == RELAY_CHANNEL or relay is not None):
            reports += _decode_relay(name, channel, relay, memory, at_ms)
        if channel != RELAY_CHANNEL or not is_channel:
            flat.add(f"power{channel}", value if relay is None else relay)
    channels = read_channels(document, layout)
    if layout is not None:
        reports += [*layout.declare(), *layout.queries(document, at_ms)]
    reports += [*channels, *_decode_actions(document, retain, layout, at_ms)]
    conversion.flatten(others, ignored=IGNORED, into=flat)
    return [*reports, *flat.to_reports(_units(document, flat.values)), *_decode_upgrade(document, memory)]


def _decode_actions(document: Mapping[str, Any], retain: bool, layout: BoardLayout | None, at_ms: int) -> Sequence[DeviceReport]:
    reports: list[DeviceReport] = []
    for component, action in find_actions(document):
        known = BoardLayout() if layout is None else layout
        reports += known.add_input(component)
        reports += conversion.press_reports(component, component.lower(), action, retain, at_ms)
    return reports


def _decode_relay(name: str, channel: int, relay: bool | None, memory: TasmotaState | None, at_ms: int) -> Sequence[DeviceReport]:
    """`StateText` may change the case of the words; other words are told, because nobody knows what they mean."""
    if relay is None:
        return (UnreadableMessage("MALFORMED", "POWER is ON or OFF: set StateText1 OFF and StateText2 ON", metric=name),)
    report = RelayReport(relay, channel=channel)
    if memory is None:
        return (report,)
    memory.set_relay(channel, relay, at_ms)
    memory.layout.relays[channel] = relay
    awaiting = memory.awaiting.pop(channel, None)
    if awaiting is None or at_ms - awaiting[1] > ANSWER_MS:
        return (report,)
    return (CommandResultReport(awaiting[0], "done", relay=relay),)


def _decode_end(words: str, has_begun: bool, memory: TasmotaState | None, at_ms: int) -> Sequence[DeviceReport]:
    """The Backlog of a command has run; what was said since it was sent decides how it ended. `words`: the execution's id, and
    its channel if it is not the first."""
    execution_id, _, number = words.partition(" ")
    execution_id, channel = execution_id[:64], int(number) if _CHANNEL.fullmatch(number) else RELAY_CHANNEL
    if memory is None:
        return (CommandResultReport(execution_id, "ack" if has_begun else "done"),)
    command = memory.sent.pop(execution_id, None)
    answer = memory.take_answer(at_ms - ANSWER_MS if command is None else min(command.sent_ms, at_ms))
    word = answer.get(f"POWER{channel}", answer.get("POWER") if channel == RELAY_CHANNEL else None)
    relay = None if memory.layout.moves_shutter(channel) else _switch_state(word)
    before = memory.relays_before.get(channel)
    memory.relays_before |= {number: state for number, state in memory.relays.items() if number == channel}
    data = answer or None
    if command is None and not answer:
        return (CommandResultReport(execution_id, "ack"), StateQuestion(_QUERY))
    if (code := _refusal(command, answer, relay, before)) is not None:
        return (CommandResultReport(execution_id, "error", code, relay, data),)
    if has_begun:
        memory.beginning = None if command is None else (execution_id, command, answer)
        return (CommandResultReport(execution_id, "ack", data=data),)
    if relay is None and command is not None and command.switches_relay:
        memory.awaiting[channel] = (execution_id, at_ms)
        return (CommandResultReport(execution_id, "ack"), StateQuestion(_QUERY))
    return (CommandResultReport(execution_id, "done", relay=relay, data=data),)


def _refusal(command: SentCommand | None, answer: Mapping[str, Any], relay: bool | None, before: bool | None) -> str | None:
    """Why the command failed, as a result code. Whether ON and OFF agree with the relay is decided for all firmwares in one
    place."""
    names = {"COMMAND", *(command.names if command is not None else ())}
    if not (command is not None and command.switches_relay and relay is not None):
        for name, value in answer.items():
            if name.upper() in names and isinstance(value, str) and value.lower() in _REFUSALS:
                return _REFUSALS[value.lower()]
    if command is None:
        return None
    if command.cmd == "TOGGLE":
        return "STATE_MISMATCH" if relay is not None and relay is before else None
    if command.cmd == "UPGRADE" and "Upgrade" in answer and " from " not in str(answer["Upgrade"]):
        return "NOT_STARTED"
    wanted, reported = _switch_state(command.argument), _switch_state(answer.get(command.cmd))
    is_switch = POWER.fullmatch(command.cmd) is not None and wanted is not None and reported is not None
    return "STATE_MISMATCH" if is_switch and wanted is not reported else None


def _decode_upgrade(document: Mapping[str, Any], memory: TasmotaState | None) -> Sequence[DeviceReport]:
    """`{"Upgrade": "Successful. Restarting"}` or `Failed …`, minutes after the command."""
    if memory is None or memory.beginning is None or "Upgrade" not in document:
        return ()
    execution_id, _, answer = memory.beginning
    answer["Upgrade"] = document["Upgrade"]
    if not _upgrade_word(answer).startswith("failed"):
        return ()
    memory.beginning = None
    return (CommandResultReport(execution_id, "error", "UPGRADE_FAILED", data=answer),)


def _upgrade_word(answer: Mapping[str, Any]) -> str:
    return str(answer.get("Upgrade", "")).lower()


def _switch_state(word: object) -> bool | None:
    return _SWITCH_WORDS.get(word.upper()) if isinstance(word, str) else None
