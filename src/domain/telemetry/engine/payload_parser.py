"""What a telemetry payload says. This is the readable definition; the native engine must equal it, fault for fault.

Forms: `{"ts": ms, "m": {metric: value}, "u": {metric: unit}}`, an array of such objects, or flat `{metric: value}`, in which
`ts` is the time and an object under `u` the units. Without `ts` the arrival is the time; so it is for a `ts` below 10^11 (1973),
which can only come from a clock that is not set. Of a name given twice the last value counts, at the place of the first.

A payload that is not JSON, too large or nested too deep is dropped whole; of an array, an element that is no object or has a
wrong or future `ts`; of a message, only the reading that is wrong: a sensor that says NaN does not silence the others.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from domain.kernel.clock import DAY_MS
from domain.rules.model import MetricValue

MALFORMED = "MALFORMED"
TOO_LARGE = "TOO_LARGE"
FUTURE = "FUTURE"
NOT_FINITE = "NOT_FINITE"
TOO_MANY_METRICS = "TOO_MANY_METRICS"
BAD_METRIC_NAME = "BAD_METRIC_NAME"
BAD_VALUE = "BAD_VALUE"
FAULT_CODES = (BAD_METRIC_NAME, BAD_VALUE, FUTURE, MALFORMED, NOT_FINITE, TOO_LARGE, TOO_MANY_METRICS)

MAX_PAYLOAD_BYTES = 64 * 1024
MAX_DEPTH = 32
MAX_NAME_LENGTH = 64
MAX_TEXT_LENGTH = 256
MAX_UNIT_LENGTH = 32
MAX_METRICS = 128
"""A device's metrics in all: more are a fault of the device, such as a counter in the name."""
MIN_TS_MS = 100_000_000_000

_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


@dataclass(frozen=True, slots=True)
class TelemetryMessage:
    """One message: its time, its accepted readings, and the units given for them."""

    ts_ms: int
    readings: dict[str, MetricValue]
    units: dict[str, str]


@dataclass(slots=True)
class ParsedPayload:
    messages: list[TelemetryMessage] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)


def parse_payload(payload: bytes, arrived_ms: int) -> ParsedPayload:
    parsed = ParsedPayload()
    if len(payload) > MAX_PAYLOAD_BYTES:
        parsed.faults[TOO_LARGE] += 1
        return parsed
    try:
        document = _load_json(payload)
    except ValueError:
        parsed.faults[MALFORMED] += 1
        return parsed
    for element in document if isinstance(document, list) else [document]:
        if isinstance(element, dict):
            _parse_message(element, arrived_ms, parsed)
        else:
            parsed.faults[MALFORMED] += 1
    return parsed


def _load_json(payload: bytes) -> Any:
    """JSON whose numbers are doubles, whole ones too; `NaN` and `Infinity`, which sensors do send, are read as such."""
    text = payload.decode("utf-8")
    if _nesting_depth(text) > MAX_DEPTH:
        raise ValueError("nested too deep")
    if _has_lone_surrogate(text):
        raise ValueError("half a character")
    return json.loads(text, parse_int=float)


def _nesting_depth(text: str) -> int:
    deepest = depth = 0
    for character in _STRING.sub("", text):
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest


def _has_lone_surrogate(text: str) -> bool:
    high_ends_at = -1
    for escape in _ESCAPE.finditer(text):
        code = int(escape[1][1:], 16) if len(escape[1]) == 5 else 0
        if 0xDC00 <= code <= 0xDFFF:
            if high_ends_at != escape.start():
                return True
            high_ends_at = -1
        elif high_ends_at >= 0:
            return True
        elif 0xD800 <= code <= 0xDBFF:
            high_ends_at = escape.end()
    return high_ends_at >= 0


def _parse_message(element: dict[str, Any], arrived_ms: int, parsed: ParsedPayload) -> None:
    ts_ms = _message_time(element.get("ts"), arrived_ms)
    if isinstance(ts_ms, str):
        parsed.faults[ts_ms] += 1
        return
    enveloped = isinstance(element.get("m"), dict)
    units = element.get("u")
    if enveloped:
        values = element["m"]
        if units is not None and not isinstance(units, dict):
            parsed.faults[BAD_VALUE] += 1
    else:
        values = {name: value for name, value in element.items() if not _is_reserved_key(name, value)}
    readings = {}
    for name, value in values.items():
        fault = _reading_fault(name, value)
        if fault is None:
            readings[name] = value
        else:
            parsed.faults[fault] += 1
    parsed.messages.append(TelemetryMessage(ts_ms, readings, _accepted_units(units, readings, parsed)))


def _is_reserved_key(name: str, value: Any) -> bool:
    return name == "ts" or (name == "u" and isinstance(value, dict))


def _message_time(ts: Any, arrived_ms: int) -> int | str:
    """The message's time, or the fault's code."""
    if ts is None:
        return arrived_ms
    if not isinstance(ts, float) or not math.isfinite(ts) or ts < 0:
        return MALFORMED
    if ts > arrived_ms + DAY_MS:
        return FUTURE
    return int(ts) if ts >= MIN_TS_MS else arrived_ms


def _reading_fault(name: str, value: Any) -> str | None:
    if not 1 <= len(name) <= MAX_NAME_LENGTH or _CONTROL_CHARACTER.search(name):
        return BAD_METRIC_NAME
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else NOT_FINITE
    if isinstance(value, str):
        return None if len(value) <= MAX_TEXT_LENGTH else BAD_VALUE
    return BAD_VALUE


def _accepted_units(units: Any, readings: dict[str, MetricValue], parsed: ParsedPayload) -> dict[str, str]:
    """Units of the accepted readings; units of others are nobody's."""
    if not isinstance(units, dict):
        return {}
    kept = {}
    for name in readings:
        unit = units.get(name)
        if isinstance(unit, str) and len(unit) <= MAX_UNIT_LENGTH and not _CONTROL_CHARACTER.search(unit):
            kept[name] = unit
        elif name in units:
            parsed.faults[BAD_VALUE] += 1
    return kept
