"""Reading a device's messages page by page, in the order of their keys: (time, digest).

A page goes on behind the last key of the one before, so that no message is passed over or given twice, however many a device with
a stopped clock has sent of one instant.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from domain.telemetry.ports import MessageKey, TelemetryTx

PackedRows = list[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class TimeRange:
    """since ≤ time < until, Unix ms."""

    since_ms: int
    until_ms: int


async def read_page(
    tx: TelemetryTx, device_no: int, span: TimeRange, size: int, after: MessageKey | None, *, newest_first: bool = True
) -> tuple[PackedRows, MessageKey | None]:
    """The rows, and where the next page begins; None when this was the last."""
    found = await tx.readings.list_page(device_no, span.since_ms, span.until_ms, size, after, newest_first=newest_first)
    rows = [(at_ms, packed) for at_ms, _, packed in found]
    return rows, None if len(found) < size else found[-1][:2]


async def iterate_pages(tx: TelemetryTx, device_no: int, span: TimeRange, size: int) -> AsyncIterator[PackedRows]:
    """Newest first, in the transaction's snapshot."""
    after: MessageKey | None = None
    while True:
        rows, after = await read_page(tx, device_no, span, size, after)
        if rows:
            yield rows
        if after is None:
            return
