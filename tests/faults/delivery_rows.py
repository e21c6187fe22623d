"""What the service owes to the webhook's receiver: the rows of its table `deliveries`, read past the service."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.service import Service

BACKLOG_S = 900.0
"""How long the deliveries that wait may take; one message of the fleet has six of them, one for each metric."""
STALL_S = 120.0
"""For so long their number may stay the same: longer than a lease (30 s) and the longest pause before a retry (80 s)."""
QUERY_TIMEOUT_S = 30.0
_PENDING = "SELECT count(*) FROM deliveries WHERE state = 'PENDING'"
_ROWS = "SELECT event_id, event_type, state, device_id, data FROM deliveries"


@dataclass(frozen=True)
class DeliveryRow:
    event_id: str
    event_type: str
    state: str
    device_id: str | None
    data: bytes

    @property
    def told(self) -> dict[str, Any]:
        """The payload of the event."""
        found: dict[str, Any] = json.loads(self.data)
        return found

    @property
    def reading(self) -> tuple[str | None, int] | None:
        """Device and number of a reading that the fleet published; None for any other event."""
        if self.event_type != "telemetry":
            return None
        told = self.told
        return (self.device_id, int(told["value"])) if told["metric"] == "seq" else None


def count_doubled(rows: Sequence[DeliveryRow]) -> int:
    """How many rows are a further delivery of an event. A reading's event is its device, time, metric and value, so two messages of
    the same millisecond may have one in common; each announces it. The number of such messages is that of their `seq`."""
    telemetry = [(row, row.told) for row in rows if row.event_type == "telemetry"]
    numbers = {(row.device_id, told["timestamp"], told["value"]) for row, told in telemetry if told["metric"] == "seq"}
    messages = Counter((device_id, at_ms) for device_id, at_ms, _ in numbers)
    allowed = {row.event_id: messages[row.device_id, told["timestamp"]] for row, told in telemetry if told["metric"] != "seq"}
    deliveries = Counter(row.event_id for row in rows)
    return sum(max(0, count - max(1, allowed.get(event_id, 1))) for event_id, count in deliveries.items())


async def settled_deliveries(service: Service) -> list[DeliveryRow]:
    """All deliveries, when none is PENDING any more, or when their number does not go down."""
    loop = asyncio.get_running_loop()
    end, least, since = loop.time() + BACKLOG_S, None, loop.time()
    while pending := await count_pending(service):
        if least is None or pending < least:
            least, since = pending, loop.time()
        if loop.time() > min(end, since + STALL_S):
            break
        await asyncio.sleep(0.5)
    return [DeliveryRow(*row) for row in await _query(service, _ROWS)]


async def count_pending(service: Service) -> int:
    return int((await _query(service, _PENDING))[0][0])


def by_state(rows: Sequence[DeliveryRow]) -> str:
    """Like `12 DELIVERED telemetry, 1 PENDING relay_changed`."""
    counted = Counter(f"{row.state} {row.event_type}" for row in rows)
    return ", ".join(f"{number} {kind}" for kind, number in sorted(counted.items()))


async def _query(service: Service, sql: str) -> list[tuple[Any, ...]]:
    url = service.settings.get("LATCHBOARD_DATABASE_URL")
    if url is None:
        return await asyncio.to_thread(_on_sqlite, Path(service.settings["LATCHBOARD_DATA_DIR"]) / "latchboard.db", sql)
    import asyncpg

    connection = await asyncpg.connect(url.replace("+asyncpg", ""), timeout=QUERY_TIMEOUT_S)
    try:
        return [tuple(row) for row in await connection.fetch(sql, timeout=QUERY_TIMEOUT_S)]
    finally:
        await connection.close()


def _on_sqlite(path: Path, sql: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=QUERY_TIMEOUT_S)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()
