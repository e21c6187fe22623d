"""Shelly Gen2 and later with the MQTT prefix `devices/<id>`: RPC requests down on `rpc`, answers up on `answer/rpc`,
`status/switch:0` and the partial `NotifyStatus` of `events/rpc` for everything that changes.

JSON-RPC allows any JSON value as `id`, and Shelly returns it unchanged, so the RPC `id` is the execution's id.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
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
    UnreadableMessage,
)

_RPC_METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "ON": ("Switch.Set", {"id": 0, "on": True}),
    "OFF": ("Switch.Set", {"id": 0, "on": False}),
    "TOGGLE": ("Switch.Toggle", {"id": 0}),
    "STATUS": ("Switch.GetStatus", {"id": 0}),
    "GET_SCHEDULES": ("Schedule.List", {}),
}
_SKIPPED_FIELDS = frozenset({"id", "source", "output", "timer_started_at", "timer_duration", "aenergy.minute_ts"})
PLAN_EXPIRY_S = 30
"""The plan is sent again when the device reconnects, so an older one must expire before that."""
_PLAN_ID_PREFIX = "plan:"
_PLAN_CLOCK_PREFIX = "plan-clock:"
_PLAN_STEP_ID = "plan-step"

_encode_json = msgspec.json.Encoder().encode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


def encode_command(device_id: str, command: OutboundCommand, now_ms: int) -> Sequence[OutboundMessage]:
    known = _RPC_METHODS.get(command.cmd)
    if known is None:
        return ()
    method, params = known
    return (_rpc_request(device_id, command.execution_id, method, params, command.expiry_s(now_ms)),)


def decode(topic: str, payload: bytes, retain: bool) -> Sequence[DeviceReport]:
    if topic == "online":
        return (PresenceReport(payload.strip() == b"true"),)
    document = _decode_object(payload)
    if topic == "status/switch:0":
        return _decode_switch_status(document)
    if topic == "answer/rpc":
        return _decode_response(document)
    if topic == "events/rpc":
        return _decode_notification(document)
    return () if topic.startswith("status/") else (UnreadableMessage("UNKNOWN_TOPIC", f"nothing is expected on {topic[:64]!r}"),)


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


def _decode_switch_status(status: Mapping[str, Any]) -> Sequence[DeviceReport]:
    """A status may be partial: missing fields have not changed."""
    reports: list[DeviceReport] = []
    if isinstance(status.get("output"), bool):
        reports.append(RelayReport(status["output"]))
    return reports + conversion.to_reports(*conversion.flatten(status, skip=_SKIPPED_FIELDS))


def _decode_notification(document: Mapping[str, Any]) -> Sequence[DeviceReport]:
    params = document.get("params")
    if document.get("method") not in ("NotifyStatus", "NotifyFullStatus") or not isinstance(params, dict):
        return ()
    status = params.get("switch:0")
    return _decode_switch_status(status) if isinstance(status, dict) else ()


def _decode_response(document: Mapping[str, Any]) -> Sequence[DeviceReport]:
    execution_id = document.get("id")
    if not isinstance(execution_id, str) or len(execution_id) > 64:
        return (UnreadableMessage("MALFORMED", "an answer without the id of a request"),)
    if execution_id.startswith("plan"):
        return _decode_plan_response(execution_id, document)
    error = document.get("error")
    if isinstance(error, dict):
        return (CommandResultReport(execution_id, "error", code=str(error.get("code", "ERROR"))[:64], data=error.get("message")),)
    return (CommandResultReport(execution_id, "done", data=document.get("result")),)
