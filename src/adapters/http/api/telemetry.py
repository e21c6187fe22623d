"""Telemetry read back: history, downsampled history, the latest values, and whole exports as a stream."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Annotated, Any, Literal, cast

import msgspec
from pydantic import AfterValidator, Field
from quart import Response

from adapters.http.core.callers import AllowedCallers, current_caller
from adapters.http.core.operation import ApiBlueprint, HttpHandlerResult, NonJsonResponse
from adapters.http.core.paging import PageLimit, PageQueryParameters, page_of
from adapters.http.core.schemas import MAX_METRIC_LENGTH, InstantMs, QueryParametersModel, ResponseModel, Timestamp
from domain.devices.model import Device
from domain.kernel.checks import MAX_LISTED
from domain.kernel.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, to_iso
from domain.kernel.cursors import Position
from domain.kernel.errors import ValidationFailed
from domain.kernel.ids import DeviceId
from domain.telemetry.downsampling import BUCKET_POSITION, DownsamplingQueryService
from domain.telemetry.history import READING_POSITION, TelemetryQueryService
from domain.telemetry.model import BucketStatistics, HistoryTimeRange, Reading

END_OF_TIME_MS = 2**52
MAX_SERIES_DEVICES = 20
MAX_METRICS = 20


def _check_metrics(text: str) -> str:
    names = text.split(",")
    if len(names) > MAX_METRICS or not all(1 <= len(name.strip()) <= MAX_METRIC_LENGTH for name in names):
        raise ValueError(f"must name 1 to {MAX_METRICS} metrics of 1 to {MAX_METRIC_LENGTH} characters, separated by commas")
    return text


MetricNames = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_METRICS * (MAX_METRIC_LENGTH + 1),
        description=f"Names of metrics, comma-separated, at most {MAX_METRICS}. Without it: all. Names that the device does not "
        "have give nothing. A metric whose own name has commas is found by its whole name.",
    ),
    AfterValidator(_check_metrics),
]


class TelemetryHistoryQueryParameters(PageQueryParameters):
    metric: MetricNames | None = None
    limit: PageLimit = 100
    since: InstantMs = Field(default=0, description="Unix milliseconds or ISO 8601, inclusive.")
    until: InstantMs = Field(default=END_OF_TIME_MS, description="Unix milliseconds or ISO 8601, exclusive.")
    order: Literal["asc", "desc"] = Field(
        default="desc", description="`desc`: from the newest entry back in time. `asc`: from the oldest one on, page by page."
    )
    step: str | None = Field(
        default=None,
        max_length=12,
        description="Length of an interval: `30s`, `1m`, `1h`, `1d`, or a number of milliseconds. The response has min, max, "
        "mean, sum, count and last of the numbers in each interval; intervals without readings are left out. Steps of whole "
        "hours reach back as far as hourly roll-ups are kept (by default a year); other steps, and single readings, as far as "
        "raw telemetry is kept (30 days). A page reads at most a million messages of raw telemetry.",
    )


class TelemetrySeriesQueryParameters(PageQueryParameters):
    device_id: str = Field(
        min_length=1, max_length=1_300, description=f"Ids of devices, comma-separated, at most {MAX_SERIES_DEVICES}."
    )
    metric: MetricNames | None = None
    limit: PageLimit = Field(default=MAX_LISTED, description="Of each device, the newest of the range.")
    since: InstantMs = Field(default=0, description="Unix milliseconds or ISO 8601, inclusive.")
    until: InstantMs = Field(default=END_OF_TIME_MS, description="Unix milliseconds or ISO 8601, exclusive.")
    step: str | None = Field(
        default=None, max_length=12, description="As in the telemetry of one device: `1m`, `1h`, or a number of milliseconds."
    )


class TelemetryExportQueryParameters(QueryParametersModel):
    format: Literal["csv", "ndjson"] = "csv"
    metric: MetricNames | None = None
    since: InstantMs = 0
    until: InstantMs = END_OF_TIME_MS


class ReadingResponse(ResponseModel):
    metric: str
    value: float | None
    value_text: str | None
    unit: str | None
    recorded_at: Timestamp
    reported_at: Timestamp | None = Field(
        default=None,
        exclude_if=lambda reported_at: reported_at is None,
        description="Only in the history, and only when the device said a time more than two minutes ahead: that time. "
        "`recordedAt` is the arrival then.",
    )

    @classmethod
    def from_domain(cls, reading: Reading) -> ReadingResponse:
        return cls.of(reading, value_text=reading.text, recorded_at=reading.at_ms)


class BucketResponse(ResponseModel):
    metric: str
    from_: Timestamp = Field(serialization_alias="from")
    min: float
    max: float
    mean: float
    count: int
    sum: float = Field(description="Limited to the largest IEEE double.")
    last: float

    @classmethod
    def from_domain(cls, bucket: BucketStatistics) -> BucketResponse:
        return cls.of(bucket, from_=bucket.from_ms, min=bucket.low, max=bucket.high, sum=bucket.total)


class SeriesPointResponse(ResponseModel):
    """A reading, or with `step` an interval that starts at `timestamp`; then `value` is the mean."""

    device_id: str
    device_name: str
    metric: str
    unit: str | None
    timestamp: int = Field(description="Unix milliseconds.", examples=[1795233602120])
    time: Timestamp = Field(description="The same as text.")
    value: float | None
    value_text: str | None = None
    min: float | None = Field(
        default=None, description="With `step`: the least value of the interval. Else null, as `max` and `count`."
    )
    max: float | None = None
    count: int | None = None

    @classmethod
    def from_domain(cls, device: Device, found: Reading | BucketStatistics) -> SeriesPointResponse:
        if isinstance(found, Reading):
            at_ms, given = found.at_ms, dict[str, Any](value_text=found.text)
        else:
            at_ms, given = found.from_ms, {"value": found.mean, "min": found.low, "max": found.high}
        return cls.of(found, device, device_name=device.name, timestamp=at_ms, time=at_ms, **given)


class LatestTelemetryResponse(ResponseModel):
    state: Literal["ON", "OFF"] | None
    relay_state: bool | None
    telemetry: list[ReadingResponse]


NOT_GRANTED = {403: "GRANT_MISSING GRANT_EXPIRED"}
_STEP = re.compile(r"([1-9][0-9]{0,4})([smhd])|([1-9][0-9]{3,11})")
_UNITS_MS = {"s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}


def telemetry_blueprint(telemetry: TelemetryQueryService, downsampling: DownsamplingQueryService) -> ApiBlueprint:
    bp = ApiBlueprint("telemetry", "Telemetry")

    async def find(
        device: DeviceId, query: TelemetryHistoryQueryParameters | TelemetrySeriesQueryParameters, after: Position | None
    ) -> tuple[Sequence[Reading | BucketStatistics], Position | None]:
        """A page of readings or intervals in the order of the query, and the position behind which there may be more."""
        caller, span, mark = current_caller(), HistoryTimeRange(query.since, query.until), cast(Any, after)
        newest_first = not isinstance(query, TelemetryHistoryQueryParameters) or query.order == "desc"
        wanted: dict[str, Any] = {"metric": query.metric, "limit": query.limit, "after": mark, "newest_first": newest_first}
        if query.step is None:
            return await telemetry.history(caller, device, span, **wanted)
        return await downsampling.query_buckets(caller, device, span, step_ms=_parse_step_ms(query.step), **wanted)

    @bp.operation("GET /devices/<device_id>/telemetry", AllowedCallers.KEY, "List telemetry", errors=NOT_GRANTED)
    async def list_telemetry(
        device_id: DeviceId, query: TelemetryHistoryQueryParameters
    ) -> HttpHandlerResult[list[ReadingResponse] | list[BucketResponse]]:
        """Readings, newest first; with `order=asc`, oldest first. With `step`, one entry per metric and time interval: minimum,
        maximum, mean, sum, count and last value. The `Link` header leads to the next ones; a page that has it may be short."""
        found, more = await find(device_id, query, query.position(*_position_types(query)))
        shown: Any = [(ReadingResponse if query.step is None else BucketResponse).from_domain(cast(Any, one)) for one in found]
        return page_of(shown, more)

    @bp.operation(
        "GET /telemetry/series", AllowedCallers.KEY, "List telemetry of several devices", errors=NOT_GRANTED | {404: "NOT_FOUND"}
    )
    async def list_telemetry_series(query: TelemetrySeriesQueryParameters) -> HttpHandlerResult[list[SeriesPointResponse]]:
        """Flat rows, oldest first, as dashboards such as Grafana take them: one row per reading, or with `step` per interval. The
        `Link` header leads to a page of older ones."""
        device_ids, types = _parse_device_ids(query.device_id), _position_types(query)
        if query.step is not None:
            _parse_step_ms(query.step)  # what is wrong with the query is said before what is wrong with a device
        marks = query.position(*types * len(device_ids))
        points: list[SeriesPointResponse] = []
        ends: Position = ()
        for number, device_id in enumerate(device_ids):
            after = None if marks is None else marks[number * len(types) :][: len(types)]
            device = await telemetry.readable_device(current_caller(), device_id)
            found, more = ([], None) if after == _end(types) else await find(device_id, query, after)
            ends += more or _end(types)
            points += [SeriesPointResponse.from_domain(device, one) for one in found]
        points.sort(key=lambda point: (point.timestamp, point.device_name, point.device_id, point.metric))
        return page_of(points, None if ends == _end(types) * len(device_ids) else ends)

    @bp.operation("GET /devices/<device_id>/telemetry/latest", AllowedCallers.KEY, "Get the latest telemetry", errors=NOT_GRANTED)
    async def get_latest_telemetry(device_id: DeviceId) -> LatestTelemetryResponse:
        """The relay state and the latest value of each metric, from memory."""
        device, readings = await telemetry.latest(current_caller(), device_id)
        relay = device.relay
        return LatestTelemetryResponse(
            state=None if relay is None else "ON" if relay else "OFF",
            relay_state=relay,
            telemetry=[ReadingResponse.from_domain(reading) for reading in readings],
        )

    @bp.operation(
        "GET /devices/<device_id>/telemetry/export",
        AllowedCallers.KEY,
        "Export telemetry",
        returns={
            200: NonJsonResponse("text/csv", "CSV with a header line, or NDJSON with `format=ndjson`.", ("application/x-ndjson",))
        },
        errors=NOT_GRANTED,
    )
    async def export_telemetry(device_id: DeviceId, query: TelemetryExportQueryParameters) -> Response:
        """All readings as a stream, oldest first: CSV, or NDJSON with `format=ndjson`."""
        span = HistoryTimeRange(query.since, query.until)
        pages = telemetry.export(current_caller(), device_id, span, metric=query.metric)
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


def _position_types(query: TelemetryHistoryQueryParameters | TelemetrySeriesQueryParameters) -> tuple[type, ...]:
    return READING_POSITION if query.step is None else BUCKET_POSITION


def _end(types: tuple[type, ...]) -> Position:
    """The position of a device that has no more."""
    return (-1,) * len(types)


def _parse_step_ms(text: str) -> int:
    """Milliseconds of a step such as `1m`, `15m`, `1h`, `1d`, or `60000`. Raises ValidationFailed."""
    match = _STEP.fullmatch(text)
    if match is None:
        raise ValidationFailed.for_field(
            "step", "must be a whole number followed by s, m, h or d, such as 1m or 1h, or milliseconds from 1000 on."
        )
    return int(match[3]) if match[3] else int(match[1]) * _UNITS_MS[match[2]]


def _parse_device_ids(text: str) -> list[DeviceId]:
    """Without repetitions, in order. Raises ValidationFailed."""
    ids = dict.fromkeys(DeviceId(part) for part in (each.strip() for each in text.split(",")) if part)
    if not 1 <= len(ids) <= MAX_SERIES_DEVICES:
        raise ValidationFailed.for_field("deviceId", f"must name 1 to {MAX_SERIES_DEVICES} devices, separated by commas.")
    return list(ids)


async def _stream_export(
    first: Sequence[Reading],
    rest: AsyncIterator[Sequence[Reading]],
    write: Callable[[Sequence[Reading]], bytes],
    with_header: bool,
) -> AsyncIterator[bytes]:
    if with_header:
        yield b"metric,value,valueText,unit,recordedAt,reportedAt\r\n"
    yield write(first)
    async for page in rest:
        yield write(page)


def _encode_csv(readings: Sequence[Reading]) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerows(
        (_escape_formula(r.metric), r.value, _escape_formula(r.text), _escape_formula(r.unit), at, reported_at)
        for r, at, reported_at in _with_iso_times(readings)
    )
    return out.getvalue().encode()


def _escape_formula(text: str | None) -> str | None:
    """A device's text must not run as a formula when a person opens the file in a spreadsheet (OWASP: CSV injection)."""
    return f"'{text}" if text and text[0] in "=+-@\t\r" else text


def _encode_ndjson(readings: Sequence[Reading]) -> bytes:
    return _encode_lines(
        [_NdjsonRow(r.metric, r.value, r.text, r.unit, at, reported_at) for r, at, reported_at in _with_iso_times(readings)]
    )


class _NdjsonRow(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    metric: str
    value: float | None
    value_text: str | None
    unit: str | None
    recorded_at: str
    reported_at: str | None = None


_encode_lines = msgspec.json.Encoder().encode_lines


def _with_iso_times(readings: Sequence[Reading]) -> Iterator[tuple[Reading, str, str | None]]:
    """Each reading with its time in ISO 8601, and the one that its device reported if that differs. The readings of one message
    share their time, which is formatted once."""
    at_ms, at = -1, ""
    for reading in readings:
        if reading.at_ms != at_ms:
            at_ms, at = reading.at_ms, to_iso(reading.at_ms)
        yield reading, at, None if reading.reported_ms is None else to_iso(reading.reported_ms)
