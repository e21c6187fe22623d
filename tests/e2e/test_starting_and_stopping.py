"""A start that fails says what is wrong and what to do, without a traceback. A stop finishes the requests in flight."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sqlite3
from pathlib import Path

import aiomqtt
import httpx
import pytest

from support.device import DeviceConnection, cancel_tasks, create_device
from support.service import PASSWORD, PORT_SETTINGS, ApiClient, Service
from support.startup_code import write_startup_code
from support.waiting import TIMEOUT_S
from support.webhook_receiver import never_respond, webhook_receiver


def assert_refused(service: Service, code: int, *words: str) -> None:
    got, output = service.expect_start_failure()
    assert (got, "Traceback" in output) == (code, False), output
    for word in words:
        assert word in output


@pytest.mark.parametrize("variable", PORT_SETTINGS)
def test_a_port_in_use_is_reported_with_its_variable(tmp_path: Path, variable: str) -> None:
    service = Service(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", service.settings[variable]))
        taken.listen()
        assert_refused(service, 1, str(service.settings[variable]), variable)


def test_every_wrong_setting_is_reported_with_its_value(tmp_path: Path) -> None:
    wrong = {
        "LATCHBOARD_HTTP_PORT": "eighty",
        "LATCHBOARD_MQTT_PORT": "70000",
        "LATCHBOARD_ENGINE": "quantum",
        "LATCHBOARD_BROKER": "carrier pigeon",
        "LATCHBOARD_LOG_LEVEL": "LOUD",
        "LATCHBOARD_WEBHOOK_ALLOW_PRIVATE": "perhaps",
    }
    assert_refused(Service(tmp_path, **wrong), 2, *wrong.keys(), *wrong.values())


def test_settings_that_belong_together_are_required_together(tmp_path: Path) -> None:
    service = Service(tmp_path)
    del service.settings["LATCHBOARD_OWNER_PASSWORD"]
    assert_refused(service, 2, "LATCHBOARD_OWNER_EMAIL", "LATCHBOARD_OWNER_PASSWORD")


def test_an_unusable_data_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file, not a directory")
    assert_refused(Service(tmp_path), 1, str(tmp_path / "data"), "LATCHBOARD_DATA_DIR")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_data_directory_without_write_access_is_reported(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    service = Service(tmp_path, LATCHBOARD_DATA_DIR=tmp_path / "closed" / "data")
    assert_refused(service, 1, str(tmp_path / "closed"), "LATCHBOARD_DATA_DIR")


def test_a_database_of_a_newer_version_is_refused_and_unchanged(tmp_path: Path) -> None:
    service = Service(tmp_path)
    with service:
        service.stop()
    database = service.data_dir / "latchboard.db"
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = 'v9999'")
    assert_refused(service, 1, "v9999", "newer")
    with contextlib.closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == ("v9999",)


def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "latchboard.db").write_bytes(b"these are my holiday notes\n" * 400)
    service = Service(tmp_path)
    assert_refused(service, 1, "latchboard.db", "file is not a database", "backup")
    assert "SELECT" not in service.log()
    assert '"stopped"' not in service.log(), "a service that never started does not stop"


@pytest.mark.parametrize("engine", ["native", "reference"])
def test_a_missing_extension_is_reported_with_the_remedy(tmp_path: Path, engine: str) -> None:
    """Also with the reference engine: only the extension sends webhooks."""
    blocker = tmp_path / "blocker"
    write_startup_code(
        blocker,
        "import sys\n"
        "class Blocker:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'adapters.engine._native':\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Blocker())\n",
    )
    assert_refused(Service(tmp_path, blocker, LATCHBOARD_ENGINE=engine, LATCHBOARD_BROKER="mqtt://127.0.0.1:1"), 1, "make setup")


def test_a_worker_that_keeps_failing_ends_the_service_with_exit_code_1_and_its_name(tmp_path: Path) -> None:
    """A process manager can then restart the service; otherwise half a service would look healthy."""
    fault = tmp_path / "fault"
    write_startup_code(
        fault,
        "from app.runtime import supervisor\n"
        "from app.workers.retention import RetentionWorker\n"
        "from domain.kernel.backoff import Backoff\n"
        "async def run(self):\n"
        "    raise OSError('the disk is on fire')\n"
        "RetentionWorker.run = run\n"
        "supervisor.RESTART_BACKOFF = Backoff((0.01,))\n",
    )
    service = Service(tmp_path, fault)
    code, output = service.expect_start_failure()
    assert code == 1
    assert "retention: OSError: the disk is on fire" in output.splitlines()[-1]
    assert "stopped" in output  # a graceful stop writes what was acknowledged


def test_a_second_service_on_the_same_database_is_refused_while_the_first_runs(tmp_path: Path) -> None:
    second = Service(tmp_path / "second", LATCHBOARD_DATA_DIR=tmp_path / "first" / "data")
    with Service(tmp_path / "first") as first:
        assert first.process is not None
        assert_refused(second, 1, f"process {first.process.pid}", "latchboard.db", "LATCHBOARD_DATA_DIR")
        assert first.is_running
        first.kill()
        with second:
            assert_refused(first, 1, "Another Latchboard")


async def test_a_service_without_its_secret_keys_starts_and_lets_credentials_be_generated_again(tmp_path: Path) -> None:
    with Service(tmp_path) as service:
        async with service.api() as owner:
            pump, key = await create_device(owner), await owner.post("/keys", {"name": "Robot"}, expect=201)
        service.stop()
        (service.data_dir / "secret_keys").unlink()
        service.start()
        await service.wait_for_log("secret_keys was missing")
        async with service.api() as owner:
            await service.sign_in_again(owner)
            requested = await owner.post(f"{pump.path}/credentials/reveal", {"password": PASSWORD}, expect=503)
            assert requested["error"] == "SECRET_UNREADABLE"
            with pytest.raises(aiomqtt.MqttError):
                async with pump.client(service):
                    pass
            pump.credentials = await owner.post(f"{pump.path}/credentials", {"rotate": True})
            async with pump.online(service) as line:
                assert await line.drain_commands(owner) == []
        async with service.api(**{"X-Api-Key": key["key"]}) as robot:
            assert await robot.get("/devices") == []


async def report_numbers(line: DeviceConnection, acknowledged: list[int]) -> None:
    with contextlib.suppress(aiomqtt.MqttError):
        for number in range(1_000_000):
            await line.report(count=number)
            acknowledged.append(number)


async def poll_devices(service: Service, headers: dict[str, str]) -> None:
    async with httpx.AsyncClient(base_url=service.url, headers=headers, timeout=10) as raw:
        while service.is_running:
            with contextlib.suppress(httpx.TransportError):
                await raw.get("/api/v1/devices")


async def wait_for_result(owner: ApiClient, path: str) -> None:
    with contextlib.suppress(httpx.TransportError):
        await owner.send("POST", path, {"cmd": "ON", "waitSeconds": 30})


async def test_a_stop_under_load_ends_in_time_and_loses_no_acknowledged_message(tmp_path: Path) -> None:
    """Devices report, clients poll, one client waits for a result that never comes, a webhook receiver does not answer, and a feed
    is open."""
    with Service(tmp_path, LATCHBOARD_INGEST_LIMIT=0) as service:
        async with service.api() as owner, webhook_receiver(never_respond()) as receiver:
            meters = [await create_device(owner, f"Meter {number}") for number in range(3)]
            key = await owner.post("/keys", {"name": "Receiver"}, expect=201)
            whole = {"commands": ["*"], "apiKeyId": key["keyId"], "appliesVia": "project"}
            await owner.post(f"{meters[0].path}/grants", whole, expect=201)
            await owner.post("/webhooks", {"keyId": key["keyId"], "url": receiver.url}, expect=201)
            acknowledged: list[list[int]] = [[] for _ in meters]
            async with contextlib.AsyncExitStack() as stack:
                await stack.enter_async_context(service.feed(owner))
                lines = [await stack.enter_async_context(meter.online(service, auto_reply=False)) for meter in meters]
                load = [asyncio.create_task(report_numbers(*pair)) for pair in zip(lines, acknowledged, strict=True)]
                load += [asyncio.create_task(poll_devices(service, owner.headers)) for _ in range(4)]
                load.append(asyncio.create_task(wait_for_result(owner, f"{meters[0].path}/command")))
                await lines[0].next_command("ON")
                await receiver.wait_for(1)
                async with asyncio.timeout(TIMEOUT_S):
                    while min(map(len, acknowledged)) < 30:
                        await asyncio.sleep(0.01)

                stop_s = await asyncio.to_thread(service.stop)

                assert stop_s < 30, "the request that waits 30 s does not hold up the stop"
                await cancel_tasks(*load)
            await asyncio.to_thread(service.start)
            for meter, numbers in zip(meters, acknowledged, strict=True):
                newest = (await owner.get(f"{meter.path}/telemetry?metric=count&limit=1"))[0]["value"]
                assert newest >= numbers[-1]
                stored = await owner.get(f"{meter.path}/telemetry?metric=count&limit=1000")
                assert set(numbers[-900:]) <= {int(row["value"]) for row in stored}
    assert service.error_lines() == []
