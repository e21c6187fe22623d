"""The real program as a process of its own, on free ports and a data directory of its own; killed and started at will."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[2]
EMAIL = "owner@example.com"
PASSWORD = "correct horse battery"
READY_WITHIN_S = 30.0
ENDS_WITHIN_S = 10.0


def free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for each in held:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def program(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "app", *arguments]


def environment(**settings: Any) -> dict[str, str]:
    """This process's own without any LATCHBOARD_ variable, and the given settings."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LATCHBOARD_")}
    chosen = {f"LATCHBOARD_{name.upper()}": str(value) for name, value in settings.items()}
    return {**clean, **chosen, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}


def run(folder: Path, *arguments: str, within_s: float = 30.0, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Run a command of the program to its end, in `folder`."""
    return subprocess.run(
        program(*arguments), cwd=folder, env=environment(**settings), capture_output=True, text=True, timeout=within_s, check=False
    )


class Service:
    """`start` waits for `/readyz`; `kill` is SIGKILL; `stop` is SIGTERM and gives the exit code."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.http_port, self.mqtt_port, self.ws_port = free_ports(3)
        self.settings: dict[str, Any] = {
            "data_dir": folder / "data",
            "http_port": self.http_port,
            "mqtt_port": self.mqtt_port,
            "mqtt_ws_port": self.ws_port,
            "mqtt_public_host": "127.0.0.1",
            "owner_email": EMAIL,
            "owner_password": PASSWORD,
            "webhook_allow_private": "true",
            "log_format": "json",
            **settings,
        }
        self.log = folder / "service.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def feed_url(self) -> str:
        return f"ws://127.0.0.1:{self.http_port}/api/v1/ws"

    def start(self, command: str = "serve") -> Service:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                program(command), cwd=self.folder, env=environment(**self.settings), stdout=log, stderr=log
            )
        deadline = time.monotonic() + READY_WITHIN_S
        while not self.ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the service did not become ready:\n{self.said()}")
            time.sleep(0.05)
        return self

    def ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(ENDS_WITHIN_S)

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """The exit code, and the seconds it took."""
        assert self._process is not None
        began = time.monotonic()
        self._process.send_signal(number)
        code = self._process.wait(ENDS_WITHIN_S)
        return code, time.monotonic() - began

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            if self._process is not None and self._process.poll() is None:
                self.stop()
        self.kill()

    def said(self) -> str:
        return self.log.read_text(errors="replace")
