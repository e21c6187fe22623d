"""What profiles of stock firmware share.

Nested sensor JSON becomes one flat native telemetry payload: `{"DS18B20": {"Temperature": 21.5}}` becomes
`{"m": {"DS18B20.Temperature": 21.5}}`. Limits on depth and count: an unusual device loses only its own readings, and is told.

Of a plan, firmware that stores each edge separately gets the future ones. An edge less than a minute away is left out: it could
lie in the past when the device reads it, and a timer set for the past runs a week or a year later. While such an edge exists, the
device does not count as holding the whole plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from domain.devices.messages import DeviceReport, PlanRow, StockFirmwareTelemetryReport, UnreadableMessage

MAX_DEPTH = 4
MAX_METRICS = 64
MAX_LIST_LENGTH = 16
MAX_PATH_LENGTH = 64
MIN_LEAD_TIME_S = 60

_encode = msgspec.json.Encoder().encode


def flatten(
    values: Mapping[str, Any], *, skip: Collection[str] = (), skip_names: Collection[str] = (), lists: bool = False
) -> tuple[dict[str, float | bool | str], int]:
    """Values by dotted path, in document order, and how many did not fit. Numbers, booleans and strings; null is ignored. With
    `lists`, elements are numbered from 1, as in `ENERGY.Power.1`; without, lists are ignored. `skip`: whole paths; `skip_names`:
    last parts of paths, such as `Id`."""
    flat: dict[str, float | bool | str] = {}
    dropped = 0
    for path, value in _walk_values("", values, 0, lists):
        if path in skip or path.rpartition(".")[2] in skip_names:
            continue
        if len(flat) < MAX_METRICS and len(path) <= MAX_PATH_LENGTH:
            flat[path] = value
        else:
            dropped += 1
    return flat, dropped


def encode_telemetry(values: Mapping[str, float | bool | str], units: Mapping[str, str] | None = None) -> bytes:
    return _encode({"m": values, "u": units} if units else {"m": values})


def to_reports(
    values: Mapping[str, float | bool | str], dropped: int, units: Mapping[str, str] | None = None
) -> list[DeviceReport]:
    """One telemetry report, and one about what did not fit."""
    reports: list[DeviceReport] = []
    if values:
        reports.append(StockFirmwareTelemetryReport(encode_telemetry(values, units)))
    if dropped:
        reports.append(UnreadableMessage("TOO_MANY_METRICS", f"{dropped} values are too many, or their names too long"))
    return reports


def _walk_values(prefix: str, values: Mapping[str, Any], depth: int, lists: bool) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        path = f"{prefix}.{name}" if prefix else name
        if lists and isinstance(value, list):
            value = {str(number): element for number, element in enumerate(value[:MAX_LIST_LENGTH], 1)}
        if isinstance(value, dict):
            if depth < MAX_DEPTH:
                yield from _walk_values(path, value, depth + 1, lists)
        elif isinstance(value, bool | int | float | str):
            yield path, value


@dataclass(frozen=True, slots=True)
class FuturePlanEdge:
    slot: int
    relay: bool
    ts: int


def upcoming_edges(rows: Sequence[PlanRow], now_ms: int) -> tuple[list[FuturePlanEdge], bool]:
    """The edges by slot, ON before OFF; and whether these are all future edges."""
    edges = [
        FuturePlanEdge(slot, relay, ts)
        for slot, on_ts, off_ts, enabled in rows
        if enabled
        for relay, ts in ((True, on_ts), (False, off_ts))
        if ts * 1000 > now_ms
    ]
    pending = [edge for edge in edges if edge.ts * 1000 > now_ms + MIN_LEAD_TIME_S * 1000]
    return pending, len(pending) == len(edges)
