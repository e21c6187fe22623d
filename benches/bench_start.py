"""Start and idle memory of `latchboard serve` on an existing data directory, beside a Python that only imports its libraries.

    python benches/bench_start.py [starts]

Both start alternately; medians. `wall`: from the shell to the first 200 of /readyz, or to the end of the imports. `CPU`: user and
system time until then. `RSS`: resident memory ten seconds later.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.ports import free_ports
from support.service import environment, program_command

BOUND = "import quart, sqlalchemy.ext.asyncio, hypercorn.asyncio; print('ready', flush=True); input()"
IDLE_S = 10.0
START_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Start:
    wall_ms: float
    cpu_ms: float
    rss_mib: float


def cpu_ms(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return 10.0 * (int(fields[11]) + int(fields[12]))


def rss_mib(pid: int) -> float:
    line = next(one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def measure_start(command: list[str], wait_until_ready: Callable[[subprocess.Popen[bytes]], None], env: dict[str, str]) -> Start:
    began = time.perf_counter()
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until_ready(process)
            wall, cpu = 1000 * (time.perf_counter() - began), cpu_ms(process.pid)
            time.sleep(IDLE_S)
            return Start(wall, cpu, rss_mib(process.pid))
        finally:
            process.terminate()


def wait_for_line(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"


def wait_for_http(port: int) -> Callable[[subprocess.Popen[bytes]], None]:
    def wait(process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < until and process.poll() is None:
            connection = HTTPConnection("127.0.0.1", port, timeout=5)
            try:
                connection.request("GET", "/readyz")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                pass
            finally:
                connection.close()
            time.sleep(0.005)
        raise RuntimeError("the service did not become ready")

    return wait


def service_environment(folder: Path, http_port: int, mqtt_port: int, ws_port: int) -> dict[str, str]:
    return environment(
        LATCHBOARD_DATA_DIR=folder,
        LATCHBOARD_HTTP_PORT=http_port,
        LATCHBOARD_MQTT_PORT=mqtt_port,
        LATCHBOARD_MQTT_WS_PORT=ws_port,
        LATCHBOARD_MQTT_PUBLIC_HOST="127.0.0.1",
        LATCHBOARD_OWNER_EMAIL="owner@example.com",
        LATCHBOARD_OWNER_PASSWORD="correct horse battery",
    )


def show(name: str, starts: list[Start]) -> None:
    wall, cpu, rss = (median(getattr(one, field) for one in starts) for field in ("wall_ms", "cpu_ms", "rss_mib"))
    print(f"{name:<24}{wall:8.0f} ms wall {cpu:8.0f} ms CPU {rss:8.1f} MiB RSS")


def main(starts: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ports = free_ports(3)
        env = service_environment(Path(folder), *ports)
        serve = [*program_command(), "serve"]
        measure_start(serve, wait_for_http(ports[0]), env)  # creates the database and the bytecode
        services, bounds = [], []
        for _ in range(starts):
            services.append(measure_start(serve, wait_for_http(ports[0]), env))
            bounds.append(measure_start([sys.executable, "-c", BOUND], wait_for_line, env))
    show("latchboard serve", services)
    show("imports of its libraries", bounds)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
