"""Telemetry read back: history, downsampled stretches, the latest values, and whole exports as a stream."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Annotated, Literal

import msgspec
from pydantic import Field
from quart import Blueprint, Response

from adapters.http.auth import Access, current_caller
from adapters.http.operation import Media, operation
from adapters.http.schema import Query, Reply
from domain.kernel.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, iso
from domain.kernel.errors import Invalid
from domain.kernel.ids import DeviceId
from domain.telemetry.model import Bucket, Reading
from domain.telemetry.paging import Span
from domain.telemetry.service import TelemetryService
from domain.telemetry.stretches import StretchService

END_OF_TIME_MS = 2**52
DENIED = "GRANT_MISSING GRANT_EXPIRED"
_STEP = re.compile(r"([1-9][0-9]{0,4})([smhd])")
_UNITS_MS = {"s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}

UnixMs = Annotated[int, Field(ge=0, le=END_OF_TIME_MS)]
Metric = Annotated[str, Field(min_length=1, max_length=64)]


class HistoryQuery(Query):
    metric: Metric | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    since: UnixMs = Field(default=0, description="Unix milliseconds, inclusive.")
    until: UnixMs = Field(default=END_OF_TIME_MS, description="Unix milliseconds, exclusive.")
    step: str | None = Field(
        default=None,
        max_length=6,
        description="`30s`, `1m`, `1h`, `1d`: min, max, mean, sum, count and last of the numbers per stretch, newest first. "
        "Steps of whole hours reach as far back as hourly roll-ups are kept (a year, unless set otherwise), all others and the "
        "single readings as far as raw telemetry is kept (30 days). At most 1,000 stretches and, where raw telemetry is read, "
        "a million messages.",
    )


class ExportQuery(Query):
    format: Literal["csv", "ndjson"] = "csv"
    metric: Metric | None = None
    since: UnixMs = 0
    until: UnixMs = END_OF_TIME_MS


class ReadingReply(Reply):
    metric: str
    value: float | None
    value_text: str | None
    unit: str | None
    recorded_at: str


class BucketReply(Reply):
    metric: str
    from_: str = Field(alias="from")
    min: float
    max: float
    mean: float
    count: int
    sum: float = Field(description="Stays at the largest double where it would be larger.")
    last: float


class LatestReply(Reply):
    state: Literal["ON", "OFF"] | None
    relay_state: bool | None
    telemetry: list[ReadingReply]


def telemetry_blueprint(telemetry: TelemetryService, stretches: StretchService) -> Blueprint:
    bp = Blueprint("telemetry", __name__, url_prefix="/api/v1")

    @operation(
        bp,
        "GET",
        "/devices/<device_id>/telemetry",
        tag="Telemetry",
        access=Access.KEY,
        summary="Telemetry history, newest first",
        returns={200: list[ReadingReply] | list[BucketReply]},
        errors={403: DENIED},
    )
    async def telemetry_history(device_id: str, query: HistoryQuery) -> list[ReadingReply] | list[BucketReply]:
        """Newest first. With `step`, one entry for each stretch of time: lowest, highest, mean, sum, count and last value."""
        caller, device, span = current_caller(), DeviceId(device_id), Span(query.since, query.until)
        if query.step is None:
            found = await telemetry.history(caller, device, span, metric=query.metric, limit=query.limit)
            return [reading_reply(reading) for reading in found]
        step_ms = step_to_ms(query.step)
        buckets = await stretches.buckets(caller, device, span, metric=query.metric, step_ms=step_ms, limit=query.limit)
        return [bucket_reply(bucket) for bucket in buckets]

    @operation(
        bp,
        "GET",
        "/devices/<device_id>/telemetry/latest",
        tag="Telemetry",
        access=Access.KEY,
        summary="The relay and the last value of every metric",
        errors={403: DENIED},
    )
    async def telemetry_latest(device_id: str) -> LatestReply:
        """As the service has it in memory: nothing is searched for."""
        latest = await telemetry.latest(current_caller(), DeviceId(device_id))
        relay = latest.device.relay
        return LatestReply(
            state=None if relay is None else "ON" if relay else "OFF",
            relay_state=relay,
            telemetry=[reading_reply(reading) for reading in latest.readings],
        )

    @operation(
        bp,
        "GET",
        "/devices/<device_id>/telemetry/export",
        tag="Telemetry",
        access=Access.KEY,
        summary="All telemetry, oldest first, as a stream",
        returns={200: Media("text/csv", "CSV with a header line, or NDJSON with `format=ndjson`.", ("application/x-ndjson",))},
        errors={403: DENIED},
    )
    async def telemetry_export(device_id: str, query: ExportQuery) -> Response:
        """CSV, or NDJSON with `format=ndjson`. It begins at once, however much there is."""
        span = Span(query.since, query.until)
        pages = telemetry.export(current_caller(), DeviceId(device_id), span, metric=query.metric)
        first: list[Reading] = await anext(pages, [])  # permission and existence are settled before the first byte
        as_csv = query.format == "csv"
        content_type = "text/csv; charset=utf-8; header=present" if as_csv else "application/x-ndjson"
        response = Response(_stream(first, pages, _csv if as_csv else _ndjson, as_csv), content_type=content_type)
        response.headers["Content-Disposition"] = f'attachment; filename="{device_id}.{query.format}"'
        response.timeout = None
        return response

    return bp


def step_to_ms(text: str) -> int:
    """Milliseconds of `1m`, `15m`, `1h`, `1d`. Raises Invalid."""
    match = _STEP.fullmatch(text)
    if match is None:
        raise Invalid.field("step", "is a whole number with s, m, h or d, such as 1m or 1h.")
    return int(match[1]) * _UNITS_MS[match[2]]


def reading_reply(reading: Reading) -> ReadingReply:
    return ReadingReply(
        metric=reading.metric,
        value=reading.value,
        value_text=reading.text,
        unit=reading.unit,
        recorded_at=iso(reading.at_ms),
    )


def bucket_reply(bucket: Bucket) -> BucketReply:
    return BucketReply.model_validate(
        {
            "metric": bucket.metric,
            "from": iso(bucket.from_ms),
            "min": bucket.low,
            "max": bucket.high,
            "mean": bucket.mean,
            "count": bucket.count,
            "sum": bucket.total,
            "last": bucket.last,
        }
    )


async def _stream(
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


def _csv(readings: Sequence[Reading]) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerows((_inert(r.metric), r.value, _inert(r.text), _inert(r.unit), at) for r, at in _dated(readings))
    return out.getvalue().encode()


def _inert(text: str | None) -> str | None:
    """A device's text must not run as a formula when a person opens the file in a spreadsheet (OWASP: CSV injection)."""
    return f"'{text}" if text and text[0] in "=+-@\t\r" else text


def _ndjson(readings: Sequence[Reading]) -> bytes:
    return _encode_lines([_Line(r.metric, r.value, r.text, r.unit, at) for r, at in _dated(readings)])


class _Line(msgspec.Struct, rename="camel", gc=False):
    metric: str
    value: float | None
    value_text: str | None
    unit: str | None
    recorded_at: str


_encode_lines = msgspec.json.Encoder().encode_lines


def _dated(readings: Sequence[Reading]) -> Iterator[tuple[Reading, str]]:
    """With their time in ISO 8601, written once for all readings of a message."""
    at_ms, at = -1, ""
    for reading in readings:
        if reading.at_ms != at_ms:
            at_ms, at = reading.at_ms, iso(reading.at_ms)
        yield reading, at
