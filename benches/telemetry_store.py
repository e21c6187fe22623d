"""The cost of a year of telemetry: a database with tens of millions of messages, and the time of typical queries.

    python benches/telemetry_store.py load DIRECTORY --messages 50000000     fill a fresh data directory
    python benches/telemetry_store.py query DIRECTORY                        latest, history, downsampled history, roll-ups
    python benches/telemetry_store.py export DIRECTORY                       ten million readings of the busiest device
    python benches/telemetry_store.py carry DIRECTORY                        what the whole program stores per second on top of it
    python benches/telemetry_store.py delete DIRECTORY                       delete the busiest device; the delay of other writers
    python benches/telemetry_store.py forget DIRECTORY --days 28             retention of two days' messages; the same

With `--postgres` the database is a PostgreSQL server of its own in DIRECTORY, with default settings, instead of an SQLite file.
The engine packs the messages, in the order in which a fleet would send them: all devices in turn, for thirty days up to now. One
device, the busiest, has `--busy` more messages. Run it on an idle machine; figures are printed, nothing is asserted.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import httpx

from adapters.engine import _native
from support.service import EMAIL, PASSWORD, Service
from support.threaded_device import cpu_seconds
from telemetry_databases import PostgresDirectory, SqliteDirectory
from telemetry_filler import fill

DEVICES = 1_000
EXPORTED = 10_000_000

Directory = SqliteDirectory | PostgresDirectory


@contextmanager
def serving(directory: Directory, **settings: object) -> Iterator[tuple[Service, httpx.Client]]:
    """The running service, and a client that is signed in."""
    given = {"LATCHBOARD_INGEST_LIMIT": "0", "LATCHBOARD_LOG_LEVEL": "WARNING", **directory.settings, **settings}
    service = Service(directory.path, **given)
    began = time.perf_counter()
    try:
        service.start()
        print(f"ready after {time.perf_counter() - began:.1f} s")
        with httpx.Client(base_url=f"{service.url}/api/v1", timeout=600) as api:
            login = api.post("/auth/login", json={"email": EMAIL, "password": PASSWORD}).json()
            api.headers["Authorization"] = f"Bearer {login['accessToken']}"
            yield service, api
        service.stop()
    finally:
        if service.is_running:
            service.kill()


def load(directory: Directory, messages: int, busy: int, count: int) -> None:
    with serving(directory) as (_, api):
        for number in [*range(count), DEVICES]:
            body = {"name": f"Meter {number}", "boardType": "esp32", "appType": "pump"}
            assert api.post("/devices/register", json=body).status_code == 201
    with directory.tables() as tables:
        fill(tables, messages, busy, count)


def query(directory: Directory) -> None:
    with serving(directory) as (service, api):
        until_summed_up(api, service)
        devices = {each["name"]: each["deviceId"] for each in api.get("/devices").json()}
        meter, busy = devices["Meter 50"], devices[f"Meter {DEVICES}"]
        for name, device in (("one of many devices", meter), ("the busiest", busy)):
            print(name)
            for path in QUESTIONS:
                timed(api, f"/devices/{device}/telemetry{path}")


def export(directory: Directory) -> None:
    """Export the readings of the busiest device, at most ten million."""
    with serving(directory) as (service, api):
        busy = next(each["deviceId"] for each in api.get("/devices").json() if each["name"] == f"Meter {DEVICES}")
        for form, most in (("csv", EXPORTED // 10), ("ndjson", EXPORTED)):
            exported(api, service, busy, form, most)


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


def carry(directory: Directory) -> None:
    with serving(directory) as (service, api):
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


def delete(directory: Directory) -> None:
    with serving(directory) as (_, api):
        devices = {each["name"]: each["deviceId"] for each in api.get("/devices").json()}
        busy = devices[f"Meter {DEVICES}"]
        with directory.tables() as tables:
            number = tables.device_number(busy)
            began = time.perf_counter()
            with WriteDelayProbe(api) as pauses:
                assert api.delete(f"/devices/{busy}").status_code == 200
                print(f"gone for everybody after {(time.perf_counter() - began) * 1000:.0f} ms", flush=True)
                while tables.has_readings(number):
                    time.sleep(0.5)
        print(f"last reading gone after {time.perf_counter() - began:.0f} s; {pauses}")


def forget(directory: Directory, days: int) -> None:
    with serving(directory, LATCHBOARD_READINGS_DAYS=days) as (service, api):
        with WriteDelayProbe(api) as pauses:
            while not figure(service, "retention_deleted_rows"):
                time.sleep(0.2)
            began, before, last = time.perf_counter(), -1.0, 0.0
            while last != before:
                time.sleep(2)
                before, last = last, figure(service, "retention_deleted_rows")
        took = time.perf_counter() - began - 2
        print(f"{last:,.0f} rows forgotten in {took:.0f} s: {last / max(took, 1):,.0f}/s; {pauses.since(began - FIRST_STEP_S)}")


FIRST_STEP_S = 2
"""Before rows are seen to be forgotten: one step takes all of them on PostgreSQL, which drops whole days."""


class WriteDelayProbe:
    """Measures the delay of another writer, which renames a device repeatedly."""

    def __init__(self, api: httpx.Client) -> None:
        self._api = api
        self._took: list[tuple[float, float]] = []
        """When each began, and the milliseconds that it took."""
        self._thread = threading.Thread(target=self._run)
        self._stop = threading.Event()

    def _run(self) -> None:
        device = self._api.get("/devices").json()[0]["deviceId"]
        while not self._stop.wait(0.01):
            began = time.perf_counter()
            assert self._api.put(f"/devices/{device}", json={"location": f"shelf {began}"}).status_code == 200
            self._took.append((began, (time.perf_counter() - began) * 1000))

    def __enter__(self) -> WriteDelayProbe:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def __str__(self) -> str:
        return self.since(0)

    def since(self, first: float) -> str:
        """A sentence on the changes since then."""
        took = sorted(ms for began, ms in self._took if began >= first)
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
    parser.add_argument("--postgres", action="store_true", help="in a server of its own in the directory")
    given = parser.parse_args()
    directory = PostgresDirectory(given.directory) if given.postgres else SqliteDirectory(given.directory)
    verbs = {
        "load": lambda: load(directory, given.messages, given.busy, given.devices),
        "query": lambda: query(directory),
        "export": lambda: export(directory),
        "carry": lambda: carry(directory),
        "delete": lambda: delete(directory),
        "forget": lambda: forget(directory, given.days),
    }
    with directory.running(load=given.verb == "load"):
        verbs[given.verb]()
