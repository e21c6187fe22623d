"""`latchboard keys` with a running service: sessions stay valid, every secret opens, and a kill loses nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from adapters.crypto.key_ring import KeyRing
from adapters.crypto.vault import sealing_key_id
from support.command_line import command_output
from support.device import create_device
from support.empty_database import empty_postgres
from support.service import PASSWORD, ApiClient, Service, environment, program_command
from support.thoroughness import thorough_run_only, usual_or_thorough
from support.transports import DATABASES

pytestmark = pytest.mark.thorough


async def run_keys(service: Service, *arguments: str) -> tuple[int, str]:
    return await command_output("keys", *arguments, folder=service.folder, env=environment(**service.settings))


def ring(service: Service) -> KeyRing:
    return KeyRing.parse((service.data_dir / "secret_keys").read_text())


async def reveal_password(api: ApiClient, device_id: str) -> str:
    answer = await api.post(f"/devices/{device_id}/credentials/reveal", {"password": PASSWORD})
    return str(answer["mqttPassword"])


def used_keys(service: Service) -> set[str]:
    with sqlite3.connect(service.data_dir / "latchboard.db") as database:
        rows = database.execute("SELECT sealed FROM credentials").fetchall()
    return {sealing_key_id(sealed) for (sealed,) in rows}


@pytest.fixture(params=DATABASES)
async def database(request: pytest.FixtureRequest) -> dict[str, str]:
    return {} if request.param == "sqlite" else {"LATCHBOARD_DATABASE_URL": await empty_postgres()}


async def test_keys_rotate_while_the_service_runs(tmp_path: Path, database: dict[str, str]) -> None:
    with Service(tmp_path, **database) as service:
        async with service.api() as owner:
            pump = await create_device(owner)
            before = ring(service)
            code, output = await run_keys(service, "rotate")
            assert code == 0, output
            assert "2 of 2 secrets were sealed again" in output  # the device's password, and the key of Web Push
            after = ring(service)
            assert after.keys[1:] == before.keys
            assert (service.data_dir / "secret_keys").stat().st_mode & 0o077 == 0

            # The old token is valid, secrets open, new tokens and new secrets use the new key, and devices connect.
            assert (await owner.get("/auth/me"))["role"] == "Owner"
            assert await reveal_password(owner, pump.device_id) == pump.credentials["mqttPassword"]
            async with pump.online(service) as line:
                await line.report(temperature=20)
            other = await create_device(owner, "After")
            code, output = await run_keys(service, "list")
            assert code == 0
            assert [after.newest.key_id, "3", "newest"] in [line.split() for line in output.splitlines()]

            code, output = await run_keys(service, "retire")
            assert code == 1
            assert "more hours" in output
            assert ring(service) == after

            os.utime(service.data_dir / "secret_keys", (time.time() - 26 * 3600,) * 2)
            code, output = await run_keys(service, "retire")
            assert (code, ring(service).keys) == (0, after.keys[:1]), output
            assert (await owner.get("/auth/me"))["role"] == "Owner"
            service.restart()
            service._token = None
        async with service.api() as owner:
            assert await reveal_password(owner, pump.device_id) == pump.credentials["mqttPassword"]
            assert await reveal_password(owner, other.device_id) == other.credentials["mqttPassword"]
        assert not service.error_lines()


async def test_the_next_rotation_finishes_a_killed_one(tmp_path: Path) -> None:
    with Service(tmp_path) as service:
        async with service.api() as owner:
            pumps = [await create_device(owner, f"Pump {number}") for number in range(3)]
            before = ring(service)
            # The new key is in the file and nothing is sealed with it yet: the earliest point at which a kill can leave the rotation.
            fresh = before.with_new_key()
            staged = service.data_dir / "secret_keys.new"
            staged.write_text(fresh.to_text() + "\n")
            staged.chmod(0o600)
            staged.replace(service.data_dir / "secret_keys")
            code, output = await run_keys(service, "rotate")
            assert code == 0
            assert "Finished an earlier rotation" in output
            assert ring(service) == fresh
            assert used_keys(service) == {fresh.newest.key_id}
            for pump in pumps:
                assert await reveal_password(owner, pump.device_id) == pump.credentials["mqttPassword"]


@thorough_run_only
async def test_a_kill_at_any_moment_loses_no_secret(tmp_path: Path) -> None:
    with Service(tmp_path) as service:
        async with service.api() as owner:
            pump = await create_device(owner)
            for delay_s in usual_or_thorough((0.5, 0.8), (0.3, 0.5, 0.6, 0.7, 0.9)):
                process = await asyncio.create_subprocess_exec(
                    *program_command(),
                    "keys",
                    "rotate",
                    env=environment(**service.settings),
                    cwd=service.folder,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                await asyncio.sleep(delay_s)
                if process.returncode is None:
                    process.send_signal(signal.SIGKILL)
                await process.wait()
                assert await reveal_password(owner, pump.device_id) == pump.credentials["mqttPassword"]
            assert (await run_keys(service, "rotate"))[0] == 0
            assert await reveal_password(owner, pump.device_id) == pump.credentials["mqttPassword"]


@thorough_run_only
async def test_a_key_ring_in_the_environment_is_refused_with_instructions(tmp_path: Path) -> None:
    old = KeyRing.generate()
    with Service(tmp_path, LATCHBOARD_SECRET_KEYS=old.to_text().replace("\n", ",")) as service:
        async with service.api() as owner:
            pump = await create_device(owner)
        code, output = await run_keys(service, "rotate")
        assert code == 1
        assert "--no-new-key" in output.replace("\n", "")
        new = old.with_new_key()
        service.stop()
        service.settings["LATCHBOARD_SECRET_KEYS"] = new.to_text().replace("\n", ",")
        service.start()
        assert (await run_keys(service, "rotate", "--no-new-key"))[0] == 0
        assert used_keys(service) == {new.newest.key_id}
        async with service.api() as owner:
            assert await reveal_password(owner, pump.device_id) == pump.credentials["mqttPassword"]
