"""Webhook receivers and feed clients in another process, in Rust, so that they are never the bottleneck.

They are the program in `benches/loopback`, which the first use builds.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]


def program() -> str:
    """The path of the program; raises CalledProcessError if it cannot be built."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "loopback"
    manifest = ROOT / "benches" / "loopback" / "Cargo.toml"
    command = ["cargo", "build", "--quiet", "--release", "--manifest-path", str(manifest), "--target-dir", str(target)]
    subprocess.run(command, cwd=ROOT, check=True)
    return str(target / "release" / "latchboard-loopback")


@dataclass(frozen=True)
class Receivers:
    urls: list[str]
    process: psutil.Process

    def worked_s(self) -> float:
        spent = self.process.cpu_times()
        return float(spent.user + spent.system)


@contextlib.contextmanager
def receivers(*pauses_s: float, core: int | None = None) -> Iterator[Receivers]:
    """One URL for each pause before the response. `core`: the only processor that they may use."""
    pauses = [str(round(pause_s * 1000)) for pause_s in pauses_s]
    process = subprocess.Popen([program(), "receive", *pauses], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        ports = json.loads(process.stdout.readline())
        if core is not None:
            os.sched_setaffinity(process.pid, {core})
        yield Receivers([f"http://127.0.0.1:{port}/hook" for port in ports], psutil.Process(process.pid))
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(10)


def by_thread() -> dict[str, float]:
    """Processor seconds of this process by thread; unnamed threads other than the event loop belong to SQLite."""
    spent: dict[str, float] = {}
    for thread in psutil.Process().threads():
        with contextlib.suppress(OSError):
            name = Path(f"/proc/self/task/{thread.id}/comm").read_text(encoding="utf-8").strip()
            name = "event loop" if thread.id == os.getpid() else "database" if name.startswith("python") else name
            spent[name] = spent.get(name, 0.0) + thread.user_time + thread.system_time
    return spent


class Stopwatch:
    """The time, this process's processor time, and that of its threads since the stopwatch was created."""

    def __init__(self) -> None:
        self._threads = by_thread()
        self._worked = time.process_time()
        self._began = time.perf_counter()

    def read(self) -> tuple[float, float, dict[str, float]]:
        wall_s, worked_s = time.perf_counter() - self._began, time.process_time() - self._worked
        return wall_s, worked_s, {name: spent - self._threads.get(name, 0.0) for name, spent in by_thread().items()}
