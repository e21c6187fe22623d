"""Request and response models of telemetry."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from adapters.http.core.schemas import InstantMs, QueryParametersModel, ResponseModel, Timestamp
from domain.devices.model import Device
from domain.telemetry.model import BucketStatistics, Reading

END_OF_TIME_MS = 2**52
MAX_SERIES_DEVICES = 20


MetricName = Annotated[str, Field(min_length=1, max_length=64)]


class TelemetryHistoryQueryParameters(QueryParametersModel):
    metric: MetricName | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    since: InstantMs = Field(default=0, description="Unix milliseconds or ISO 8601, inclusive.")
    until: InstantMs = Field(default=END_OF_TIME_MS, description="Unix milliseconds or ISO 8601, exclusive.")
    order: Literal["asc", "desc"] = Field(
        default="desc", description="`asc`: oldest first. Also then it is the newest `limit` readings or intervals of the range."
    )
    step: str | None = Field(
        default=None,
        max_length=12,
        description="Length of an interval: `30s`, `1m`, `1h`, `1d`, or a number of milliseconds. The response has min, max, "
        "mean, sum, count and last of the numbers in each interval. Steps of whole hours reach back as far as hourly roll-ups "
        "are kept (by default a year); other steps, and single readings, as far as raw telemetry is kept (30 days). Limits: "
        "1,000 intervals, and a million messages of raw telemetry.",
    )


class TelemetrySeriesQueryParameters(QueryParametersModel):
    device_id: str = Field(
        min_length=1, max_length=1_300, description=f"Ids of devices, comma-separated, at most {MAX_SERIES_DEVICES}."
    )
    metric: MetricName | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = Field(default=1000, description="Of each device, the newest of the range.")
    since: InstantMs = Field(default=0, description="Unix milliseconds or ISO 8601, inclusive.")
    until: InstantMs = Field(default=END_OF_TIME_MS, description="Unix milliseconds or ISO 8601, exclusive.")
    step: str | None = Field(
        default=None, max_length=12, description="As in the telemetry of one device: `1m`, `1h`, or a number of milliseconds."
    )


class TelemetryExportQueryParameters(QueryParametersModel):
    format: Literal["csv", "ndjson"] = "csv"
    metric: MetricName | None = None
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


class BucketResponse(ResponseModel):
    metric: str
    from_: Timestamp = Field(serialization_alias="from")
    min: float
    max: float
    mean: float
    count: int
    sum: float = Field(description="Limited to the largest IEEE double.")
    last: float


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


class LatestTelemetryResponse(ResponseModel):
    state: Literal["ON", "OFF"] | None
    relay_state: bool | None
    telemetry: list[ReadingResponse]


def reading_response(reading: Reading) -> ReadingResponse:
    return ReadingResponse.of(reading, value_text=reading.text, recorded_at=reading.at_ms)


def series_reading(device: Device, reading: Reading) -> SeriesPointResponse:
    return SeriesPointResponse.of(
        reading, device, device_name=device.name, timestamp=reading.at_ms, time=reading.at_ms, value_text=reading.text
    )


def series_bucket(device: Device, bucket: BucketStatistics) -> SeriesPointResponse:
    return SeriesPointResponse.of(
        bucket,
        device,
        device_name=device.name,
        timestamp=bucket.from_ms,
        time=bucket.from_ms,
        value=bucket.mean,
        min=bucket.low,
        max=bucket.high,
    )


def bucket_response(bucket: BucketStatistics) -> BucketResponse:
    return BucketResponse.of(bucket, from_=bucket.from_ms, min=bucket.low, max=bucket.high, sum=bucket.total)
