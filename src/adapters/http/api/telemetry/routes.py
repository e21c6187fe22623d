"""Telemetry read back: history, downsampled history, the latest values, and whole exports as a stream."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

import msgspec
from quart import Response

from adapters.http.api.telemetry.schemas import (
    BucketResponse,
    LatestTelemetryResponse,
    ReadingResponse,
    TelemetryExportQuery,
    TelemetryHistoryQuery,
    bucket_response,
    reading_response,
)
from adapters.http.core.auth import RequiredAccess, current_caller
from adapters.http.core.operation import ApiBlueprint, operation
from adapters.http.core.request_handling import MediaType
from domain.kernel.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, to_iso
from domain.kernel.errors import ValidationFailed
from domain.kernel.ids import DeviceId
from domain.telemetry.model import Reading
from domain.telemetry.queries.downsampling import DownsamplingService
from domain.telemetry.queries.latest_and_history import TelemetryQueryService
from domain.telemetry.queries.paging import TimeRange

NOT_GRANTED_CODES = "GRANT_MISSING GRANT_EXPIRED"
_STEP = re.compile(r"([1-9][0-9]{0,4})([smhd])")
_UNITS_MS = {"s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}


def telemetry_blueprint(telemetry: TelemetryQueryService, downsampling: DownsamplingService) -> ApiBlueprint:
    bp = ApiBlueprint("telemetry", "Telemetry")

    @operation(
        bp,
        "GET",
        "/devices/<device_id>/telemetry",
        RequiredAccess.KEY,
        "List telemetry",
        returns={200: list[ReadingResponse] | list[BucketResponse]},
        errors={403: NOT_GRANTED_CODES},
    )
    async def list_telemetry(device_id: str, query: TelemetryHistoryQuery) -> list[ReadingResponse] | list[BucketResponse]:
        """Readings, newest first. With `step`, one entry per time interval: minimum, maximum, mean, sum, count and last value."""
        caller, device, span = current_caller(), DeviceId(device_id), TimeRange(query.since, query.until)
        if query.step is None:
            found = await telemetry.history(caller, device, span, metric=query.metric, limit=query.limit)
            return [reading_response(reading) for reading in found]
        step_ms = parse_step_ms(query.step)
        buckets = await downsampling.query_buckets(caller, device, span, metric=query.metric, step_ms=step_ms, limit=query.limit)
        return [bucket_response(bucket) for bucket in buckets]

    @operation(
        bp,
        "GET",
        "/devices/<device_id>/telemetry/latest",
        RequiredAccess.KEY,
        "Get the latest telemetry",
        errors={403: NOT_GRANTED_CODES},
    )
    async def get_latest_telemetry(device_id: str) -> LatestTelemetryResponse:
        """The relay state and the latest value of each metric, from memory."""
        latest = await telemetry.latest(current_caller(), DeviceId(device_id))
        relay = latest.device.relay
        return LatestTelemetryResponse(
            state=None if relay is None else "ON" if relay else "OFF",
            relay_state=relay,
            telemetry=[reading_response(reading) for reading in latest.readings],
        )

    @operation(
        bp,
        "GET",
        "/devices/<device_id>/telemetry/export",
        RequiredAccess.KEY,
        "Export telemetry",
        returns={
            200: MediaType("text/csv", "CSV with a header line, or NDJSON with `format=ndjson`.", ("application/x-ndjson",))
        },
        errors={403: NOT_GRANTED_CODES},
    )
    async def export_telemetry(device_id: str, query: TelemetryExportQuery) -> Response:
        """All readings as a stream, oldest first: CSV, or NDJSON with `format=ndjson`."""
        span = TimeRange(query.since, query.until)
        pages = telemetry.export(current_caller(), DeviceId(device_id), span, metric=query.metric)
        first: list[Reading] = await anext(pages, [])  # an error of the first page must come before the first byte
        as_csv = query.format == "csv"
        content_type = "text/csv; charset=utf-8; header=present" if as_csv else "application/x-ndjson"
        response = Response(
            _stream_export(first, pages, _encode_csv if as_csv else _encode_ndjson, as_csv), content_type=content_type
        )
        response.headers["Content-Disposition"] = f'attachment; filename="{device_id}.{query.format}"'
        response.timeout = None
        return response

    return bp


def parse_step_ms(text: str) -> int:
    """Milliseconds of a step such as `1m`, `15m`, `1h` or `1d`. Raises ValidationFailed."""
    match = _STEP.fullmatch(text)
    if match is None:
        raise ValidationFailed.for_field("step", "must be a whole number followed by s, m, h or d, such as 1m or 1h.")
    return int(match[1]) * _UNITS_MS[match[2]]


async def _stream_export(
    first: Sequence[Reading],
    rest: AsyncIterator[Sequence[Reading]],
    write: Callable[[Sequence[Reading]], bytes],
    with_header: bool,
) -> AsyncIterator[bytes]:
    if with_header:
        yield b"metric,value,valueText,unit,recordedAt\r\n"
    yield write(first)
    async for page in rest:
        yield write(page)


def _encode_csv(readings: Sequence[Reading]) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerows(
        (_escape_formula(r.metric), r.value, _escape_formula(r.text), _escape_formula(r.unit), at)
        for r, at in _with_iso_time(readings)
    )
    return out.getvalue().encode()


def _escape_formula(text: str | None) -> str | None:
    """A device's text must not run as a formula when a person opens the file in a spreadsheet (OWASP: CSV injection)."""
    return f"'{text}" if text and text[0] in "=+-@\t\r" else text


def _encode_ndjson(readings: Sequence[Reading]) -> bytes:
    return _encode_lines(
        [
            _NdjsonRow(r.metric, r.value, r.text, r.unit, at, None if r.reported_ms is None else to_iso(r.reported_ms))
            for r, at in _with_iso_time(readings)
        ]
    )


class _NdjsonRow(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    metric: str
    value: float | None
    value_text: str | None
    unit: str | None
    recorded_at: str
    reported_at: str | None = None


_encode_lines = msgspec.json.Encoder().encode_lines


def _with_iso_time(readings: Sequence[Reading]) -> Iterator[tuple[Reading, str]]:
    """Each reading with its time in ISO 8601. The readings of one message share their time, which is formatted once."""
    at_ms, at = -1, ""
    for reading in readings:
        if reading.at_ms != at_ms:
            at_ms, at = reading.at_ms, to_iso(reading.at_ms)
        yield reading, at
