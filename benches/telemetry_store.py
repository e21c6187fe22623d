"""The cost of a year of telemetry: a database with tens of millions of messages, and the time of typical queries.

    python benches/telemetry_store.py load DIRECTORY --messages 50000000     fill a fresh data directory
    python benches/telemetry_store.py query DIRECTORY                        latest, history, downsampled history, roll-ups
    python benches/telemetry_store.py export DIRECTORY                       ten million readings of the busiest device
    python benches/telemetry_store.py carry DIRECTORY                        what the whole program stores per second on top of it
    python benches/telemetry_store.py delete DIRECTORY                       delete the busiest device; the delay of other writers
    python benches/telemetry_store.py forget DIRECTORY --days 28             retention of two days' messages; the same

The engine packs the messages, in the order in which a fleet would send them: all devices in turn, for thirty days up to now. One
device, the busiest, has `--busy` more messages. Run it on an idle machine; figures are printed, nothing is asserted.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import httpx

from adapters.engine import _native
from support.service import EMAIL, PASSWORD, Service
from support.threaded_device import cpu_seconds

DEVICES = 1_000
DAYS = 30
DAY_MS = 86_400_000
ROUNDS_A_BATCH = 20
BUSY_BATCH = 20_000
EXPORTED = 10_000_000
INSERT = "INSERT OR IGNORE INTO readings (device_no, ts, digest, packed) VALUES (?, ?, ?, ?)"


def serving(directory: Path) -> Service:
    return Service(directory, LATCHBOARD_INGEST_LIMIT="0", LATCHBOARD_LOG_LEVEL="WARNING")


def sign_in(client: httpx.Client) -> None:
    login = client.post("/auth/login", json={"email": EMAIL, "password": PASSWORD}).json()
    client.headers["Authorization"] = f"Bearer {login['accessToken']}"


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


def load(directory: Path, messages: int, busy: int, count: int) -> None:
    service = serving(directory)
    service.start()
    with httpx.Client(base_url=f"{service.url}/api/v1", timeout=600) as api:
        sign_in(api)
        for number in [*range(count), DEVICES]:
            body = {"name": f"Meter {number}", "boardType": "esp32", "appType": "pump"}
            assert api.post("/devices/register", json=body).status_code == 201
    service.stop()
    path = service.data_dir / "latchboard.db"
    database = sqlite3.connect(path, isolation_level=None)
    for pragma in ("synchronous=OFF", "cache_size=-400000", "wal_autocheckpoint=20000"):
        database.execute(f"PRAGMA {pragma}")
    numbers = [row[0] for row in database.execute("SELECT device_no FROM devices ORDER BY device_no")]
    filler = TelemetryLoader(database)
    rounds = messages // count
    step_ms = DAYS * DAY_MS // rounds
    end_ms = int(time.time() * 1000)
    begun_ms = end_ms - rounds * step_ms
    began = time.perf_counter()
    for first in range(0, rounds, ROUNDS_A_BATCH):
        batch = []
        for turn in range(first, min(first + ROUNDS_A_BATCH, rounds)):
            at_ms = begun_ms + turn * step_ms
            batch += [(no, at_ms + no, payload(at_ms + no, turn * 31 + no)) for no in numbers[:count]]
        filler.put(batch)
        if first % (ROUNDS_A_BATCH * 50) == 0:
            print(f"{filler.rows:,} rows, {filler.rows / (time.perf_counter() - began):,.0f}/s", flush=True)
    small = sizes(path, database)
    print(f"{filler.rows:,} messages of {count} devices: {small / filler.rows:.1f} bytes each, {small / 1e9:.2f} GB", flush=True)
    if busy:
        step = DAYS * DAY_MS // busy
        for begin in range(0, busy, BUSY_BATCH):
            turns = range(begin, min(begin + BUSY_BATCH, busy))
            filler.put([(numbers[-1], t, payload(t, n)) for n in turns for t in [end_ms - (busy - n) * step]])
        print(f"{busy:,} more of one device: {(sizes(path, database) - small) / busy:.1f} bytes each", flush=True)
    filler.close()


class TelemetryLoader:
    """Writes from the engine to the table without durability, which a benchmark does not need."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._engine = _native.Engine()
        self._metrics: list[tuple[int, str]] = []
        self.rows = 0

    def put(self, messages: list[tuple[int, int, bytes]]) -> None:
        batch = _native.TelemetryBatch(messages)
        result = self._engine.ingest(batch)
        if result.unknown_metric_names:
            self._number(result.unknown_metric_names)
            result = self._engine.ingest(batch)
        assert result.consumed == len(messages)
        self._database.execute("BEGIN")
        metrics = [(device, metric, unit) for device, metric, _, unit in result.new_metrics]
        self._database.executemany("INSERT OR REPLACE INTO device_metrics VALUES (?, ?, ?)", metrics)
        self._database.executemany(INSERT, result.rows)
        self._mark(result)
        self._database.execute("COMMIT")
        self.rows += result.message_count

    def _number(self, names: list[str]) -> None:
        for name in names:
            self._metrics.append((len(self._metrics) + 1, name))
        self._engine.add_metric_names(self._metrics)
        self._database.executemany("INSERT OR IGNORE INTO metric_names VALUES (?, ?)", self._metrics)

    def _mark(self, result: Any) -> None:
        marks = [(device, hour, 1) for device, hour in result.rollup_hours]
        self._database.executemany("INSERT OR IGNORE INTO rollups_due (device_no, hour, marked_ms) VALUES (?, ?, ?)", marks)

    def close(self) -> None:
        """Store the last values too, so that the next start has nothing to replay."""
        while latest := self._engine.checkpoint(2_000):
            self._database.executemany("INSERT OR REPLACE INTO device_latest (device_no, ts, packed) VALUES (?, ?, ?)", latest)
        self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._database.close()


def sizes(path: Path, database: sqlite3.Connection) -> int:
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.stat().st_size


def query(directory: Path) -> None:
    service = serving(directory)
    began = time.perf_counter()
    service.start()
    print(f"ready after {time.perf_counter() - began:.1f} s")
    with httpx.Client(base_url=f"{service.url}/api/v1", timeout=600) as api:
        sign_in(api)
        until_summed_up(api, service)
        devices = {each["name"]: each["deviceId"] for each in api.get("/devices").json()}
        meter, busy = devices["Meter 50"], devices[f"Meter {DEVICES}"]
        for name, device in (("one of many devices", meter), ("the busiest", busy)):
            print(name)
            for path in QUESTIONS:
                timed(api, f"/devices/{device}/telemetry{path}")
    service.stop()


def export(directory: Path) -> None:
    """Export the readings of the busiest device, at most ten million."""
    service = serving(directory)
    service.start()
    with httpx.Client(base_url=f"{service.url}/api/v1", timeout=600) as api:
        sign_in(api)
        busy = next(each["deviceId"] for each in api.get("/devices").json() if each["name"] == f"Meter {DEVICES}")
        for form, most in (("csv", EXPORTED // 10), ("ndjson", EXPORTED)):
            exported(api, service, busy, form, most)
    service.stop()


QUESTIONS = (
    "/latest",
    "?limit=100",
    "?limit=1000&metric=humidity",
    "?step=1m&limit=1000&metric=power",
    "?step=15m&limit=96",
    "?step=1h&limit=720&metric=power",
    "?step=1d&limit=30",
)


def until_summed_up(api: httpx.Client, service: Service) -> None:
    began, before, last = time.perf_counter(), -1.0, 0.0
    with WriteDelayProbe(api) as pauses:
        while last != before:
            time.sleep(6)
            before, last = last, figure(service, "rollups")
    took = time.perf_counter() - began - 6
    print(f"{last:,.0f} hours of devices summed up in {took:.0f} s: {last / max(took, 1):,.0f}/s; {pauses}")


def timed(api: httpx.Client, path: str) -> None:
    took = []
    for _ in range(7):
        began = time.perf_counter()
        answer = api.get(path)
        took.append((time.perf_counter() - began) * 1000)
        assert answer.status_code == 200, answer.text
    print(
        f"  {path.split('/', 3)[3]:45} median {statistics.median(took):8.1f} ms, first {took[0]:8.1f} ms, {len(answer.json())} rows"
    )


def exported(api: httpx.Client, service: Service, device: str, form: str, most: int) -> None:
    before, cpu = resident_mib(service), cpu_seconds(service)
    began, size, rows, peak, looked = time.perf_counter(), 0, 0, 0, 0.0
    with api.stream("GET", f"/devices/{device}/telemetry/export?format={form}") as answer:
        for chunk in answer.iter_raw():
            size += len(chunk)
            rows += chunk.count(b"\n")
            if rows >= most:
                break
            if time.perf_counter() - looked > 0.25:
                looked, peak = time.perf_counter(), max(peak, resident_mib(service))
    took, cpu = time.perf_counter() - began, cpu_seconds(service) - cpu
    print(
        f"export {form}: {rows:,} readings, {size / 1e6:.0f} MB in {took:.1f} s: {rows / took:,.0f}/s, "
        f"{cpu / rows * 1e6:.1f} us of processor each; {before} MiB before, {peak} at most",
        flush=True,
    )


def carry(directory: Path) -> None:
    service = serving(directory)
    service.start()
    with httpx.Client(base_url=f"{service.url}/api/v1", timeout=600) as api:
        sign_in(api)
        devices = []
        for each in api.get("/devices").json()[:DEVICES]:
            credentials = api.post(f"/devices/{each['deviceId']}/credentials", json={"rotate": True}).json()
            devices.append((each["deviceId"], credentials["mqttPassword"]))
        for seconds in (10.0, 30.0):
            fleet = _native.Simulation("127.0.0.1", service.mqtt_port, devices, rate=1e9, qos=1, seconds=seconds)
            while fleet.is_running():
                time.sleep(0.05)
            stats = fleet.stats()
            print(
                f"{stats['confirmed'] / seconds:,.0f} messages/s in {seconds:.0f} s, PUBACK median {stats['confirmation_p50_us'] / 1000:.0f} ms"
            )
        print(f"{resident_mib(service)} MiB resident")
    service.stop()


def delete(directory: Path) -> None:
    service = serving(directory)
    service.start()
    with httpx.Client(base_url=f"{service.url}/api/v1", timeout=600) as api:
        sign_in(api)
        devices = {each["name"]: each["deviceId"] for each in api.get("/devices").json()}
        database = sqlite3.connect(f"file:{service.data_dir / 'latchboard.db'}?mode=ro", uri=True)
        [number] = database.execute("SELECT device_no FROM devices WHERE device_id = ?", [devices[f"Meter {DEVICES}"]]).fetchone()
        began = time.perf_counter()
        with WriteDelayProbe(api) as pauses:
            assert api.delete(f"/devices/{devices[f'Meter {DEVICES}']}").status_code == 200
            print(f"gone for everybody after {(time.perf_counter() - began) * 1000:.0f} ms")
            while database.execute("SELECT 1 FROM readings WHERE device_no = ? LIMIT 1", [number]).fetchone():
                time.sleep(0.5)
        print(f"last reading gone after {time.perf_counter() - began:.0f} s; {pauses}")
        database.close()
    service.stop()


def forget(directory: Path, days: int) -> None:
    service = serving(directory)
    service.settings["LATCHBOARD_READINGS_DAYS"] = days
    service.start()
    with httpx.Client(base_url=f"{service.url}/api/v1", timeout=600) as api:
        sign_in(api)
        while not figure(service, "retention_deleted_rows"):
            time.sleep(0.2)
        began, before, last = time.perf_counter(), -1.0, 0.0
        with WriteDelayProbe(api) as pauses:
            while last != before:
                time.sleep(2)
                before, last = last, figure(service, "retention_deleted_rows")
        took = time.perf_counter() - began - 2
        print(f"{last:,.0f} rows forgotten in {took:.0f} s: {last / took:,.0f}/s; {pauses}")
    service.stop()


class WriteDelayProbe:
    """Measures the delay of another writer, which renames a device repeatedly."""

    def __init__(self, api: httpx.Client) -> None:
        self._api = api
        self._took: list[float] = []
        self._thread = threading.Thread(target=self._run)
        self._stop = threading.Event()

    def _run(self) -> None:
        device = self._api.get("/devices").json()[0]["deviceId"]
        while not self._stop.wait(0.01):
            began = time.perf_counter()
            assert self._api.put(f"/devices/{device}", json={"location": f"shelf {began}"}).status_code == 200
            self._took.append((time.perf_counter() - began) * 1000)

    def __enter__(self) -> WriteDelayProbe:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def __str__(self) -> str:
        took = sorted(self._took)
        return (
            f"{len(took)} changes by others: median {statistics.median(took):.1f} ms, p99 {took[len(took) * 99 // 100]:.0f}, "
            f"longest {took[-1]:.0f}"
        )


def figure(service: Service, name: str) -> float:
    text = httpx.get(f"{service.url}/metrics", timeout=30).text
    line = next(line for line in text.splitlines() if line.startswith(f"latchboard_{name}_total "))
    return float(line.split()[1])


def resident_mib(service: Service) -> int:
    assert service.process is not None
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    return int(next(row for row in status.splitlines() if row.startswith("VmRSS")).split()[1]) // 1024


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=["load", "query", "export", "carry", "delete", "forget"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--messages", type=int, default=50_000_000)
    parser.add_argument("--busy", type=int, default=10_000_000)
    parser.add_argument("--devices", type=int, default=DEVICES, help="that share --messages")
    parser.add_argument("--days", type=int, default=28)
    given = parser.parse_args()
    verbs = {
        "load": lambda: load(given.directory, given.messages, given.busy, given.devices),
        "query": lambda: query(given.directory),
        "export": lambda: export(given.directory),
        "carry": lambda: carry(given.directory),
        "delete": lambda: delete(given.directory),
        "forget": lambda: forget(given.directory, given.days),
    }
    verbs[given.verb]()
