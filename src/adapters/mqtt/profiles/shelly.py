"""Shelly Gen2 and later with the MQTT prefix `devices/<id>`: RPC requests down on `rpc`, answers up on `answer/rpc`,
`status/switch:0` and the partial `NotifyStatus` of `events/rpc` for everything that changes.

JSON-RPC allows any JSON value as `id`, and Shelly returns it unchanged, so the RPC `id` is the execution's id. The answer to a
command is a state too, because not every generation notifies.

`status/…` and `NotifyStatus` may overtake each other: a firmware has published `output: false` on the one after `output: true` on
the other. So a state that contradicts another source within two seconds is asked for (`Switch.GetStatus`), not believed.

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
from adapters.mqtt.profiles.conversion import FuturePlanEdge, upcoming_edges
from domain.devices.messages import (
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

_RPC_METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "ON": ("Switch.Set", {"id": 0, "on": True}),
    "OFF": ("Switch.Set", {"id": 0, "on": False}),
    "TOGGLE": ("Switch.Toggle", {"id": 0}),
    "STATUS": ("Switch.GetStatus", {"id": 0}),
    "GET_SCHEDULES": ("Schedule.List", {}),
}
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
QUESTION_EXPIRY_S = 10
MAX_SENT = 64
_QUESTION_ID = "question"
PLAN_EXPIRY_S = 30
"""The plan is sent again when the device reconnects, so an older one must expire before that."""
_PLAN_ID_PREFIX = "plan:"
_PLAN_CLOCK_PREFIX = "plan-clock:"
_PLAN_STEP_ID = "plan-step"

_encode_json = msgspec.json.Encoder().encode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(slots=True)
class ShellyState:
    """What one device was sent, and which state of its relay is believed, since when, and by which source."""

    device_id: str
    sent: dict[str, bool | None] = field(default_factory=dict)
    """By execution id: the state that the command sets; None for TOGGLE. Oldest first."""
    relay: bool | None = None
    source: str = ""
    at_ms: int = 0
    question_ms: int = 0

    def believe(self, relay: bool, source: str, at_ms: int) -> None:
        if relay is not self.relay or source == _ANSWER:
            self.relay, self.source = relay, source
        if source == self.source:
            self.at_ms = at_ms

    def doubts(self, relay: bool, source: str, at_ms: int) -> bool:
        """Whether the device may have said this before what is believed. Its answer to a question is never doubted."""
        is_contrary = self.relay is not None and relay is not self.relay and source not in (self.source, _ANSWER)
        return is_contrary and 0 <= at_ms - self.at_ms <= CONTRARY_MS

    def take_target(self, execution_id: str, result: Any) -> bool | None:
        """The state after the command, as far as its answer tells."""
        if execution_id not in self.sent:
            return None
        target, was_on = self.sent.pop(execution_id), result.get("was_on") if isinstance(result, dict) else None
        return target if target is not None or not isinstance(was_on, bool) else not was_on


_STATUS, _NOTIFICATION, _ANSWER = "status", "notification", "answer"
"""Sources of a state."""


def encode_command(
    device_id: str, command: OutboundCommand, now_ms: int, memory: ShellyState | None = None
) -> Sequence[OutboundMessage]:
    known = _RPC_METHODS.get(command.cmd)
    if known is None:
        return ()
    method, params = known
    if memory is not None and method in ("Switch.Set", "Switch.Toggle"):
        while len(memory.sent) >= MAX_SENT:
            del memory.sent[next(iter(memory.sent))]
        memory.sent[command.execution_id] = params.get("on")
    return (_rpc_request(device_id, command.execution_id, method, params, command.expiry_s(now_ms)),)


def decode(topic: str, payload: bytes, retain: bool, memory: ShellyState | None = None, at_ms: int = 0) -> Sequence[DeviceReport]:
    if topic in IGNORED_TOPICS:
        return ()
    if topic == "online":
        return _decode_presence(payload.strip())
    if topic.startswith("status/"):
        return _decode_status(topic.removeprefix("status/"), _decode_object(payload), _STATUS, memory, at_ms)
    if topic == "answer/rpc":
        return _decode_response(_decode_object(payload), memory, at_ms)
    if topic == "events/rpc":
        return _decode_notification(_decode_object(payload), memory, at_ms)
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
    call = {"method": "Switch.Set", "params": {"id": 0, "on": edge.relay}}
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


def _decode_presence(word: bytes) -> Sequence[DeviceReport]:
    if word in (b"true", b"false"):
        return (PresenceReport(word == b"true"),)
    return (UnreadableMessage("MALFORMED", "online is true or false"),)


def _decode_status(
    component: str, status: Mapping[str, Any], source: str, memory: ShellyState | None, at_ms: int
) -> Sequence[DeviceReport]:
    """A status may be partial: missing fields have not changed. The fields of `switch:0` have no prefix, except its state, which
    is the relay; those of `em:0` are `em0.…`."""
    if component != "switch:0":
        return conversion.flatten(status, prefix=_COMPONENT.sub("", component), ignored=IGNORED).to_reports()
    reports: list[DeviceReport] = []
    output = status.get("output")
    if isinstance(output, bool):
        reports += _decode_output(output, source, memory, at_ms)
        status = {name: value for name, value in status.items() if name != "output"}
    return [*reports, *conversion.flatten(status, ignored=IGNORED).to_reports()]


def _decode_output(relay: bool, source: str, memory: ShellyState | None, at_ms: int) -> Sequence[DeviceReport]:
    if memory is None:
        return (RelayReport(relay),)
    if memory.doubts(relay, source, at_ms):
        if at_ms - memory.question_ms < QUESTION_PAUSE_MS:
            return ()  # it has been asked just now
        memory.question_ms = at_ms
        question = _rpc_request(memory.device_id, _QUESTION_ID, "Switch.GetStatus", {"id": 0}, QUESTION_EXPIRY_S)
        return (StateQuestion(question),)
    memory.believe(relay, source, at_ms)
    return (RelayReport(relay),)


def _decode_notification(document: Mapping[str, Any], memory: ShellyState | None, at_ms: int) -> Sequence[DeviceReport]:
    method, params = document.get("method"), document.get("params")
    if not isinstance(params, dict):
        return (UnreadableMessage("MALFORMED", "a notification without params"),)
    reports: list[DeviceReport] = []
    if method in ("NotifyStatus", "NotifyFullStatus"):
        for component, status in params.items():
            if isinstance(status, dict):
                reports += _decode_status(component, status, _NOTIFICATION, memory, at_ms)
            elif component not in IGNORED:
                reports += conversion.flatten({_COMPONENT.sub("", component): status}).to_reports()
        return reports
    events = params.get("events")
    if method != "NotifyEvent" or not isinstance(events, list):
        return (UnreadableMessage("UNKNOWN_METHOD", f"{str(method)[:64]!r} is no notification of a status or event"),)
    for event in events:
        reports += _decode_event(event)
    return reports


def _decode_event(event: Any) -> Sequence[DeviceReport]:
    """`{"component": "input:0", "id": 0, "event": "single_push", "ts": …}`: the text metric `input0.event`. Each event is a
    message of its own, because one notification may have several of a component."""
    component = event.get("component") if isinstance(event, dict) else None
    if not isinstance(component, str):
        return (UnreadableMessage("MALFORMED", "an event has a component"),)
    return conversion.flatten(event, prefix=_COMPONENT.sub("", component), ignored=IGNORED).to_reports()


def _decode_response(document: Mapping[str, Any], memory: ShellyState | None, at_ms: int) -> Sequence[DeviceReport]:
    execution_id = document.get("id")
    if not isinstance(execution_id, str) or len(execution_id) > 64:
        return (UnreadableMessage("MALFORMED", "an answer without the id of a request"),)
    result, error = document.get("result"), document.get("error")
    if execution_id == _QUESTION_ID:
        if not isinstance(result, dict):
            return (UnreadableMessage("MALFORMED", "no answer to the question for the relay's state"),)
        return _decode_status("switch:0", result, _ANSWER, memory, at_ms)
    if execution_id.startswith("plan"):
        return _decode_plan_response(execution_id, document)
    relay = memory.take_target(execution_id, result) if memory is not None else None
    if isinstance(error, dict):
        return (CommandResultReport(execution_id, "error", code=str(error.get("code", "ERROR"))[:64], data=error.get("message")),)
    if relay is None and isinstance(result, dict) and isinstance(result.get("output"), bool):
        relay = result["output"]
    if relay is not None and memory is not None:
        memory.believe(relay, _ANSWER, at_ms)
    return (CommandResultReport(execution_id, "done", relay=relay, data=result),)
