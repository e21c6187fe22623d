"""What a year of telemetry costs: a database with tens of millions of messages, and how long typical questions to it take.

    python benches/telemetry_store.py load DIRECTORY --messages 50000000     fill a fresh data directory
    python benches/telemetry_store.py ask DIRECTORY                          latest, history, stretches, export, roll-up, retention
    python benches/telemetry_store.py delete DIRECTORY                       delete the busiest device; what others wait meanwhile

Messages are packed by the engine itself and lie in the order in which a fleet would send them: all devices in turn, thirty days
up to now. One device, the busiest, has `--busy` messages more. Run it beside nothing else; figures are printed, nothing is asserted.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import httpx

from adapters.engine import _native
from support.service import EMAIL, PASSWORD, Service

DEVICES = 1_000
DAYS = 30
DAY_MS = 86_400_000
ROUNDS_A_BATCH = 20
BUSY_BATCH = 20_000
INSERT = "INSERT OR IGNORE INTO readings (device_no, ts, digest, packed) VALUES (?, ?, ?, ?)"


def serving(directory: Path) -> Service:
    return Service(directory, LATCHBOARD_INGEST_LIMIT="0", LATCHBOARD_LOG_LEVEL="WARNING")


def sign_in(client: httpx.Client) -> None:
    login = client.post("/auth/login", json={"email": EMAIL, "password": PASSWORD}).json()
    client.headers["Authorization"] = f"Bearer {login['accessToken']}"


def payload(at_ms: int, n: int) -> bytes:
    return b'{"ts":%d,"m":{"temperature":%d.%02d,"humidity":%d.%d,"pressure":%d.%d,"power":%d,"relay":%s}}' % (
        at_ms, 15 + n % 15, n * 7 % 100, 30 + n % 50, n % 10, 990 + n % 40, n * 3 % 10, n * 11 % 900,
        b"true" if n & 64 else b"false",
    )  # fmt: skip


def load(directory: Path, messages: int, busy: int) -> None:
    service = serving(directory)
    service.start()
    with httpx.Client(base_url=f"{service.url}/api/v1", timeout=600) as api:
        sign_in(api)
        for number in range(DEVICES + 1):
            body = {"name": f"Meter {number}", "boardType": "esp32", "appType": "pump"}
            assert api.post("/devices/register", json=body).status_code == 201
    service.stop()
    path = service.data_dir / "latchboard.db"
    database = sqlite3.connect(path, isolation_level=None)
    for pragma in ("synchronous=OFF", "cache_size=-400000", "wal_autocheckpoint=20000"):
        database.execute(f"PRAGMA {pragma}")
    numbers = [row[0] for row in database.execute("SELECT device_no FROM devices ORDER BY device_no")]
    filler = Filler(database)
    rounds = messages // DEVICES
    step_ms = DAYS * DAY_MS // rounds
    end_ms = int(time.time() * 1000)
    begun_ms = end_ms - rounds * step_ms
    began = time.perf_counter()
    for first in range(0, rounds, ROUNDS_A_BATCH):
        batch = []
        for turn in range(first, min(first + ROUNDS_A_BATCH, rounds)):
            at_ms = begun_ms + turn * step_ms
            batch += [(no, at_ms + no, payload(at_ms + no, turn * 31 + no)) for no in numbers[:DEVICES]]
        filler.put(batch)
        if first % (ROUNDS_A_BATCH * 50) == 0:
            print(f"{filler.rows:,} rows, {filler.rows / (time.perf_counter() - began):,.0f}/s", flush=True)
    small = sizes(path, database)
    print(f"{filler.rows:,} messages of {DEVICES} devices: {small / filler.rows:.1f} bytes each, {small / 1e9:.2f} GB", flush=True)
    if busy:
        step = DAYS * DAY_MS // busy
        for begin in range(0, busy, BUSY_BATCH):
            turns = range(begin, min(begin + BUSY_BATCH, busy))
            filler.put([(numbers[-1], t, payload(t, n)) for n in turns for t in [end_ms - (busy - n) * step]])
        print(f"{busy:,} more of one device: {(sizes(path, database) - small) / busy:.1f} bytes each", flush=True)
    filler.close()


class Filler:
    """Engine to table, without the service's own promises: nothing is lost by a benchmark that is cut short."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._engine = _native.Engine()
        self.rows = 0

    def put(self, messages: list[tuple[int, int, bytes]]) -> None:
        ingested = self._engine.ingest(_native.TelemetryBatch(messages))
        self._database.execute("BEGIN")
        self._database.executemany("INSERT OR IGNORE INTO metric_names VALUES (?, ?)", ingested.new_names)
        metrics = [(device, metric, unit) for device, metric, _, unit in ingested.new_metrics]
        self._database.executemany("INSERT OR REPLACE INTO device_metrics VALUES (?, ?, ?)", metrics)
        self._database.executemany(INSERT, ingested.rows)
        self._mark(ingested)
        self._database.execute("COMMIT")
        self.rows += ingested.messages

    def _mark(self, ingested: Any) -> None:
        hours = getattr(ingested, "hours", None)
        if hours is not None:
            marks = [(device, hour, 1) for device, hour in hours]
            self._database.executemany("INSERT OR IGNORE INTO rollups_due (device_no, hour, marked_ms) VALUES (?, ?, ?)", marks)

    def close(self) -> None:
        """With the last values, so that the next start has nothing to replay."""
        while latest := self._engine.checkpoint(2_000):
            self._database.executemany("INSERT OR REPLACE INTO device_latest (device_no, ts, packed) VALUES (?, ?, ?)", latest)
        self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._database.close()


def sizes(path: Path, database: sqlite3.Connection) -> int:
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.stat().st_size


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=["load"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--messages", type=int, default=50_000_000)
    parser.add_argument("--busy", type=int, default=10_000_000)
    given = parser.parse_args()
    load(given.directory, given.messages, given.busy)
