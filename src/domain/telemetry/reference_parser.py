"""Parses telemetry payloads. This is the reference definition; the native engine must equal it, including every fault.

Forms: `{"ts": ms, "m": {metric: value}, "u": {metric: unit}}`, an array of such objects, or flat `{metric: value}`, where `ts` is
the time and an object under `u` the units. A `ts` of ten digits (2001 to 2286) is in seconds. Without `ts`, the time is the
arrival; so it is for any other `ts` below 10^11 ms (1973), which only a clock that is not set can produce. A `ts` more than
MAX_AHEAD_MS after the arrival, by minutes or by years, counts as the arrival too; what the device said is kept in `reported_ms`.
If a name occurs twice, the last value counts, at the position of the first.

A payload that is not JSON, too large or nested too deeply is dropped as a whole. From an array, an element is dropped that is not
an object or has an invalid `ts`. From a message, only the invalid readings are dropped: a NaN does not affect other sensors.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from domain.kernel.clock import MINUTE_MS
from domain.rules.model import MetricValue

MALFORMED = "MALFORMED"
TOO_LARGE = "TOO_LARGE"
NOT_FINITE = "NOT_FINITE"
TOO_MANY_METRICS = "TOO_MANY_METRICS"
BAD_METRIC_NAME = "BAD_METRIC_NAME"
BAD_VALUE = "BAD_VALUE"
FAULT_CODES = (BAD_METRIC_NAME, BAD_VALUE, MALFORMED, NOT_FINITE, TOO_LARGE, TOO_MANY_METRICS)

MAX_PAYLOAD_BYTES = 64 * 1024
MAX_DEPTH = 32
MAX_NAME_LENGTH = 64
MAX_TEXT_LENGTH = 256
MAX_UNIT_LENGTH = 32
MAX_METRICS = 128
"""Metrics per device. More indicate a fault of the device, such as a counter in the metric name."""
MIN_TS_S, END_TS_S = 10**9, 10**10
"""A `ts` from the first to before the second has ten digits: Unix seconds."""
MIN_TS_MS = 100_000_000_000
MAX_TS_MS = 253_402_300_799_999
"""A later `ts` counts as this one: the last time that a year of four digits can name."""
MAX_AHEAD_MS = 2 * MINUTE_MS
"""No device's clock may be further ahead of the service's; no message may keep rules from being evaluated for longer."""

_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


@dataclass(frozen=True, slots=True)
class ParsedTelemetryMessage:
    time: MessageTime
    readings: dict[str, MetricValue]
    units: dict[str, str]


@dataclass(frozen=True, slots=True)
class MessageTime:
    """`by_device`: `ts_ms` is the device's `ts`, not the arrival. `reported_ms`: the `ts` that was too far ahead to be used."""

    ts_ms: int
    by_device: bool = False
    reported_ms: int | None = None


@dataclass(slots=True)
class ParsedPayload:
    messages: list[ParsedTelemetryMessage] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    fault_metrics: dict[str, str] = field(default_factory=dict)
    """By code: the metric of the first fault that was one of a single reading, without control characters."""
    ahead_ms: int | None = None
    """How far the last `ts` that was too far ahead is ahead of the arrival."""

    def add_fault(self, code: str, metric: str) -> None:
        self.faults[code] += 1
        self.fault_metrics.setdefault(code, shown_metric(metric))


def shown_metric(name: str) -> str:
    """A name that may be anything, for an event or a log."""
    return _CONTROL_CHARACTER.sub("", name)[:MAX_NAME_LENGTH]


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
    """Decode JSON with every number as a double. `NaN` and `Infinity` are accepted here, because sensors send them."""
    text = payload.decode("utf-8")
    if _nesting_depth(text) > MAX_DEPTH:
        raise ValueError("nested too deeply")
    if _has_lone_surrogate(text):
        raise ValueError("contains a lone surrogate")
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
    time = _message_time(element.get("ts"), arrived_ms, parsed)
    if isinstance(time, str):
        parsed.faults[time] += 1
        return
    has_envelope = isinstance(element.get("m"), dict)
    units = element.get("u")
    if has_envelope:
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
            parsed.add_fault(fault, name)
    parsed.messages.append(ParsedTelemetryMessage(time, readings, _accepted_units(units, readings, parsed)))


def _is_reserved_key(name: str, value: Any) -> bool:
    return name == "ts" or (name == "u" and isinstance(value, dict))


def _message_time(ts: Any, arrived_ms: int, parsed: ParsedPayload) -> MessageTime | str:
    """The time of the message, or the code of its fault."""
    if ts is None:
        return MessageTime(arrived_ms)
    if not isinstance(ts, float) or not math.isfinite(ts) or ts < 0:
        return MALFORMED
    if MIN_TS_S <= ts < END_TS_S:
        ts *= 1000
    if ts < MIN_TS_MS:
        return MessageTime(arrived_ms)
    ts_ms = int(min(ts, MAX_TS_MS))
    if ts_ms <= arrived_ms + MAX_AHEAD_MS:
        return MessageTime(ts_ms, by_device=True)
    parsed.ahead_ms = ts_ms - arrived_ms
    return MessageTime(arrived_ms, reported_ms=ts_ms)


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
    """The units of the accepted readings; other units are ignored."""
    if not isinstance(units, dict):
        return {}
    accepted = {}
    for name in readings:
        unit = units.get(name)
        if isinstance(unit, str) and len(unit) <= MAX_UNIT_LENGTH and not _CONTROL_CHARACTER.search(unit):
            accepted[name] = unit
        elif name in units:
            parsed.add_fault(BAD_VALUE, name)
    return accepted
