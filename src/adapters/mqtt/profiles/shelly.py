"""Shelly Gen2 and later with the MQTT prefix `devices/<id>`: RPC requests down on `rpc`, answers up on `answer/rpc`,
`status/switch:0` and the partial `NotifyStatus` of `events/rpc` for everything that changes.

JSON-RPC allows any JSON value as `id`, and Shelly returns it unchanged, so the RPC `id` is the execution's id. The answer to a
command is a state too, because not every generation notifies.

`status/…` and `NotifyStatus` may overtake each other: a firmware has published `output: false` on the one after `output: true` on
the other. So a state that contradicts another source within two seconds is asked for (`Switch.GetStatus`), not believed. Each
component has states and doubts of its own.

When it has come online it is asked for its whole configuration and status: they name its channels (`shelly_channels.py`). If that
was too early, it is asked again when it speaks of a component. A device that sleeps says its whole status (`NotifyFullStatus`)
each time when it wakes up.

Shelly's first generation publishes on `shellies/…`, which is nobody's prefix here.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from adapters.mqtt.profiles import conversion
from adapters.mqtt.profiles import shelly_channels as channels
from adapters.mqtt.profiles.conversion import FuturePlanEdge, upcoming_edges
from domain.devices.channels import RELAY_CHANNEL
from domain.devices.messages import (
    ChannelsReport,
    CommandResultReport,
    DeviceClockReadyReport,
    DevicePlanRevisionReport,
    DeviceReport,
    OutboundCommand,
    OutboundMessage,
    PlanRow,
    PresenceReport,
    RelayReport,
    StateQuestion,
    UnreadableMessage,
)

IGNORED: Mapping[str, str] = {
    "id": "the number of the component, which its name has",
    "source": "the cause of the last change; `triggeredBy` tells it",
    "mac": "the address of the device",
    "time": "an instant",
    "unixtime": "an instant",
    "last_sync_ts": "an instant",
    "last_update_ts": "an instant",
    "last_updated_ts": "an instant",
    "timer_started_at": "an instant",
    "move_started_at": "an instant",
    "ts": "an instant",
    "*.minute_ts": "an instant",
    "component": "part of the metric's name",
}
"""What a component's status has beside its values, with the reason; names as in `conversion.flatten`."""
IGNORED_TOPICS: Mapping[str, str] = {"debug/log": "log lines"}
_COMPONENT = re.compile(r":(?=\d+$)")
CONTRARY_MS = 2_000
"""How long after a state the other sources may still publish the state before it."""
QUESTION_PAUSE_MS = 500
CHANNELS_PAUSE_MS = 30_000
QUESTION_EXPIRY_S = 10
MAX_SENT = 64
MAX_OUTPUTS = 64
_QUESTION_ID = "question"
"""For `switch:0`; for another component `question:light:0`."""
_CONFIG_ID, _FULL_STATUS_ID = "all-config", "all-status"
PLAN_EXPIRY_S = 30
"""The plan is sent again when the device reconnects, so an older one must expire before that."""
_PLAN_ID_PREFIX = "plan:"
_PLAN_CLOCK_PREFIX = "plan-clock:"
_PLAN_STEP_ID = "plan-step"

_NO_STATE = UnreadableMessage("MALFORMED", "no answer to the question for a component's state")

_encode_json = msgspec.json.Encoder().encode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(slots=True)
class BelievedOutput:
    """Which state of a component is believed, since when, and by which source."""

    on: bool | None = None
    source: str = ""
    at_ms: int = 0
    question_ms: int = 0

    def believe(self, on: bool, source: str, at_ms: int) -> None:
        if on is not self.on or source == _ANSWER:
            self.on, self.source = on, source
        if source == self.source:
            self.at_ms = at_ms

    def doubts(self, on: bool, source: str, at_ms: int) -> bool:
        """Whether the device may have said this before what is believed. Its answer to a question is never doubted."""
        is_contrary = self.on is not None and on is not self.on and source not in (self.source, _ANSWER)
        return is_contrary and 0 <= at_ms - self.at_ms <= CONTRARY_MS


@dataclass(slots=True)
class ShellyState:
    """What one device was sent, and what is believed of it."""

    device_id: str
    sent: dict[str, tuple[str, bool | None]] = field(default_factory=dict)
    """By execution id: the component, and the state that the command sets; None for TOGGLE. Oldest first."""
    outputs: dict[str, BelievedOutput] = field(default_factory=dict)
    """By component."""
    names: dict[str, str] = field(default_factory=dict)
    """By component."""
    is_known: bool = False
    """Whether it has said its whole status since it came online."""
    queried_ms: int | None = None

    def query_channels(self, at_ms: int) -> list[DeviceReport]:
        if self.is_known or (self.queried_ms is not None and 0 <= at_ms - self.queried_ms < CHANNELS_PAUSE_MS):
            return []
        self.queried_ms = at_ms
        questions = ((_CONFIG_ID, "Shelly.GetConfig"), (_FULL_STATUS_ID, "Shelly.GetStatus"))
        return [StateQuestion(_rpc_request(self.device_id, name, method, {}, QUESTION_EXPIRY_S)) for name, method in questions]

    def output(self, component: str) -> BelievedOutput:
        while len(self.outputs) >= MAX_OUTPUTS and component not in self.outputs:
            del self.outputs[next(iter(self.outputs))]
        return self.outputs.setdefault(component, BelievedOutput())

    def take_target(self, execution_id: str, result: Any) -> tuple[str | None, bool | None]:
        """The component that the command was for, and its state after it, as far as the answer tells."""
        if execution_id not in self.sent:
            return None, None
        component, target = self.sent.pop(execution_id)
        was_on = result.get("was_on") if isinstance(result, dict) else None
        return component, target if target is not None or not isinstance(was_on, bool) else not was_on


_STATUS, _NOTIFICATION, _ANSWER = "status", "notification", "answer"
"""Sources of a state."""


def encode_command(
    device_id: str, command: OutboundCommand, now_ms: int, memory: ShellyState | None = None
) -> Sequence[OutboundMessage]:
    call = channels.command_call(command)
    if call is None:
        return ()
    method, params = call
    if memory is not None and command.kind.is_switched and not method.endswith(("GetStatus", "List")):
        while len(memory.sent) >= MAX_SENT:
            del memory.sent[next(iter(memory.sent))]
        memory.sent[command.execution_id] = channels.component_of(command), params.get("on")
    return (_rpc_request(device_id, command.execution_id, method, params, command.expiry_s(now_ms)),)


def decode(topic: str, payload: bytes, retain: bool, memory: ShellyState | None = None, at_ms: int = 0) -> Sequence[DeviceReport]:
    if topic in IGNORED_TOPICS:
        return ()
    if topic == "online":
        return _decode_presence(payload.strip(), memory, at_ms)
    if topic.startswith("status/"):
        return _decode_status(topic.removeprefix("status/"), _decode_object(payload), _STATUS, memory, at_ms)
    if topic == "answer/rpc":
        return _decode_response(_decode_object(payload), memory, at_ms)
    if topic == "events/rpc":
        return _decode_notification(_decode_object(payload), retain, memory, at_ms)
    return (UnreadableMessage("UNKNOWN_TOPIC", f"nothing is expected on {topic[:64]!r}"),)


def is_command_subscription(topic_filter: str) -> bool:
    return topic_filter in ("rpc", "rpc/#", "#")


def state_queries() -> Sequence[OutboundMessage]:
    return (OutboundMessage("command/switch:0", b"status_update"),)


def encode_plan(device_id: str, revision: int, rows: Sequence[PlanRow], now_ms: int) -> Sequence[OutboundMessage]:
    """Deletes the device's jobs and sets its time zone. The jobs of the plan follow when it has confirmed the zone: with another
    zone it would run them at other hours."""
    steps: list[tuple[str, str, dict[str, Any]]] = [
        (_PLAN_STEP_ID, "Schedule.DeleteAll", {}),
        (f"{_PLAN_CLOCK_PREFIX}{revision}", "Sys.SetConfig", {"config": {"location": {"tz": "Etc/UTC"}}}),
    ]
    return [_rpc_request(device_id, name, method, params, PLAN_EXPIRY_S) for name, method, params in steps]


def encode_plan_jobs(device_id: str, revision: int, rows: Sequence[PlanRow], now_ms: int) -> Sequence[OutboundMessage]:
    """Replaces the device's list of jobs: one job for each edge, at its day and second in UTC. The device holds the plan if the
    list has that many jobs."""
    edges, complete = upcoming_edges(rows, now_ms)
    steps: list[tuple[str, str, dict[str, Any]]] = [(_PLAN_STEP_ID, "Schedule.DeleteAll", {})]
    steps += [(_PLAN_STEP_ID, "Schedule.Create", _schedule_job(edge)) for edge in edges]
    if complete:
        steps.append((f"{_PLAN_ID_PREFIX}{revision}:{len(edges)}", "Schedule.List", {}))
    return [_rpc_request(device_id, name, method, params, PLAN_EXPIRY_S) for name, method, params in steps]


def _schedule_job(edge: FuturePlanEdge) -> dict[str, Any]:
    """A cron expression with seconds first, without leading zeros."""
    at = time.gmtime(edge.ts)
    timespec = f"{at.tm_sec} {at.tm_min} {at.tm_hour} {at.tm_mday} {at.tm_mon} *"
    call = {"method": "Switch.Set", "params": {"id": edge.channel - RELAY_CHANNEL, "on": edge.relay}}
    return {"enable": True, "timespec": timespec, "calls": [call]}


def _rpc_request(device_id: str, name: str, method: str, params: Mapping[str, Any], expiry_s: int) -> OutboundMessage:
    request = {"id": name, "src": f"devices/{device_id}/answer", "method": method, "params": params}
    return OutboundMessage("rpc", _encode_json(request), expiry_s=expiry_s)


def _decode_plan_response(name: str, document: Mapping[str, Any]) -> Sequence[DeviceReport]:
    """The response to one request of a plan."""
    prefix = _PLAN_CLOCK_PREFIX if name.startswith(_PLAN_CLOCK_PREFIX) else _PLAN_ID_PREFIX
    revision, _, count = name.removeprefix(prefix).partition(":")
    if not (name.startswith(prefix) and revision.isdigit() and len(name) < 40):
        return ()
    result = document.get("result")
    if prefix == _PLAN_CLOCK_PREFIX:
        is_set = isinstance(result, dict) and result.get("restart_required") is not True
        return (DeviceClockReadyReport(int(revision)) if is_set else DevicePlanRevisionReport(0),)
    jobs = result.get("jobs") if isinstance(result, dict) else None
    holds = count.isdigit() and isinstance(jobs, list) and len(jobs) == int(count)
    return (DevicePlanRevisionReport(int(revision) if holds else 0),)


def _decode_presence(word: bytes, memory: ShellyState | None, at_ms: int) -> Sequence[DeviceReport]:
    if word not in (b"true", b"false"):
        return (UnreadableMessage("MALFORMED", "online is true or false"),)
    if word == b"false" or memory is None:
        return (PresenceReport(word == b"true"),)
    memory.is_known, memory.queried_ms = False, None
    return (PresenceReport(True), *memory.query_channels(at_ms))


def _decode_status(
    component: str, status: Mapping[str, Any], source: str, memory: ShellyState | None, at_ms: int
) -> Sequence[DeviceReport]:
    """A status may be partial: missing fields have not changed. The fields of `switch:0` have no prefix, except its state, which
    is the relay; those of `em:0` are `em0.…`."""
    output, prefix = status.get("output"), _COMPONENT.sub("", component)
    reports: list[DeviceReport] = []
    if isinstance(output, bool) and channels.has_output(component):
        reports += _decode_output(component, output, source, memory, at_ms)
    reports += channels.read_state(component, status)
    if component == channels.RELAY:
        prefix = ""
        status = {name: value for name, value in status.items() if name != "output" or not isinstance(value, bool)}
    elif memory is not None and channels.is_channel(component):
        reports += memory.query_channels(at_ms)
    return [*reports, *conversion.flatten(status, prefix=prefix, ignored=IGNORED).to_reports()]


def _decode_output(component: str, on: bool, source: str, memory: ShellyState | None, at_ms: int) -> Sequence[DeviceReport]:
    report = RelayReport(on, channel=channels.reference(component))
    if memory is None:
        return (report,)
    believed = memory.output(component)
    if believed.doubts(on, source, at_ms):
        if at_ms - believed.question_ms < QUESTION_PAUSE_MS:
            return ()  # it has been asked just now
        believed.question_ms = at_ms
        name = _QUESTION_ID if component == channels.RELAY else f"{_QUESTION_ID}:{component}"
        return (StateQuestion(_rpc_request(memory.device_id, name, *channels.status_call(component), QUESTION_EXPIRY_S)),)
    believed.believe(on, source, at_ms)
    return (report,)


def _decode_notification(
    document: Mapping[str, Any], retain: bool, memory: ShellyState | None, at_ms: int
) -> Sequence[DeviceReport]:
    method, params = document.get("method"), document.get("params")
    if not isinstance(params, dict):
        return (UnreadableMessage("MALFORMED", "a notification without params"),)
    if method == "NotifyFullStatus":
        return _decode_full_status(params, _NOTIFICATION, memory, at_ms)
    if method == "NotifyStatus":
        return _decode_components(params, _NOTIFICATION, memory, at_ms)
    events = params.get("events")
    if method != "NotifyEvent" or not isinstance(events, list):
        return (UnreadableMessage("UNKNOWN_METHOD", f"{str(method)[:64]!r} is no notification of a status or event"),)
    return [report for event in events for report in _decode_event(event, retain, at_ms)]


def _decode_full_status(status: Mapping[str, Any], source: str, memory: ShellyState | None, at_ms: int) -> Sequence[DeviceReport]:
    """All its channels, and what they do. A device without any has no report of them, and remains one of one relay."""
    if memory is not None:
        memory.is_known = True
    declared = channels.declared_channels(status, {} if memory is None else memory.names)
    reports = _decode_components(status, source, memory, at_ms)
    return [ChannelsReport(declared), *reports] if declared else reports


def _decode_components(
    components: Mapping[str, Any], source: str, memory: ShellyState | None, at_ms: int
) -> Sequence[DeviceReport]:
    reports: list[DeviceReport] = []
    for component, status in components.items():
        if isinstance(status, dict):
            reports += _decode_status(component, status, source, memory, at_ms)
        elif component not in IGNORED:
            reports += conversion.flatten({_COMPONENT.sub("", component): status}).to_reports()
    return reports


def _decode_event(event: Any, retain: bool, at_ms: int) -> Sequence[DeviceReport]:
    """`{"component": "input:0", "id": 0, "event": "single_push", "ts": …}`: the text metric `input0.event`, and a press. Each
    event is a message of its own, because one notification may have several of a component."""
    component = event.get("component") if isinstance(event, dict) else None
    if not isinstance(component, str):
        return (UnreadableMessage("MALFORMED", "an event has a component"),)
    metric, word = _COMPONENT.sub("", component), event.get("event")
    action = channels.PUSHES.get(word) if isinstance(word, str) else None
    presses = [] if action is None else conversion.press_reports(component, metric, action, retain, at_ms)
    return [*presses, *conversion.flatten(event, prefix=metric, ignored=IGNORED).to_reports()]


def _decode_response(document: Mapping[str, Any], memory: ShellyState | None, at_ms: int) -> Sequence[DeviceReport]:
    execution_id = document.get("id")
    if not isinstance(execution_id, str) or len(execution_id) > 64:
        return (UnreadableMessage("MALFORMED", "an answer without the id of a request"),)
    result, error = document.get("result"), document.get("error")
    if execution_id.partition(":")[0] in (_QUESTION_ID, _CONFIG_ID, _FULL_STATUS_ID):
        return _decode_answer(execution_id, result, memory, at_ms)
    if execution_id.startswith("plan"):
        return _decode_plan_response(execution_id, document)
    component, relay = memory.take_target(execution_id, result) if memory is not None else (None, None)
    if isinstance(error, dict):
        return (CommandResultReport(execution_id, "error", code=str(error.get("code", "ERROR"))[:64], data=error.get("message")),)
    if relay is None and isinstance(result, dict) and isinstance(result.get("output"), bool):
        relay = result["output"]
    if relay is not None and memory is not None and component is not None:
        memory.output(component).believe(relay, _ANSWER, at_ms)
    return (CommandResultReport(execution_id, "done", relay=relay, data=result),)


def _decode_answer(name: str, result: Any, memory: ShellyState | None, at_ms: int) -> Sequence[DeviceReport]:
    """To a question of the service. A device that knows no such question has no answer, and nothing is lost by that."""
    if not isinstance(result, dict):
        return () if name in (_CONFIG_ID, _FULL_STATUS_ID) else (_NO_STATE,)
    if name == _CONFIG_ID:
        if memory is not None:
            memory.names = channels.component_names(result)
        return ()
    if name == _FULL_STATUS_ID:
        return _decode_full_status(result, _ANSWER, memory, at_ms)
    component = name.partition(":")[2] or channels.RELAY
    return _decode_status(component, result, _ANSWER, memory, at_ms)
