"""ESPHome itself accepts the block that the service gives for it. It has many dependencies, so it lives in an environment of its own:
`LATCHBOARD_ESPHOME` names its program."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from domain.devices.firmware_config import BrokerEndpoint, FirmwareConfigFormat, FirmwareConfigValues, render_config

PROGRAM = os.environ.get("LATCHBOARD_ESPHOME")
DEVICE = "dev_s247fcqf8bwd2y4ut8m7"
BOARDS = {"esp32": "esp32:\n  board: esp32dev\n  framework:\n    type: esp-idf\n", "esp8266": "esp8266:\n  board: d1_mini\n"}

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="set LATCHBOARD_ESPHOME to the program `esphome` (PyPI)")


@pytest.mark.parametrize("chip", BOARDS)
@pytest.mark.parametrize(("name", "host"), [("Pump", "192.168.1.10"), ('"}\n#: !include x\n🚰 \\', "mqtt.example.com")])
def test_esphome_accepts_the_block_and_warns_of_nothing(tmp_path: Path, chip: str, name: str, host: str) -> None:
    values = FirmwareConfigValues(DEVICE, name, BrokerEndpoint(host, 1883, 8083))
    block = render_config(FirmwareConfigFormat.ESPHOME, values)
    board = f'esphome:\n  name: pump\n{BOARDS[chip]}wifi:\n  ssid: "home"\n  password: "12345678"\n'
    (tmp_path / "pump.yaml").write_text(board + block, encoding="utf-8")
    checked = subprocess.run(
        [str(PROGRAM), "config", "--show-secrets", "pump.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "WARNING" not in checked.stdout + checked.stderr
    understood = yaml.safe_load(checked.stdout)
    mqtt, [switch] = understood["mqtt"], understood["switch"]
    assert (mqtt["broker"], mqtt["port"], mqtt["client_id"], mqtt["username"]) == (host, 1883, DEVICE, DEVICE)
    assert (mqtt["topic_prefix"], mqtt["discovery"]) == (f"devices/{DEVICE}", False)
    for message, word in (("birth_message", "online"), ("will_message", "offline")):
        assert (mqtt[message]["topic"], mqtt[message]["payload"], mqtt[message]["retain"]) == (
            f"devices/{DEVICE}/status",
            word,
            True,
        )
    assert (switch["name"], switch["restore_mode"]) == ("relay", "ALWAYS_OFF")
