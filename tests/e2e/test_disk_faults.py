"""The disk is full, or the database file vanishes: nothing is acknowledged that is not stored, and `/readyz` says why."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiomqtt
import httpx
import pytest

from support.device import Device, DeviceConnection, cancel_tasks, create_device
from support.service import ApiClient, Service
from support.waiting import TIMEOUT_S

MIB = 1024 * 1024
DISK_MIB = 64


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount the small file system that this test fills")
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"a tmpfs cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


async def readiness(service: Service) -> tuple[int, dict[str, Any]]:
    async with httpx.AsyncClient(timeout=TIMEOUT_S) as raw:
        answer = await raw.get(f"{service.url}/readyz")
        return answer.status_code, answer.json()


async def wait_for_readiness(service: Service, status: int, part: str = "") -> dict[str, Any]:
    """Poll until `/readyz` has this status and names `part`; each check is at most a second old."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            found, body = await readiness(service)
            if found == status and part in str(body):
                return body
            await asyncio.sleep(0.2)


def device_body(name: str) -> dict[str, str]:
    return {"name": name, "boardType": "esp32", "appType": "other"}


def fill(path: Path, *, leave_bytes: int = 0) -> None:
    """Write into `path` until only `leave_bytes` are free."""
    with contextlib.suppress(OSError), path.open("ab", buffering=0) as file:
        while True:
            usage = os.statvfs(path)
            missing = usage.f_bavail * usage.f_frsize - leave_bytes
            if missing <= 0:
                return
            file.write(b"\0" * min(missing, MIB))


async def count_up(line: DeviceConnection, acknowledged: list[int]) -> None:
    with contextlib.suppress(aiomqtt.MqttError):
        for number in range(10**6):
            payload = b'{"count":%d}' % number
            await line.client.publish(line.device.topic("telemetry"), payload, qos=1, timeout=60)
            acknowledged.append(number)
            await asyncio.sleep(0.002)


async def stored(owner: ApiClient, device: Device) -> set[int]:
    text = (await owner.send("GET", f"{device.path}/telemetry/export?format=csv&metric=count")).text
    return {int(float(row.split(",")[1])) for row in text.splitlines()[1:]}


async def test_a_full_disk_stops_acknowledgements_and_readiness_until_space_is_free(tmp_path: Path, small_disk: Path) -> None:
    ballast, acknowledged = small_disk / "ballast", list[int]()
    with Service(tmp_path, LATCHBOARD_DATA_DIR=small_disk / "data", LATCHBOARD_INGEST_LIMIT=0) as service:
        async with service.api() as owner:
            assert await readiness(service) == (200, {"status": "ready"})
            meter = await create_device(owner)
            async with meter.online(service) as line:
                counting = asyncio.create_task(count_up(line, acknowledged))
                async with asyncio.timeout(TIMEOUT_S):
                    while len(acknowledged) < 20:
                        await asyncio.sleep(0.05)
                fill(ballast)
                body = await wait_for_readiness(service, 503, "database")
                assert "disk" in body["warnings"]
                await asyncio.sleep(1.0)
                count = len(acknowledged)
                for _ in range(5):
                    await asyncio.sleep(0.7)
                    assert (await readiness(service))[0] == 503, "a part of the disk was enough for the probe, not for telemetry"
                assert len(acknowledged) <= count + 1, "a message was acknowledged that is not stored, beside the one on its way"
                refused = await owner.send("POST", "/devices/register", device_body("Too many"))
                assert (refused.status_code, (await owner.send("GET", "/devices")).status_code) == (503, 200)
                ballast.unlink()
                assert await wait_for_readiness(service, 200) == {"status": "ready"}
                async with asyncio.timeout(TIMEOUT_S):
                    while len(acknowledged) < count + 20:
                        await asyncio.sleep(0.05)
                await cancel_tasks(counting)
            assert set(acknowledged) <= await stored(owner, meter)
            service.kill()
            service.start()
            assert set(acknowledged) <= await stored(owner, meter)
            assert [device["name"] for device in await owner.get("/devices")].count("Too many") == 0


async def test_little_free_space_is_a_warning_in_readiness_metrics_doctor_and_log(tmp_path: Path, small_disk: Path) -> None:
    with Service(tmp_path, LATCHBOARD_DATA_DIR=small_disk / "data") as service:
        fill(small_disk / "ballast", leave_bytes=3 * MIB)
        body = await wait_for_readiness(service, 200, "warnings")
        assert "warning below 3 MiB" in body["warnings"]["disk"]
        async with httpx.AsyncClient(timeout=TIMEOUT_S) as raw:
            page = (await raw.get(f"{service.url}/metrics")).text
        [free] = [float(row.split()[1]) for row in page.splitlines() if row.startswith("latchboard_disk_free_bytes ")]
        assert 0 < free <= 3 * MIB
        doctor = service.launch("doctor")
        assert doctor.wait(TIMEOUT_S) == 0, "a warning is no failure"
        assert "are free on the file system" in service.log()
        async with asyncio.timeout(TIMEOUT_S):
            while "little disk space is free" not in service.log():
                await asyncio.sleep(0.2)
        (small_disk / "ballast").unlink()
        async with asyncio.timeout(TIMEOUT_S):
            while "enough disk space is free again" not in service.log():
                await asyncio.sleep(0.2)
        assert await readiness(service) == (200, {"status": "ready"})


@pytest.mark.parametrize("loss", ["directory", "database file", "write-ahead log", "replaced"])
async def test_a_vanished_database_refuses_every_write_and_names_the_reason(tmp_path: Path, loss: str) -> None:
    with Service(tmp_path) as service:
        async with service.api() as owner:
            meter = await create_device(owner)
            async with meter.online(service) as line:
                await line.report(temperature=21.5)
                lose(service.data_dir, loss)
                for number in range(3):
                    refused = await owner.send("POST", "/devices/register", device_body(f"Pump {number}"))
                    assert refused.status_code == 503, refused.text
                body = await wait_for_readiness(service, 503, "database")
                assert "latchboard.db" in body["troubles"]["database"]
                with pytest.raises(aiomqtt.MqttError):
                    payload = b'{"temperature":22.5}'
                    await line.client.publish(meter.topic("telemetry"), payload, qos=1, timeout=3)
        assert service.is_running


async def test_a_data_directory_that_comes_back_is_used_again(tmp_path: Path) -> None:
    with Service(tmp_path) as service:
        async with service.api() as owner:
            away = service.data_dir.rename(tmp_path / "away")
            await wait_for_readiness(service, 503, "database")
            away.rename(service.data_dir)
            await wait_for_readiness(service, 200)
            await create_device(owner)


def lose(data_dir: Path, loss: str) -> None:
    database = data_dir / "latchboard.db"
    if loss == "directory":
        shutil.rmtree(data_dir)
    elif loss == "database file":
        database.unlink()
    elif loss == "write-ahead log":
        (data_dir / "latchboard.db-wal").unlink()
    else:
        shutil.copy(database, data_dir / "copy")
        (data_dir / "copy").replace(database)
