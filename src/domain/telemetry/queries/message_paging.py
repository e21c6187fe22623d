"""Reads the messages of a device page by page, in the order of their keys: (time, digest).

A page continues after the last key of the previous page. So no message is skipped or returned twice, even if a device with a
stopped clock has sent many messages with the same time.
"""

from __future__ import annotations

from dataclasses import dataclass

from domain.telemetry.ports import HasReadings, MessageKey

PackedRows = list[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class HistoryTimeRange:
    """since ≤ time < until, Unix ms."""

    since_ms: int
    until_ms: int


async def read_page(
    tx: HasReadings, device_no: int, span: HistoryTimeRange, size: int, after: MessageKey | None, *, newest_first: bool = True
) -> tuple[PackedRows, MessageKey | None]:
    """The rows, and the key after which the next page starts; None after the last page."""
    found = await tx.readings.list_page(device_no, span.since_ms, span.until_ms, size, after, newest_first=newest_first)
    rows = [(at_ms, packed) for at_ms, _, packed in found]
    return rows, None if len(found) < size else found[-1][:2]
