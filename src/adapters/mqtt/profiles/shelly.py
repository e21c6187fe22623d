"""Shelly Gen2 and later with the MQTT prefix `devices/<id>`: RPC requests down on `rpc`, answers up on `answer/rpc`,
`status/switch:0` and the partial `NotifyStatus` of `events/rpc` for everything that changes.

The RPC `id` is a number in many firmwares but any JSON value by JSON-RPC; Shelly gives back what it was sent, so the execution's
own id is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from adapters.mqtt.profiles import readings
from domain.devices.codec import Downlink, Order, RelayReport, Report, ResultReport, StatusReport, TelemetryReport, Unreadable

_METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "ON": ("Switch.Set", {"id": 0, "on": True}),
    "OFF": ("Switch.Set", {"id": 0, "on": False}),
    "TOGGLE": ("Switch.Toggle", {"id": 0}),
    "STATUS": ("Switch.GetStatus", {"id": 0}),
    "GET_SCHEDULES": ("Schedule.List", {}),
}
_NOT_READINGS = frozenset({"id", "source", "output", "timer_started_at", "timer_duration", "aenergy.minute_ts"})

_encode = msgspec.json.Encoder().encode
_object = msgspec.json.Decoder(dict[str, Any]).decode


def encode(device_id: str, order: Order, now_ms: int) -> Sequence[Downlink]:
    known = _METHODS.get(order.cmd)
    if known is None:
        return ()
    method, params = known
    request = {"id": order.execution_id, "src": f"devices/{device_id}/answer", "method": method, "params": params}
    expiry_s = max(1, -(-(order.expires_ms - now_ms) // 1000))
    return (Downlink("rpc", _encode(request), expiry_s=expiry_s),)


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
    error = document.get("error")
    if isinstance(error, dict):
        return (ResultReport(execution_id, "error", code=str(error.get("code", "ERROR"))[:64], data=error.get("message")),)
    return (ResultReport(execution_id, "done", data=document.get("result")),)
