"""The add-on of Home Assistant: its files fit together, and its start script does what they say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.config.settings import Settings
from app.version import VERSION
from support.waiting import TIMEOUT_S

ADDON = Path(__file__).resolve().parents[2] / "deploy" / "homeassistant-addon"
CONFIG = yaml.safe_load((ADDON / "config.yaml").read_text(encoding="utf-8"))
REQUIRED = {"name", "version", "slug", "description", "arch"}
KNOWN = REQUIRED | {"startup", "boot", "init", "backup", "services", "ports", "webui", "watchdog", "options", "schema"}
"""Of the documented keys, those that we use."""


def test_the_configuration_has_known_keys_and_our_version() -> None:
    assert REQUIRED <= CONFIG.keys() <= KNOWN
    assert CONFIG["version"] == VERSION
    assert CONFIG["options"].keys() <= CONFIG["schema"].keys()


@pytest.mark.parametrize("language", ["en", "de"])
def test_every_option_and_port_is_explained(language: str) -> None:
    words = yaml.safe_load((ADDON / "translations" / f"{language}.yaml").read_text(encoding="utf-8"))
    assert words["configuration"].keys() == CONFIG["schema"].keys()
    assert words["network"].keys() == CONFIG["ports"].keys()
    assert all(each["name"] and each["description"] for each in words["configuration"].values())


def test_it_names_settings_that_exist_and_files_that_are_copied(tmp_path: Path) -> None:
    text = "".join(
        (ADDON / name).read_text(encoding="utf-8") for name in ("Dockerfile", "run.py", "translations/en.yaml", "DOCS.md")
    )
    used = {name.lower() for name in re.findall(r"\bLATCHBOARD_([A-Z_]+)", text)}
    assert used
    assert used <= set(Settings.model_fields)
    wheel = tmp_path / "latchboard-1.0.0-cp311-abi3-any.whl"
    wheel.touch()
    folder = tmp_path / "addon"
    subprocess.run([ADDON / "prepare.sh", wheel, folder], check=True, timeout=TIMEOUT_S)
    copied = re.findall(r"^COPY (.+) \S+$", (ADDON / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert all(list(folder.glob(pattern)) for line in copied for pattern in line.split())
    assert (folder / "translations" / "de.yaml").exists()


class Supervisor(BaseHTTPRequestHandler):
    answer: Any = None

    def do_GET(self) -> None:
        body = json.dumps({"result": "ok", "data": self.answer}).encode()
        is_ours = self.headers["Authorization"] == "Bearer token" and self.path == "/services/mqtt"
        self.send_response(200 if self.answer and is_ours else 400)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def supervisor() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Supervisor)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def folder() -> Iterator[Path]:
    """Others may enter it: the script gives up root before it starts the program."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


def start(folder: Path, supervisor: str, options: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Runs the start script with a program `latchboard` that shows its arguments and settings."""
    program = folder / "latchboard"
    program.write_text('#!/bin/sh\necho "$*"\nid -u\nenv | grep ^LATCHBOARD_ | sort\n')
    program.chmod(0o755)
    (folder / "options.json").write_text(json.dumps(options))
    given = {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "ADDON_OPTIONS": str(folder / "options.json"),
        "ADDON_SUPERVISOR": supervisor,
        "SUPERVISOR_TOKEN": "token",
        "LATCHBOARD_DATA_DIR": str(folder / "data"),
    }
    command = [sys.executable, str(ADDON / "run.py")]
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def test_options_become_settings_and_root_is_given_up(folder: Path, supervisor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = {"host": "core-mosquitto", "port": 1883, "ssl": False, "username": "addons", "password": "p@ss:/"}
    monkeypatch.setattr(Supervisor, "answer", broker)
    options = {
        "homeassistant_key": "sk_live_x",
        "public_url": "https://latch.example.com",
        "settings": [{"name": "LATCHBOARD_EVENTS_DAYS", "value": "30"}],
    }
    done = start(folder, supervisor, options)
    assert done.returncode == 0, done.stderr
    arguments, user, *settings = done.stdout.splitlines()
    assert arguments == "serve"
    assert user != "0"
    assert settings == [
        f"LATCHBOARD_DATA_DIR={folder}/data",
        "LATCHBOARD_EVENTS_DAYS=30",
        "LATCHBOARD_HOMEASSISTANT=mqtt://addons:p%40ss%3A%2F@core-mosquitto:1883",
        "LATCHBOARD_HOMEASSISTANT_KEY=sk_live_x",
        "LATCHBOARD_PUBLIC_URL=https://latch.example.com",
    ]


def test_it_starts_without_a_key_and_explains_a_missing_broker(folder: Path, supervisor: str) -> None:
    done = start(folder, supervisor, {"settings": []})
    assert done.stdout.splitlines()[2:] == [f"LATCHBOARD_DATA_DIR={folder}/data"]
    done = start(folder, supervisor, {"homeassistant_key": "sk_live_x", "settings": []})
    assert done.returncode == 1
    assert "Install the Mosquitto add-on" in done.stderr
