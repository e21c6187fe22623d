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

from adapters.mqtt.profiles import readings
from adapters.mqtt.profiles.edges import PlanEdge, to_come
from domain.devices.codec import (
    Downlink,
    Order,
    PlanReport,
    PlanRow,
    RelayReport,
    Report,
    ResultReport,
    StatusReport,
    TelemetryReport,
    Unreadable,
)

_METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "ON": ("Switch.Set", {"id": 0, "on": True}),
    "OFF": ("Switch.Set", {"id": 0, "on": False}),
    "TOGGLE": ("Switch.Toggle", {"id": 0}),
    "STATUS": ("Switch.GetStatus", {"id": 0}),
    "GET_SCHEDULES": ("Schedule.List", {}),
}
_NOT_READINGS = frozenset({"id", "source", "output", "timer_started_at", "timer_duration", "aenergy.minute_ts"})
PLAN_EXPIRY_S = 30
"""A plan is told anew when the device is back; an old one must not reach it then."""
_PLAN = "plan:"
_PLAN_CLOCK = "plan-clock"

_encode = msgspec.json.Encoder().encode
_object = msgspec.json.Decoder(dict[str, Any]).decode


def encode(device_id: str, order: Order, now_ms: int) -> Sequence[Downlink]:
    known = _METHODS.get(order.cmd)
    if known is None:
        return ()
    method, params = known
    expiry_s = max(1, -(-(order.expires_ms - now_ms) // 1000))
    return (_request(device_id, order.execution_id, method, params, expiry_s),)


def decode(topic: str, payload: bytes, retain: bool) -> Sequence[Report]:
    if topic == "online":
        return (StatusReport(payload.strip() == b"true"),)
    try:
        document = _object(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return (Unreadable("MALFORMED", f"{topic}: {error}"),)
    if topic == "status/switch:0":
        return _switch(document)
    if topic == "answer/rpc":
        return _answer(document)
    if topic == "events/rpc":
        return _notification(document)
    return () if topic.startswith("status/") else (Unreadable("UNKNOWN_TOPIC", f"nothing is expected on {topic[:64]!r}"),)


def listens(topic_filter: str) -> bool:
    return topic_filter in ("rpc", "rpc/#", "#")


def greeting() -> Sequence[Downlink]:
    return (Downlink("command/switch:0", b"status_update"),)


def plan(device_id: str, revision: int, rows: Sequence[PlanRow], now_ms: int) -> Sequence[Downlink]:
    """The device's whole list of jobs, one an edge, on the day and second it is due in UTC. The list is asked for at the end, and
    holds the plan if it has as many jobs; if the clock cannot be set to UTC, the device holds nothing."""
    edges, complete = to_come(rows, now_ms)
    steps: list[tuple[str, str, dict[str, Any]]] = [("plan-step", "Schedule.DeleteAll", {})]
    steps += [("plan-step", "Schedule.Create", _job(edge)) for edge in edges]
    if complete:
        steps.append((f"{_PLAN}{revision}:{len(edges)}", "Schedule.List", {}))
    steps.append((_PLAN_CLOCK, "Sys.SetConfig", {"config": {"location": {"tz": "Etc/UTC"}}}))
    return [_request(device_id, name, method, params, PLAN_EXPIRY_S) for name, method, params in steps]


def _job(edge: PlanEdge) -> dict[str, Any]:
    """Cron with seconds in front; no leading zeros."""
    at = time.gmtime(edge.ts)
    timespec = f"{at.tm_sec} {at.tm_min} {at.tm_hour} {at.tm_mday} {at.tm_mon} *"
    call = {"method": "Switch.Set", "params": {"id": 0, "on": edge.relay}}
    return {"enable": True, "timespec": timespec, "calls": [call]}


def _request(device_id: str, name: str, method: str, params: Mapping[str, Any], expiry_s: int) -> Downlink:
    request = {"id": name, "src": f"devices/{device_id}/answer", "method": method, "params": params}
    return Downlink("rpc", _encode(request), expiry_s=expiry_s)


def _planned(name: str, document: Mapping[str, Any]) -> Sequence[Report]:
    """The answer to a step of a plan."""
    failed = isinstance(document.get("error"), dict)
    if name == _PLAN_CLOCK:
        return (PlanReport(0),) if failed else ()
    revision, _, count = name.removeprefix(_PLAN).partition(":")
    if not (name.startswith(_PLAN) and revision.isdigit() and count.isdigit() and len(name) < 40):
        return ()
    result = document.get("result")
    jobs = result.get("jobs") if isinstance(result, dict) else None
    holds = isinstance(jobs, list) and len(jobs) == int(count)
    return (PlanReport(int(revision) if holds else 0),)


def _switch(status: Mapping[str, Any]) -> Sequence[Report]:
    """A status may be partial: what is not in it has not changed."""
    reports: list[Report] = []
    if isinstance(status.get("output"), bool):
        reports.append(RelayReport(status["output"]))
    values = readings.flatten(status, skip=_NOT_READINGS)
    if values:
        reports.append(TelemetryReport(readings.payload(values)))
    return reports


def _notification(document: Mapping[str, Any]) -> Sequence[Report]:
    params = document.get("params")
    if document.get("method") not in ("NotifyStatus", "NotifyFullStatus") or not isinstance(params, dict):
        return ()
    status = params.get("switch:0")
    return _switch(status) if isinstance(status, dict) else ()


def _answer(document: Mapping[str, Any]) -> Sequence[Report]:
    execution_id = document.get("id")
    if not isinstance(execution_id, str) or len(execution_id) > 64:
        return (Unreadable("MALFORMED", "an answer without the id of a request"),)
    if execution_id.startswith("plan"):
        return _planned(execution_id, document)
    error = document.get("error")
    if isinstance(error, dict):
        return (ResultReport(execution_id, "error", code=str(error.get("code", "ERROR"))[:64], data=error.get("message")),)
    return (ResultReport(execution_id, "done", data=document.get("result")),)
