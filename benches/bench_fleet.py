"""Ten thousand devices with the whole service: connections per second, the cost of one, and the effect of a reconnect storm on
the others.

    python benches/bench_fleet.py [devices] [telemetry messages a second]

The service is the real process (broker, engine, SQLite, HTTP) on free ports; the fleet is another process, so that the
memory of each is measured separately. The devices are written to the database before the service starts, because registering them
one by one would take longer than the benchmark. Half of them report at a fixed rate; the other half connects, is disconnected,
and reconnects at once, three times. Nothing is asserted.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.service import EMAIL, PASSWORD, Service

PHASE_S = 12.0
STORMS = 3
AT_ONCE = 64

_FLEET = """
import json, sys, time
from adapters.engine import _native
port, rate, phase_s, storms = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
devices = [tuple(pair) for pair in json.load(sys.stdin)]
half = len(devices) // 2
QUIET = 0.001

def say(**what):
    print(json.dumps(what), flush=True)

def until(condition, patience=120):
    end = time.perf_counter() + patience
    while not condition() and time.perf_counter() < end:
        time.sleep(0.005)

began = time.perf_counter()
stormy = _native.Simulation("127.0.0.1", port, devices[half:], rate=QUIET, version=5)
steady = _native.Simulation("127.0.0.1", port, devices[:half], rate=rate)
until(lambda: stormy.stats()["connected"] + steady.stats()["connected"] == len(devices))
took, s = time.perf_counter() - began, stormy.stats()
say(phase="connected", seconds=round(took, 2), devices=s["connected"] + steady.stats()["connected"],
    connect_p50_us=s["connect_p50_us"], connect_p99_us=s["connect_p99_us"], failed=s["failed"] + steady.stats()["failed"])
time.sleep(10)
say(phase="settled")
for name, count in (("before", 0), ("during", storms), ("after", 0)):
    steady.reset_latencies()
    was, end, back = steady.stats(), time.perf_counter() + phase_s, []
    for _ in range(count):
        before, at = stormy.stats()["connects"], time.perf_counter()
        stormy.reconnect_all()
        until(lambda: stormy.stats()["connects"] >= before + len(devices) - half)
        back.append(round(time.perf_counter() - at, 2))
        time.sleep(max(0.0, phase_s / count - back[-1]))
    time.sleep(max(0.0, end - time.perf_counter()))
    now = steady.stats()
    counts = {key: now[key] - was[key] for key in ("sent", "confirmed", "lost")}
    times = {key: now[f"confirmation_{key}_us"] / 1000 for key in ("p50", "p90", "p99", "max")}
    say(phase=name, back_after_s=back, **counts, **{f"{key}_ms": value for key, value in times.items()})
stormy.stop()
steady.stop()
"""


def main(count: int, rate: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        service = Service(Path(folder), LATCHBOARD_INGEST_LIMIT=0)
        devices = prepare(service, count)
        with service:
            time.sleep(3)
            before = resident_kib(service)
            print(
                f"{count} devices, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; service {before // 1024} MiB without them"
            )
            play(service, devices, rate, before)
        errors = service.error_lines()
        print(f"{len(errors)} errors in the log", *errors[:3], sep="\n")


def prepare(service: Service, count: int) -> list[tuple[str, str]]:
    """Create the devices with credentials in the data directory of a stopped service."""
    began = time.perf_counter()
    devices = asyncio.run(_register(service, count))
    print(f"registering took {time.perf_counter() - began:.1f} s")
    return devices


async def _register(service: Service, count: int) -> list[tuple[str, str]]:
    from app.cli.first_account import create_first_account
    from app.config.settings import Settings
    from app.wiring.compose import compose
    from domain.devices.registration import DeviceRegistrationInput
    from domain.sign_in.sessions import SessionTokenIssuer

    names = {name.removeprefix("LATCHBOARD_").lower(): value for name, value in service.settings.items()}
    program = compose(Settings(_env_file=None, **names))  # type: ignore[call-arg]
    await program.adapters.database.start()
    await create_first_account(program, "http://localhost", make_up=True)
    adapters = program.adapters
    issuer = SessionTokenIssuer(ids=adapters.ids, tokens=adapters.tokens, digest=adapters.digest)
    token = await program.services.operator.issue_owner_token(issuer)
    assert token is not None, (EMAIL, PASSWORD)
    caller, _ = await program.services.callers.authenticate_token(token, "")
    places = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> tuple[str, str]:
        async with places:
            device = await program.services.devices.register(caller, DeviceRegistrationInput(f"Device {number}", "ESP32", "PUMP"))
            made = await program.services.credentials.generate(caller, device.device_id, rotate=False)
            return str(device.device_id), made.password

    devices = await asyncio.gather(*(one(number) for number in range(count)))
    await program.adapters.courier.close()
    await program.adapters.database.stop()
    program.adapters.hasher.close()
    return list(devices)


def play(service: Service, devices: list[tuple[str, str]], rate: float, before_kib: int) -> None:
    command = [sys.executable, "-c", _FLEET, str(service.mqtt_port), str(rate), str(PHASE_S), str(STORMS)]
    cpu = cpu_seconds(service)
    fleet = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert fleet.stdin is not None
    assert fleet.stdout is not None
    fleet.stdin.write(json.dumps(devices))
    fleet.stdin.close()
    for line in fleet.stdout:
        report: dict[str, Any] = json.loads(line)
        now, began = cpu_seconds(service), cpu
        cpu = now
        if report["phase"] == "connected":
            report["per_second"] = round(report["devices"] / report["seconds"])
        if report["phase"] in ("connected", "settled"):
            used = resident_kib(service) - before_kib
            report |= {"resident_mib": resident_kib(service) // 1024, "kib_a_connection": round(used / len(devices), 1)}
        report["service_cpu_s"] = round(now - began, 1)
        print(json.dumps(report), flush=True)
    fleet.wait(30)


def cpu_seconds(service: Service) -> float:
    assert service.process is not None
    fields = Path(f"/proc/{service.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def resident_kib(service: Service) -> int:
    assert service.process is not None
    status = Path(f"/proc/{service.process.pid}/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0])


if __name__ == "__main__":
    arguments = [float(text) for text in sys.argv[1:]]
    main(int(arguments[0]) if arguments else 10_000, arguments[1] if len(arguments) > 1 else 500.0)
