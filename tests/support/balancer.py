"""HAProxy with the configuration of `deploy/cluster`, before instances on the loopback."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.service import Service
from support.waiting import TIMEOUT_S

BINARY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
REQUIRED = "LATCHBOARD_REQUIRE_HAPROXY"
CONFIG = Path(__file__).resolve().parents[2] / "deploy" / "cluster" / "haproxy.cfg"
_PORTS = {1883: "LATCHBOARD_MQTT_PORT", 8083: "LATCHBOARD_MQTT_WS_PORT", 8080: "LATCHBOARD_HTTP_PORT"}
"""The ports in the configuration, and the setting that names them."""


def require_haproxy() -> None:
    if BINARY is None and not os.environ.get(REQUIRED):
        pytest.skip(f"haproxy is not installed; set {REQUIRED}=1 to make this a failure")
    assert BINARY is not None, f"haproxy is not installed and {REQUIRED} is set; `make apt` installs it"


class Balancer:
    def __init__(self, folder: Path, ports: dict[str, int], instances: Sequence[Service]) -> None:
        """`ports`: where it listens, by setting. A server of the configuration that has no instance is left out."""
        folder.mkdir(parents=True, exist_ok=True)
        self.config = folder / "haproxy.cfg"
        self.config.write_text(_with_addresses(CONFIG.read_text(encoding="utf-8"), ports, instances), encoding="utf-8")
        self._log_file = folder / "haproxy.log"
        self._process: subprocess.Popen[bytes] | None = None

    def check(self) -> str:
        """What HAProxy says of the configuration. Raises CalledProcessError if it refuses it."""
        assert BINARY is not None
        checked = subprocess.run([BINARY, "-c", "-f", self.config], check=True, capture_output=True, text=True, timeout=TIMEOUT_S)
        return checked.stdout + checked.stderr

    def start(self) -> None:
        assert BINARY is not None
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen([BINARY, "-db", "-f", self.config], stdout=log, stderr=log)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(TIMEOUT_S)


def _with_addresses(config: str, ports: dict[str, int], instances: Sequence[Service]) -> str:
    def listener(line: re.Match[str]) -> str:
        return f"bind 127.0.0.1:{ports[_PORTS[int(line[1])]]}"

    def server(line: re.Match[str]) -> str:
        number, port = int(line[1]) - 1, int(line[2])
        if number >= len(instances):
            return ""
        settings = instances[number].settings
        health = settings[_PORTS[8080]]
        return f"    server latchboard-{number + 1} 127.0.0.1:{settings[_PORTS[port]]} port {health}\n"

    config = re.sub(r"bind :(\d+)$", listener, config, flags=re.MULTILINE)
    return re.sub(r"^    server \S+ latchboard-(\d):(\d+) .*\n", server, config, flags=re.MULTILINE)
