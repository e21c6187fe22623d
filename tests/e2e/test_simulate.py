"""`latchboard simulate` beside a running service, as somebody at a terminal uses it."""

from __future__ import annotations

import re
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.device import register
from support.effort import effort, in_a_thorough_run
from support.service import EMAIL, PASSWORD, Api, Service, environment, program

PATIENCE = 60.0


class Run:
    """One run of the simulator, with what it said."""

    def __init__(self, service: Service, *arguments: str, **settings: Any) -> None:
        self.process = subprocess.Popen(
            [*program(), "simulate", "--url", service.url, *arguments],
            cwd=service.folder,
            env=environment(**settings) | {"LATCHBOARD_PASSWORD": PASSWORD},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def ended(self, code: int = 0) -> str:
        try:
            said, _ = self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        assert self.process.returncode == code, said
        return said


@pytest.fixture
def run(service: Service) -> Iterator[Any]:
    runs: list[Run] = []

    def start(*arguments: str, **settings: Any) -> Run:
        runs.append(Run(service, *arguments, **settings))
        return runs[-1]

    yield start
    for each in runs:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait(10)


def number(said: str, pattern: str) -> int:
    found = re.search(pattern, said)
    assert found is not None, f"{pattern} is not in:\n{said}"
    return int(found[1].replace(",", ""))


async def test_a_fleet_registers_reports_obeys_and_sums_up(service: Service, owner: Api, run: Any) -> None:
    said = run(
        "--email", EMAIL, "--devices", "6", "--rate", "60", "--seconds", "6", "--commands", "10", "--faults", "duplicate=100%"
    ).ended()

    assert "playing 6 native devices" in said
    assert number(said, r"connected +([\d,]+) at most") == 6
    assert number(said, r"acknowledged +([\d,]+),") > 100
    assert number(said, r"outcomes +([\d,]+) DONE") > 10
    assert number(said, r"faults +duplicate ([\d,]+)") > 10
    mine = [each for each in await owner.get("/devices") if each["name"].startswith("Simulated native ")]
    assert len(mine) == 6
    stored = await owner.get(f"/devices/{mine[0]['deviceId']}/telemetry?metric=temperature&limit=1000")
    assert len(stored) > 15
    executions = (await owner.get(f"/devices/{mine[0]['deviceId']}/executions"))["data"]
    done = [each["status"] for each in reversed(executions)]
    while done[-1] in ("QUEUED", "SENT"):  # given in the moment in which the fleet left
        done.pop()
    assert set(done) == {"DONE"}


async def test_the_second_run_plays_the_devices_of_the_first_and_remove_deletes_them(owner: Api, run: Any) -> None:
    async def mine() -> set[str]:
        return {each["deviceId"] for each in await owner.get("/devices") if each["name"].startswith("Simulated shelly ")}

    short = ("--email", EMAIL, "--profile", "shelly", "--devices", "3", "--seconds", "1")
    run(*short).ended()
    first = await mine()
    run(*short).ended()
    assert await mine() == first
    assert len(first) == 3
    run(*short, "--remove").ended()
    assert await mine() == set()


@pytest.mark.parametrize("profile", effort(["tasmota"], ["tasmota", "esphome", "shelly"]))
async def test_a_stock_firmware_is_played_in_its_own_words(owner: Api, run: Any, profile: str) -> None:
    said = run(
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
    ).ended()

    assert number(said, r"outcomes +([\d,]+) DONE") > 4
    device = next(each for each in await owner.get("/devices") if each["name"] == f"Simulated {profile} 1")
    seen = await owner.get(f"/devices/{device['deviceId']}")
    assert (seen["profile"], seen["relayState"] is None) == (profile, False)
    latest = await owner.get(f"/devices/{device['deviceId']}/telemetry/latest")
    assert len(latest["telemetry"]) >= 3
    assert "latchboard_uplink_faults{" not in await metrics(owner)


async def metrics(owner: Api) -> str:
    answer = await owner.raw.get(str(owner.raw.base_url).replace("/api/v1/", "/metrics"))
    return answer.text


@in_a_thorough_run
async def test_silent_slow_and_late_devices_are_what_they_are(owner: Api, run: Any) -> None:
    plan = ("--email", EMAIL, "--devices", "12", "--rate", "12", "--commands", "6", "--seconds", "8")
    said = run(*plan, "--faults", "silent=50%,slow=50%:200ms,dirty=3s,reconnect=4s").ended()

    assert "0 failed" in said
    faults = said[said.index("faults") :]
    for name in ("silent", "slow", "dirty", "reconnect"):
        assert number(faults, rf"{name} ([\d,]+)") > 0
    assert number(said, r"([\d,]+) connects") > 12


async def test_a_single_device_is_played_over_websocket_with_the_operators_own_access(
    service: Service, owner: Api, run: Any
) -> None:
    device_id = await register(owner, "By hand")
    started = run(
        "--device", device_id, "--transport", "ws", "--mqtt-version", "5", "--rate", "5", LATCHBOARD_DATA_DIR=service.data_dir
    )
    await owner.until(f"/devices/{device_id}", lambda each: each["isOnline"])
    done = await owner.post(f"/devices/{device_id}/command", {"cmd": "ON", "waitSeconds": 10})
    started.process.send_signal(signal.SIGINT)
    said = started.ended()

    assert done["status"] == "DONE"
    assert "(ws, MQTT 5)" in said
    assert number(said, r"commands +([\d,]+) came") == 1


async def test_logins_written_once_play_without_the_api(service: Service, run: Any, tmp_path: Path) -> None:
    file = tmp_path / "logins"
    run("--email", EMAIL, "--devices", "2", "--seconds", "0.5", "--write-logins", str(file)).ended()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

    at = f"127.0.0.1:{service.mqtt_port}"
    said = run("--url", "http://127.0.0.1:9", "--logins", str(file), "--mqtt", at, "--rate", "20", "--seconds", "2").ended()

    assert number(said, r"connected +([\d,]+) at most") == 2
    assert number(said, r"acknowledged +([\d,]+),") > 10


@in_a_thorough_run
def test_what_cannot_be_played_is_said(run: Any, tmp_path: Path) -> None:
    wrong, empty = tmp_path / "wrong", tmp_path / "data"
    wrong.write_text("dev_x\n")
    assert "Check host, port" in run("--email", EMAIL, "--mqtt", "127.0.0.1:9").ended(1)
    assert "line 1 is not a device id" in run("--logins", str(wrong), "--mqtt", "127.0.0.1").ended(1)
    assert "where the broker is" in run("--logins", str(_logins(tmp_path))).ended(1)
    assert "no data directory" in run(LATCHBOARD_DATA_DIR=empty).ended(1)
    assert "INVALID_CREDENTIALS" in run("--email", "nobody@example.com").ended(1)
    assert "no fault" in run("--faults", "silly=1").ended(2)


def _logins(folder: Path) -> Path:
    file = folder / "right"
    file.write_text(f"dev_{'a' * 20} {'p' * 32}\n")
    return file
