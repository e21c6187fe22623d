"""What devices measured, and names that stand for it elsewhere. The readings of one message are stored in one row: (device
number, time, packed values).
"""

from __future__ import annotations

from dataclasses import dataclass

from domain.devices.model import Device
from domain.events.feed_model import reading_event_id
from domain.events.model import TELEMETRY, Event
from domain.kernel.clock import DAY_MS, HOUR_MS


@dataclass(frozen=True, slots=True)
class Reading:
    """`value` for numbers and booleans, `text` for strings; exactly one is set. `at_ms` is the device's time, Unix ms, or the
    arrival if the device sent none; `reported_ms` is the device's time if that was too far ahead: `at_ms` is the arrival then."""

    metric: str
    value: float | None
    text: str | None
    unit: str | None
    at_ms: int
    reported_ms: int | None = None


@dataclass(frozen=True, slots=True)
class HistoryTimeRange:
    """since ≤ time < until, Unix ms."""

    since_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class BucketStatistics:
    """The numbers of one metric in a time bucket that starts at `from_ms` (Unix ms)."""

    metric: str
    from_ms: int
    low: float
    high: float
    mean: float
    count: int
    total: float
    last: float
    unit: str | None


def reading_event(device: Device, at_ms: int, metric: str, value: float | None, text: str | None, unit: str | None) -> Event:
    """The same for the live feed, a feed client that resumes, and webhooks."""
    event_id = reading_event_id(device.device_id, at_ms, metric, value, text)
    return Event(
        position=0,
        event_id=event_id,
        account_id=device.account_id,
        device_id=device.device_id,
        device_name=device.name,
        kind=TELEMETRY,
        description=f"{metric} = {value if text is None else text}",
        at_ms=at_ms,
        source="device",
        address="",
        payload={
            "type": TELEMETRY,
            "eventId": event_id,
            "accountId": device.account_id,
            "deviceId": device.device_id,
            "timestamp": at_ms,
            "metric": metric,
            "value": value,
            "valueText": text,
            "unit": unit,
        },
    )


def name_of_unnamed(number: int) -> str:
    """For a metric whose name the database lacks."""
    return f"#{number}"


def number_of_unnamed(name: str) -> int | None:
    return int(name[1:]) if name[:1] == "#" and name[1:].isdecimal() else None


def oldest_kept_ms(now_ms: int, days: int) -> int:
    """A full hour; the database keeps all readings from then on."""
    return (now_ms - days * DAY_MS) // HOUR_MS * HOUR_MS
