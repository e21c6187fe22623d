"""Fills the tables of `telemetry_store.py`: the engine packs the messages of a fleet, in the order in which it would send them."""

from __future__ import annotations

import time

from adapters.engine import _native
from telemetry_databases import TelemetryTables

DAYS = 30
DAY_MS = 86_400_000
ROUNDS_A_BATCH = 20
BUSY_BATCH = 20_000


def payload(at_ms: int, n: int) -> bytes:
    return b'{"ts":%d,"m":{"temperature":%d.%02d,"humidity":%d.%d,"pressure":%d.%d,"power":%d,"relay":%s}}' % (
        at_ms,
        15 + n % 15,
        n * 7 % 100,
        30 + n % 50,
        n % 10,
        990 + n % 40,
        n * 3 % 10,
        n * 11 % 900,
        b"true" if n & 64 else b"false",
    )


def fill(tables: TelemetryTables, messages: int, busy: int, count: int) -> None:
    numbers = tables.device_numbers()
    filler = TelemetryLoader(tables)
    rounds = messages // count
    step_ms = DAYS * DAY_MS // rounds
    end_ms = int(time.time() * 1000)
    begun_ms = end_ms - rounds * step_ms
    tables.prepare(end_ms - DAYS * DAY_MS, end_ms)
    empty = tables.size()
    began = time.perf_counter()
    for first in range(0, rounds, ROUNDS_A_BATCH):
        batch = []
        for turn in range(first, min(first + ROUNDS_A_BATCH, rounds)):
            at_ms = begun_ms + turn * step_ms
            batch += [(no, at_ms + no, payload(at_ms + no, turn * 31 + no)) for no in numbers[:count]]
        filler.put(batch)
        if first % (ROUNDS_A_BATCH * 50) == 0:
            print(f"{filler.rows:,} rows, {filler.rows / (time.perf_counter() - began):,.0f}/s", flush=True)
    small = tables.size()
    print(
        f"{filler.rows:,} messages of {count} devices: {(small - empty) / filler.rows:.1f} bytes each, {small / 1e9:.2f} GB",
        flush=True,
    )
    if busy:
        step = DAYS * DAY_MS // busy
        for begin in range(0, busy, BUSY_BATCH):
            turns = range(begin, min(begin + BUSY_BATCH, busy))
            filler.put([(numbers[-1], t, payload(t, n)) for n in turns for t in [end_ms - (busy - n) * step]])
        print(f"{busy:,} more of one device: {(tables.size() - small) / busy:.1f} bytes each", flush=True)
    print(f"loaded in {time.perf_counter() - began:.0f} s", flush=True)
    filler.close()
    print(f"finished after {time.perf_counter() - began:.0f} s with {tables.size() / 1e9:.2f} GB", flush=True)


class TelemetryLoader:
    """Writes from the engine to the tables."""

    def __init__(self, tables: TelemetryTables) -> None:
        self._tables = tables
        self._engine = _native.Engine()
        self._metrics: list[tuple[int, str]] = []
        self.rows = 0

    def put(self, messages: list[tuple[int, int, bytes]]) -> None:
        batch = _native.RawTelemetryBatch(messages)
        result = self._engine.ingest(batch)
        if result.unknown_metric_names:
            self._number(result.unknown_metric_names)
            result = self._engine.ingest(batch)
        assert result.consumed == len(messages)
        metrics = [(device, metric, unit) for device, metric, _, unit in result.new_metrics]
        self._tables.store(metrics, result.rows, result.rollup_hours)
        self.rows += result.message_count

    def _number(self, names: list[str]) -> None:
        for name in names:
            self._metrics.append((len(self._metrics) + 1, name))
        self._engine.add_metric_names(self._metrics)
        self._tables.add_metric_names(self._metrics)

    def close(self) -> None:
        """Store the last values too, so that the next start has nothing to replay."""
        while latest := self._engine.checkpoint(2_000):
            self._tables.store_latest(latest)
        self._tables.finish()
