"""ESPHome itself accepts the file that the service gives for it. It has many dependencies, so it lives in an environment of its own:
`LATCHBOARD_ESPHOME` names its program."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from adapters.firmware_sources import ExampleFirmwareSourceReader
from domain.devices.firmware import BrokerEndpoint, FirmwareConfigFormat, FirmwareConfigValues, build_project

PROGRAM = os.environ.get("LATCHBOARD_ESPHOME")
DEVICE = "dev_s247fcqf8bwd2y4ut8m7"
ESP32 = re.compile(r"^esp32:.*\n  board: esp32dev\n  framework:\n    type: esp-idf\n", re.MULTILINE)
BOARDS = {"esp32": None, "esp8266": "esp8266:\n  board: d1_mini\n"}

pytestmark = [
    pytest.mark.esphome,
    pytest.mark.skipif(PROGRAM is None, reason="set LATCHBOARD_ESPHOME to the program `esphome` (PyPI)"),
]


@pytest.mark.parametrize("chip", BOARDS)
@pytest.mark.parametrize(("name", "host"), [("Pump", "192.168.1.10"), ('"}\n#: !include x\n🚰 \\', "mqtt.example.com")])
def test_esphome_accepts_the_file_and_warns_of_nothing(tmp_path: Path, chip: str, name: str, host: str) -> None:
    values = FirmwareConfigValues(DEVICE, name, BrokerEndpoint(host, 1883, 8083), ota_password="of this device")
    [file] = build_project(FirmwareConfigFormat.ESPHOME, values, ExampleFirmwareSourceReader()).files
    whole = file.content if (board := BOARDS[chip]) is None else ESP32.sub(board, file.content)
    (tmp_path / "pump.yaml").write_text(whole, encoding="utf-8")
    checked = subprocess.run(
        [str(PROGRAM), "config", "--show-secrets", "pump.yaml"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "WARNING" not in checked.stdout + checked.stderr
    understood = yaml.safe_load(checked.stdout.replace("!lambda", ""))
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
    timeouts = [understood[part]["reboot_timeout"] for part in ("mqtt", "wifi")]
    assert timeouts == ["0s", "0s"], "a restart switches the relay off"
    [update] = understood["ota"]
    assert update["password"] == "of this device"
    topics = [asked["topic"] for asked in mqtt["on_message"]]
    assert topics == [f"devices/{DEVICE}/ask/{name}/command" for name in ("relay", "switch")]


SEVERAL = """
  - {platform: gpio, name: "pump", pin: GPIO5}

output:
  - {platform: ledc, id: lamp_output, pin: GPIO18}

light:
  - {platform: monochromatic, name: "lamp", output: lamp_output}

fan:
  - {platform: speed, name: "ceiling", output: lamp_output}

cover:
  - platform: template
    name: "blind"
    optimistic: true
    has_position: true
"""


def test_esphome_accepts_the_file_with_further_channels(tmp_path: Path) -> None:
    """Those of which the commented lines speak."""
    values = FirmwareConfigValues(DEVICE, "Board", BrokerEndpoint("192.168.1.10", 1883, 8083), ota_password="of this device")
    [file] = build_project(FirmwareConfigFormat.ESPHOME, values, ExampleFirmwareSourceReader()).files
    (tmp_path / "board.yaml").write_text(file.content.rstrip("\n") + SEVERAL, encoding="utf-8")
    checked = subprocess.run([str(PROGRAM), "config", "board.yaml"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    understood = yaml.safe_load(checked.stdout.replace("!lambda", ""))
    assert [switch["name"] for switch in understood["switch"]] == ["relay", "pump"]
