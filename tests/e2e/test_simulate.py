"""`latchboard simulate` against a running service, as a user at a terminal runs it."""

from __future__ import annotations

import re
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.device import register_device
from support.service import EMAIL, PASSWORD, ApiClient, Service, environment, program_command
from support.thoroughness import thorough_run_only, usual_or_thorough
from support.waiting import TIMEOUT_S

pytestmark = pytest.mark.thorough


class SimulatorRun:
    """One run of the simulator; `output` waits for its end and returns what it printed."""

    def __init__(self, service: Service, *arguments: str, **settings: Any) -> None:
        self.process = subprocess.Popen(
            [*program_command(), "simulate", "--url", service.url, *arguments],
            cwd=service.folder,
            env=environment(**settings) | {"LATCHBOARD_PASSWORD": PASSWORD},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def output(self, code: int = 0) -> str:
        try:
            output, _ = self.process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        assert self.process.returncode == code, output
        return output


@pytest.fixture
def run(service: Service) -> Iterator[Any]:
    runs: list[SimulatorRun] = []

    def start(*arguments: str, **settings: Any) -> SimulatorRun:
        runs.append(SimulatorRun(service, *arguments, **settings))
        return runs[-1]

    yield start
    for each in runs:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait(TIMEOUT_S)


def number(output: str, pattern: str) -> int:
    found = re.search(pattern, output)
    assert found is not None, f"{pattern} is not in:\n{output}"
    return int(found[1].replace(",", ""))


async def test_a_fleet_registers_reports_carries_out_commands_and_prints_a_summary(
    service: Service, owner: ApiClient, run: Any
) -> None:
    output = run(
        "--email", EMAIL, "--devices", "6", "--rate", "60", "--seconds", "6", "--commands", "10", "--faults", "duplicate=100%"
    ).output()

    assert "simulating 6 native devices" in output
    assert number(output, r"connected +([\d,]+) at most") == 6
    assert number(output, r"acknowledged +([\d,]+),") > 100
    assert number(output, r"outcomes +([\d,]+) DONE") > 10
    assert number(output, r"faults +duplicate ([\d,]+)") > 10
    mine = [each for each in await owner.get("/devices") if each["name"].startswith("Simulated native ")]
    assert len(mine) == 6
    stored = await owner.get(f"/devices/{mine[0]['deviceId']}/telemetry?metric=temperature&limit=1000")
    assert len(stored) > 15
    executions = (await owner.get(f"/devices/{mine[0]['deviceId']}/executions"))["data"]
    done = [each["status"] for each in reversed(executions)]
    while done[-1] in ("QUEUED", "SENT"):  # sent in the moment in which the fleet stopped
        done.pop()
    assert set(done) == {"DONE"}


async def test_a_second_run_reuses_the_devices_of_the_first_and_remove_deletes_them(owner: ApiClient, run: Any) -> None:
    async def device_ids() -> set[str]:
        return {each["deviceId"] for each in await owner.get("/devices") if each["name"].startswith("Simulated shelly ")}

    short = ("--email", EMAIL, "--profile", "shelly", "--devices", "3", "--seconds", "1")
    run(*short).output()
    first = await device_ids()
    run(*short).output()
    assert await device_ids() == first
    assert len(first) == 3
    run(*short, "--remove").output()
    assert await device_ids() == set()


@pytest.mark.parametrize("profile", usual_or_thorough(["tasmota"], ["tasmota", "esphome", "shelly"]))
async def test_each_stock_firmware_profile_sends_telemetry_and_answers_commands(owner: ApiClient, run: Any, profile: str) -> None:
    output = run(
        "--email",
        EMAIL,
        "--profile",
        profile,
        "--devices",
        "2",
        "--rate",
        "40",
        "--seconds",
        "5",
        "--commands",
        "4",
        "--mqtt-version",
        "5",
    ).output()

    assert number(output, r"outcomes +([\d,]+) DONE") > 4
    device = next(each for each in await owner.get("/devices") if each["name"] == f"Simulated {profile} 1")
    seen = await owner.get(f"/devices/{device['deviceId']}")
    assert (seen["profile"], seen["relayState"] is None) == (profile, False)
    latest = await owner.get(f"/devices/{device['deviceId']}/telemetry/latest")
    assert len(latest["telemetry"]) >= 3
    assert "latchboard_ingest_faults_total{" not in await metrics(owner)


async def test_devices_have_the_channels_that_are_asked_for(service: Service, owner: ApiClient, run: Any) -> None:
    device_id = await register_device(owner, "Channels")
    path = f"/devices/{device_id}"
    channels = "RELAY:Pump,RELAY,COVER:Vent,CLIMATE,COLOR,INPUT:Door"
    async with service.feed(owner, f"?deviceId={device_id}") as feed:
        started = run("--email", EMAIL, "--device", device_id, "--channels", channels, "--press", "0.5")
        found = await owner.wait_until(path, lambda each: len(each["channels"]) == 6)
        assert [each["name"] for each in found["channels"]] == ["Pump", "Relay 2", "Vent", "Climate 4", "Color 5", "Door"]
        commands = (
            (2, "TOGGLE", None, "DONE"),
            (4, "SET_TARGET", {"celsius": 21.5}, "DONE"),
            (5, "SET_COLOR", {"color": "#00ff00", "level": 20}, "DONE"),
        )
        for channel, cmd, params, status in commands:
            body = {"cmd": cmd, "channel": channel, "params": params, "waitSeconds": 30}
            assert (await owner.post(f"{path}/command", body))["status"] == status
        opening = await owner.post(f"{path}/command", {"cmd": "OPEN", "channel": 3})
        stopped = await owner.post(f"{path}/command", {"cmd": "STOP", "channel": 3, "waitSeconds": 30})
        assert stopped["status"] == "DONE"
        ended = await owner.wait_until(f"{path}/executions/{opening['executionId']}", lambda one: one["finishedAt"] is not None)
        assert (ended["status"], ended["result"]["code"]) == ("FAILED", "INTERRUPTED")
        states = [each["state"] for each in (await owner.get(path))["channels"]]
        assert states[:2] == ["OFF", "ON"]
        assert states[3] == {"targetCelsius": 21.5, "mode": "HEAT"}
        assert states[4] == {"power": "ON", "level": 20, "color": "#00ff00", "kelvin": None}
        await feed.wait_for("input_changed", channel=6, action="DOUBLE")
        assert (await owner.get(path))["health"]["lastDrop"] is None
        started.process.send_signal(signal.SIGINT)
        started.output()
    assert "has one relay" in run("--email", EMAIL, "--profile", "tasmota", "--channels", "RELAY").output(2)


async def metrics(owner: ApiClient) -> str:
    answer = await owner.raw.get(str(owner.raw.base_url).replace("/api/v1/", "/metrics"))
    return answer.text


@thorough_run_only
async def test_every_injected_fault_is_counted(owner: ApiClient, run: Any) -> None:
    arguments = ("--email", EMAIL, "--devices", "12", "--rate", "12", "--commands", "6", "--seconds", "8")
    output = run(*arguments, "--faults", "silent=50%,slow=50%:200ms,dirty=3s,reconnect=4s").output()

    assert "0 failed" in output
    faults = output[output.index("faults") :]
    for name in ("silent", "slow", "dirty", "reconnect"):
        assert number(faults, rf"{name} ([\d,]+)") > 0
    assert number(output, r"([\d,]+) connects") > 12


async def test_an_existing_device_is_simulated_over_websocket_with_access_from_the_data_directory(
    service: Service, owner: ApiClient, run: Any
) -> None:
    device_id = await register_device(owner, "Existing")
    started = run(
        "--device", device_id, "--transport", "ws", "--mqtt-version", "5", "--rate", "5", LATCHBOARD_DATA_DIR=service.data_dir
    )
    await owner.wait_until(f"/devices/{device_id}", lambda each: each["isOnline"])
    done = await owner.post(f"/devices/{device_id}/command", {"cmd": "ON", "waitSeconds": 30})
    started.process.send_signal(signal.SIGINT)
    output = started.output()

    assert done["status"] == "DONE"
    assert "(ws, MQTT 5)" in output
    assert number(output, r"commands +([\d,]+) received") == 1


async def test_a_file_of_logins_is_enough_to_simulate_without_the_api(service: Service, run: Any, tmp_path: Path) -> None:
    file = tmp_path / "logins"
    run("--email", EMAIL, "--devices", "2", "--seconds", "0.5", "--write-logins", str(file)).output()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

    broker = f"127.0.0.1:{service.mqtt_port}"
    output = run(
        "--url", "http://127.0.0.1:9", "--logins", str(file), "--mqtt", broker, "--rate", "20", "--seconds", "2"
    ).output()

    assert number(output, r"connected +([\d,]+) at most") == 2
    assert number(output, r"acknowledged +([\d,]+),") > 10


@thorough_run_only
def test_each_failure_has_a_message_that_says_what_to_do(run: Any, tmp_path: Path) -> None:
    wrong, empty = tmp_path / "wrong", tmp_path / "data"
    wrong.write_text("dev_x\n")
    assert "Check host, port" in run("--email", EMAIL, "--mqtt", "127.0.0.1:9").output(1)
    assert "line 1 is not a device id" in run("--logins", str(wrong), "--mqtt", "127.0.0.1").output(1)
    assert "name the broker" in run("--logins", str(_logins(tmp_path))).output(1)
    assert "no data directory" in run(LATCHBOARD_DATA_DIR=empty).output(1)
    assert "INVALID_CREDENTIALS" in run("--email", "nobody@example.com").output(1)
    assert "not a fault" in run("--faults", "silly=1").output(2)


def _logins(folder: Path) -> Path:
    file = folder / "right"
    file.write_text(f"dev_{'a' * 20} {'p' * 32}\n")
    return file
