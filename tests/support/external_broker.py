"""A Mosquitto that may be stopped and killed, with the configuration that `latchboard broker-config mosquitto` writes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adapters.mqtt.mosquitto import MosquittoFilePaths, mosquitto_config
from support.mosquitto import BINARY
from support.ports import free_ports
from support.waiting import OPERATION_TIMEOUT_S, TIMEOUT_S

PASSWORD = "s" * 32


class ExternalBroker:
    def __init__(self, folder: Path, *, change: Mapping[str, str] | None = None) -> None:
        """`change`: other values for some of its options. At `service_port` a login may have several client ids."""
        assert BINARY is not None, "Mosquitto is not installed; `make apt` installs it"
        folder.mkdir()
        self._folder = folder
        self.port, self.service_port = free_ports(2)
        self.files = files = MosquittoFilePaths(folder / "passwords", folder / "acl", folder / "mosquitto.pid")
        user = "root" if os.geteuid() == 0 else None
        text = mosquitto_config(files, data_dir=folder, listeners=[f"{self.port} 127.0.0.1"], user=user)
        text += f"\nlistener {self.service_port} 127.0.0.1\n"
        self._config = folder / "mosquitto.conf"
        for name, value in (change or {}).items():
            text = re.sub(rf"^{name} .*$", f"{name} {value}", text, flags=re.MULTILINE)
        self._config.write_text(text, encoding="utf-8")
        for path in (files.password_file, files.acl_file):
            path.write_text("", encoding="utf-8")
            path.chmod(0o600)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "LATCHBOARD_BROKER": f"mqtt://latchboard:{PASSWORD}@127.0.0.1:{self.port}",
            "LATCHBOARD_MQTT_PORT": self.port,
            "LATCHBOARD_MOSQUITTO_PASSWORD_FILE": self.files.password_file,
            "LATCHBOARD_MOSQUITTO_ACL_FILE": self.files.acl_file,
            "LATCHBOARD_MOSQUITTO_PID_FILE": self.files.pid_file,
        }

    def start(self) -> None:
        assert BINARY is not None
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen([BINARY, "-c", str(self._config)], stdout=log, stderr=log)
        deadline = time.monotonic() + TIMEOUT_S
        while not self._is_ready():
            assert self._process.poll() is None, (self._folder / "log").read_text(errors="replace")[-2_000:]
            assert time.monotonic() < deadline, "Mosquitto does not answer"
            time.sleep(0.02)

    def end(self, with_signal: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(with_signal)
        self._process.wait(TIMEOUT_S)

    def remove(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.end(signal.SIGKILL)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _is_ready(self) -> bool:
        """Until it answers a CONNECT: it opens its ports before it can bear the signal that follows a change of its files."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=OPERATION_TIMEOUT_S) as probe:
                probe.sendall(b"\x10\x0f\x00\x04MQTT\x04\x02\x00\x0a\x00\x03abc")
                return bool(probe.recv(1)) and self.files.pid_file.exists()
        except OSError:
            return False
