"""Request and response models of telemetry."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from adapters.http.core.schemas import QueryParameters, ResponseModel, Timestamp
from domain.kernel.clock import to_iso
from domain.telemetry.model import Reading, TimeBucket

END_OF_TIME_MS = 2**52


UnixMs = Annotated[int, Field(ge=0, le=END_OF_TIME_MS)]


MetricName = Annotated[str, Field(min_length=1, max_length=64)]


class TelemetryHistoryQuery(QueryParameters):
    metric: MetricName | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    since: UnixMs = Field(default=0, description="Unix milliseconds, inclusive.")
    until: UnixMs = Field(default=END_OF_TIME_MS, description="Unix milliseconds, exclusive.")
    step: str | None = Field(
        default=None,
        max_length=6,
        description="Length of an interval, such as `30s`, `1m`, `1h` or `1d`. The response has min, max, mean, sum, count and "
        "last of the numbers in each interval, newest first. Steps of whole hours reach back as far as hourly roll-ups are kept "
        "(by default a year); other steps, and single readings, as far as raw telemetry is kept (30 days). Limits: 1,000 "
        "intervals, and a million messages of raw telemetry.",
    )


class TelemetryExportQuery(QueryParameters):
    format: Literal["csv", "ndjson"] = "csv"
    metric: MetricName | None = None
    since: UnixMs = 0
    until: UnixMs = END_OF_TIME_MS


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


class BucketResponse(ResponseModel):
    metric: str
    from_: Timestamp = Field(alias="from")
    min: float
    max: float
    mean: float
    count: int
    sum: float = Field(description="Limited to the largest IEEE double.")
    last: float


class LatestTelemetryResponse(ResponseModel):
    state: Literal["ON", "OFF"] | None
    relay_state: bool | None
    telemetry: list[ReadingResponse]


def reading_response(reading: Reading) -> ReadingResponse:
    return ReadingResponse(
        metric=reading.metric,
        value=reading.value,
        value_text=reading.text,
        unit=reading.unit,
        recorded_at=to_iso(reading.at_ms),
        reported_at=None if reading.reported_ms is None else to_iso(reading.reported_ms),
    )


def bucket_response(bucket: TimeBucket) -> BucketResponse:
    return BucketResponse.model_validate(
        {
            "metric": bucket.metric,
            "from": to_iso(bucket.from_ms),
            "min": bucket.low,
            "max": bucket.high,
            "mean": bucket.mean,
            "count": bucket.count,
            "sum": bucket.total,
            "last": bucket.last,
        }
    )
