"""What all profiles of stock firmware share: values become readings, presses become inputs, and plans become future edges.

Readings. Nested JSON becomes flat metrics by path: `{"DS18B20": {"Temperature": 21.5}}` becomes `DS18B20.Temperature`, and the
elements of a list are numbered from 1, as in `ENERGY.Power.1`. The law: numbers, booleans and texts within the limits of native
telemetry are kept, null means "no value", a profile names what it ignores on purpose, and everything else is told as dropped,
by metric. Nothing is lost in silence. One payload names each metric once.

Presses. A press lasts no time: its text reading, named after the component, is `NONE` again one millisecond later, so that a rule
for the word is true once for each press. What was retained may be of last week, so it is no press.

Plans. An edge less than a minute away is left out: it could lie in the past when the device reads it, and a timer set for the
past runs a week or a year later. While such an edge exists, the device does not count as holding the whole plan.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeAlias, TypeGuard

import msgspec

from domain.devices.channels import InputAction
from domain.devices.messages import (
    ChannelReference,
    DeviceReport,
    InputReport,
    OutboundCommand,
    PlanRow,
    StockFirmwareTelemetryReport,
    UnreadableMessage,
)
from domain.telemetry.reference_parser import MAX_METRICS, MAX_NAME_LENGTH, MAX_TEXT_LENGTH

MAX_DEPTH = 6

Reading: TypeAlias = float | bool | str

_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_INFINITE = frozenset({"inf", "+inf", "-inf", "infinity", "-infinity"})
_WORDS = {"ON": True, "OFF": False, "true": True, "false": False}
_encode = msgspec.json.Encoder().encode
_decode_json = msgspec.json.Decoder().decode


@dataclass(slots=True)
class FlatReadings:
    """`values` by metric, in document order; `dropped`: by code, how many did not fit, and the name of the first."""

    values: dict[str, Reading] = field(default_factory=dict)
    dropped: dict[str, tuple[int, str]] = field(default_factory=dict)

    def add(self, name: str, value: Any) -> None:
        fault = _fault(name, value)
        if fault is None and name not in self.values and len(self.values) >= MAX_METRICS:
            fault = "TOO_MANY_METRICS"
        if fault is None:
            self.values[name] = value
        else:
            self.drop(fault, name)

    def drop(self, code: str, name: str) -> None:
        count, first = self.dropped.get(code, (0, name))
        self.dropped[code] = (count + 1, first)

    def to_reports(self, units: Mapping[str, str] | None = None) -> list[DeviceReport]:
        """One telemetry report, and one for each reason why something was dropped."""
        reports: list[DeviceReport] = []
        if self.values:
            reports.append(StockFirmwareTelemetryReport(_encode({"m": self.values, "u": units} if units else {"m": self.values})))
        reports += [
            UnreadableMessage(code, f"{count} values, such as {_shown(first)}", metric=_shown(first), count=count)
            for code, (count, first) in self.dropped.items()
        ]
        return reports


def flatten(
    document: Mapping[str, Any], *, prefix: str = "", ignored: Collection[str] = (), into: FlatReadings | None = None
) -> FlatReadings:
    """`ignored` is left out on purpose: paths below `prefix` such as `aenergy.minute_ts`, or `*.Id` for that name at any depth.
    An ignored object is left out as a whole."""
    flat = FlatReadings() if into is None else into
    for path, value, is_too_deep in _walk("", document, 0, ignored):
        name = f"{prefix}.{path}" if prefix else path
        if is_too_deep:
            flat.drop("TOO_DEEP", name)
        else:
            flat.add(name, value)
    return flat


def read_plain(name: str, payload: bytes, *, is_text: bool = False, ignored: Collection[str] = ()) -> Sequence[DeviceReport]:
    """The value of a topic whose payload is a word, a number or JSON. `is_text`: it stays a text, whatever it looks like."""
    try:
        word = payload.decode().strip()
    except UnicodeDecodeError:
        return (UnreadableMessage("MALFORMED", "not UTF-8", metric=_shown(name)),)
    flat = FlatReadings()
    if is_text:
        flat.add(name, word)
    elif word[:1] in ("{", "["):
        flatten({name: _decode_json(word)}, ignored=ignored, into=flat)
    elif word.lower() in _INFINITE:
        flat.drop("NOT_FINITE", name)
    elif word and word.lower() != "nan":  # neither "no value yet" nor a retained message that is deleted
        flat.add(name, _WORDS.get(word, float(word) if _NUMBER.fullmatch(word) else word))
    return flat.to_reports()


def is_number(payload: bytes) -> bool:
    word = payload.strip().decode("utf-8", "replace")
    return _NUMBER.fullmatch(word) is not None or word.lower() in _INFINITE or word.lower() in ("", "nan")


def _walk(prefix: str, values: Mapping[str, Any], depth: int, ignored: Collection[str]) -> Iterator[tuple[str, Any, bool]]:
    """(path, value, whether it is an object that lies too deep)."""
    for name, value in values.items():
        path = f"{prefix}.{name}" if prefix else name
        if value is None or path in ignored or f"*.{name}" in ignored:
            continue
        if isinstance(value, list):
            value = {str(number): element for number, element in enumerate(value, 1)}
        if not isinstance(value, dict):
            yield path, value, False
        elif depth >= MAX_DEPTH:
            yield path, None, True
        else:
            yield from _walk(path, value, depth + 1, ignored)


def _fault(name: str, value: Any) -> str | None:
    """Why native telemetry would not take it either. Decoded JSON has no other numbers than finite ones."""
    if not 1 <= len(name) <= MAX_NAME_LENGTH or _CONTROL_CHARACTER.search(name):
        return "BAD_METRIC_NAME"
    return "BAD_VALUE" if isinstance(value, str) and len(value) > MAX_TEXT_LENGTH else None


def _shown(name: str) -> str:
    """A name that may be anything, for an event or a log."""
    return "".join(filter(str.isprintable, name))[:MAX_NAME_LENGTH]


NO_PRESS = "NONE"


def press_reports(channel: ChannelReference, metric: str, action: InputAction, retain: bool, at_ms: int) -> list[DeviceReport]:
    """The input, and of a press its reading; a contact has one already. Without `at_ms` the two readings have no time of their
    own."""
    if action.is_contact:
        return [InputReport(channel, action)]
    if retain:
        return [UnreadableMessage("RETAINED_PRESS", "publish presses without the retain flag", metric=_shown(metric))]
    fault = _fault(metric, action.value)
    if fault is not None:
        return [InputReport(channel, action), UnreadableMessage(fault, "the press has no reading", metric=_shown(metric))]
    released = {"m": {metric: NO_PRESS}} | ({"ts": at_ms + 1} if at_ms else {})
    reading = StockFirmwareTelemetryReport(_encode([{"m": {metric: action.value}}, released]))
    return [InputReport(channel, action), reading]


_Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]


class ChannelParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of the commands that channels have by their kind."""

    level: _Percent | None = None
    seconds: Annotated[float, msgspec.Meta(ge=0, le=3600)] | None = None
    color: Annotated[str, msgspec.Meta(pattern="^#[0-9a-fA-F]{6}$")] | None = None
    kelvin: Annotated[int, msgspec.Meta(ge=1000, le=12_000)] | None = None
    position: _Percent | None = None
    celsius: Annotated[float, msgspec.Meta(ge=-50, le=100)] | None = None
    mode: str | None = None

    @property
    def rgb(self) -> tuple[int, int, int] | None:
        if self.color is None:
            return None
        red, green, blue = bytes.fromhex(self.color[1:])
        return red, green, blue


def read_params(command: OutboundCommand) -> ChannelParams:
    """None of them where the command has others: a person may have defined a command of the same name."""
    try:
        return msgspec.convert(command.params or {}, ChannelParams)
    except msgspec.ValidationError:
        return ChannelParams()


def color_word(red: float, green: float, blue: float) -> str:
    """`#rrggbb` of values from 0 to 255."""
    return "#" + "".join(f"{round(min(255, max(0, part))):02x}" for part in (red, green, blue))


def to_kelvin(mired: float) -> int | None:
    return round(1_000_000 / mired) if mired >= 1 else None


def to_mired(kelvin: int) -> int:
    """Within what bulbs for living rooms can do."""
    return min(500, max(153, round(1_000_000 / kelvin)))


def is_quantity(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def to_percent(value: Any, full: float = 100) -> int | None:
    """A level from 0 to 100; None for what is no number."""
    return round(min(full, max(0, value)) * 100 / full) if is_quantity(value) else None


def to_celsius(value: Any) -> float | None:
    return value if is_quantity(value) and -100 <= value <= 200 else None


MIN_LEAD_TIME_S = 60


@dataclass(frozen=True, slots=True)
class FuturePlanEdge:
    slot: int
    relay: bool
    ts: int
    channel: int


def upcoming_edges(rows: Sequence[PlanRow], now_ms: int) -> tuple[list[FuturePlanEdge], bool]:
    """The edges by slot, ON before OFF; and whether these are all future edges."""
    edges = [
        FuturePlanEdge(slot, relay, ts, channel)
        for slot, on_ts, off_ts, enabled, channel in rows
        if enabled
        for relay, ts in ((True, on_ts), (False, off_ts))
        if ts * 1000 > now_ms
    ]
    pending = [edge for edge in edges if edge.ts * 1000 > now_ms + MIN_LEAD_TIME_S * 1000]
    return pending, len(pending) == len(edges)
