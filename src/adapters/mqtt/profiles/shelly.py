"""Shelly Gen2 and later with the MQTT prefix `devices/<id>`: RPC requests down on `rpc`, answers up on `answer/rpc`,
`status/switch:0` and the partial `NotifyStatus` of `events/rpc` for everything that changes.

The RPC `id` is a number in many firmwares but any JSON value by JSON-RPC; Shelly gives back what it was sent, so the execution's
own id is used.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from adapters.mqtt.profiles import sensor_json
from adapters.mqtt.profiles.schedule_edges import PlanEdge, upcoming_edges
from domain.devices.codec import (
    CommandResultReport,
    DeviceCommand,
    DeviceReport,
    OutboundMessage,
    PlanRevisionReport,
    PlanRow,
    PresenceReport,
    RelayReport,
    TelemetryReport,
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
"""A plan is told anew when the device is back; an old one must not reach it then."""
_PLAN_ID_PREFIX = "plan:"
_PLAN_CLOCK_ID = "plan-clock"

_encode_json = msgspec.json.Encoder().encode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


def encode_command(device_id: str, order: DeviceCommand, now_ms: int) -> Sequence[OutboundMessage]:
    known = _RPC_METHODS.get(order.cmd)
    if known is None:
        return ()
    method, params = known
    expiry_s = max(1, -(-(order.expires_ms - now_ms) // 1000))
    return (_rpc_request(device_id, order.execution_id, method, params, expiry_s),)


def decode(topic: str, payload: bytes, retain: bool) -> Sequence[DeviceReport]:
    if topic == "online":
        return (PresenceReport(payload.strip() == b"true"),)
    try:
        document = _decode_object(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return (UnreadableMessage("MALFORMED", f"{topic}: {error}"),)
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
    """The device's whole list of jobs, one an edge, on the day and second it is due in UTC. The list is asked for at the end, and
    holds the plan if it has as many jobs; if the clock cannot be set to UTC, the device holds nothing."""
    edges, complete = upcoming_edges(rows, now_ms)
    steps: list[tuple[str, str, dict[str, Any]]] = [("plan-step", "Schedule.DeleteAll", {})]
    steps += [("plan-step", "Schedule.Create", _schedule_job(edge)) for edge in edges]
    if complete:
        steps.append((f"{_PLAN_ID_PREFIX}{revision}:{len(edges)}", "Schedule.List", {}))
    steps.append((_PLAN_CLOCK_ID, "Sys.SetConfig", {"config": {"location": {"tz": "Etc/UTC"}}}))
    return [_rpc_request(device_id, name, method, params, PLAN_EXPIRY_S) for name, method, params in steps]


def _schedule_job(edge: PlanEdge) -> dict[str, Any]:
    """Cron with seconds in front; no leading zeros."""
    at = time.gmtime(edge.ts)
    timespec = f"{at.tm_sec} {at.tm_min} {at.tm_hour} {at.tm_mday} {at.tm_mon} *"
    call = {"method": "Switch.Set", "params": {"id": 0, "on": edge.relay}}
    return {"enable": True, "timespec": timespec, "calls": [call]}


def _rpc_request(device_id: str, name: str, method: str, params: Mapping[str, Any], expiry_s: int) -> OutboundMessage:
    request = {"id": name, "src": f"devices/{device_id}/answer", "method": method, "params": params}
    return OutboundMessage("rpc", _encode_json(request), expiry_s=expiry_s)


def _decode_plan_response(name: str, document: Mapping[str, Any]) -> Sequence[DeviceReport]:
    """The answer to a step of a plan."""
    failed = isinstance(document.get("error"), dict)
    if name == _PLAN_CLOCK_ID:
        return (PlanRevisionReport(0),) if failed else ()
    revision, _, count = name.removeprefix(_PLAN_ID_PREFIX).partition(":")
    if not (name.startswith(_PLAN_ID_PREFIX) and revision.isdigit() and count.isdigit() and len(name) < 40):
        return ()
    result = document.get("result")
    jobs = result.get("jobs") if isinstance(result, dict) else None
    holds = isinstance(jobs, list) and len(jobs) == int(count)
    return (PlanRevisionReport(int(revision) if holds else 0),)


def _decode_switch_status(status: Mapping[str, Any]) -> Sequence[DeviceReport]:
    """A status may be partial: what is not in it has not changed."""
    reports: list[DeviceReport] = []
    if isinstance(status.get("output"), bool):
        reports.append(RelayReport(status["output"]))
    values = sensor_json.flatten(status, skip=_SKIPPED_FIELDS)
    if values:
        reports.append(TelemetryReport(sensor_json.encode_telemetry(values)))
    return reports


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
