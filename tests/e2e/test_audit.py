"""The event log as proof, with the running program: exported, verified with and without our code, tampered with, killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.command_line import command_output
from support.device import create_device, register_device
from support.service import ApiClient, Service, environment
from support.waiting import TIMEOUT_S

FORMAT_PAGE = Path(__file__).resolve().parents[2] / "docs/reference/audit-format.md"


async def latchboard(service: Service, *arguments: str, **settings: Any) -> tuple[int, str]:
    """Exit code and output of a command beside the service."""
    return await command_output(*arguments, folder=service.folder, env=environment(**service.settings | settings))


async def sealed_export(service: Service, file: Path, *options: str) -> str:
    """Seals and exports; returns the public key."""
    assert (await latchboard(service, "audit", "seal"))[0] == 0
    code, output = await latchboard(service, "audit", "export", "-o", str(file), *options)
    assert code == 0, output
    code, output = await latchboard(service, "audit", "public-key")
    return output.split()[0]


async def verified(service: Service, file: Path, key: str, *options: str) -> str:
    code, output = await latchboard(service, "audit", "verify", str(file), "--public-key", key, *options)
    assert code == 0, output
    return output


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that the documentation gives to auditors."""
    [text] = re.findall(r"```python\n(.*?)```", FORMAT_PAGE.read_text(encoding="utf-8"), re.DOTALL)
    file = tmp_path_factory.mktemp("auditor") / "verify.py"
    file.write_text(text, encoding="utf-8")
    return file


def run_program(program: Path, file: Path, key: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(program), str(file), key]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=program.parent)


async def test_an_export_is_verified_offline_by_our_command_and_by_the_documented_program(
    service: Service, owner: ApiClient, tmp_path: Path, program: Path
) -> None:
    pump = await create_device(owner, "Pümpe 🚰")
    async with pump.online(service):
        await owner.post(f"{pump.path}/command", {"cmd": "ON", "waitSeconds": 30})
    file = tmp_path / "log.ndjson"
    key = await sealed_export(service, file)
    output = await verified(service, file, key)
    assert "the complete log" in output
    independent = run_program(program, file, key)
    assert independent.returncode == 0, independent.stderr
    assert independent.stdout.startswith("verified")
    seal = re.search(r"is (\d+:[0-9a-f]{64})", output)
    assert seal is not None
    await register_device(owner)
    again = tmp_path / "again.ndjson"
    await sealed_export(service, again)
    assert "VERIFIED" in await verified(service, again, key, "--expect-seal", seal[1])
    code, output = await latchboard(service, "audit", "verify", str(file), "--public-key", key, "--expect-seal", f"99:{'0' * 64}")
    assert (code, "seal 99 is missing" in output) == (1, True)


async def test_the_api_gives_owners_the_same_lines(service: Service, owner: ApiClient, tmp_path: Path) -> None:
    pump = await create_device(owner)
    file = tmp_path / "log.ndjson"
    await sealed_export(service, file)
    exported = file.read_text(encoding="utf-8").splitlines()
    async with httpx.AsyncClient(base_url=service.url, timeout=TIMEOUT_S) as client:
        path, headers = "/api/v1/events/export", owner.headers
        response = await client.get(path, headers=headers)
        assert response.headers["content-type"] == "application/x-ndjson"
        assert response.text.splitlines()[1 : len(exported) - 1] == exported[1:-1]
        for wrong in ("since=2026-01-01T00:00:00Z&commandId=exe_1", f"commandId={pump.device_id}", "afterSeal=x"):
            assert (await client.get(f"{path}?{wrong}", headers=headers)).status_code == 400
        for lost in ("commandId=exe_none", "afterSeal=9999"):
            assert (await client.get(f"{path}?{lost}", headers=headers)).status_code == 404


@pytest.mark.parametrize(
    "change", ["UPDATE events SET description = 'nothing' WHERE position = {}", "DELETE FROM events WHERE position = {}"]
)
async def test_who_changes_the_database_is_found_out(tmp_path: Path, program: Path, change: str) -> None:
    with Service(tmp_path / "service") as service:
        async with service.api() as owner:
            for _ in range(3):
                await register_device(owner)
        assert (await latchboard(service, "audit", "seal"))[0] == 0
        with contextlib.closing(sqlite3.connect(service.data_dir / "latchboard.db")) as database:
            [(position, name)] = database.execute(
                "SELECT position, event_id FROM events WHERE kind = 'device_registered' ORDER BY position LIMIT 1 OFFSET 1"
            ).fetchall()
            database.execute(change.format(position))
            database.commit()
        file = tmp_path / "log.ndjson"
        key = await sealed_export(service, file)
        code, output = await latchboard(service, "audit", "verify", str(file), "--public-key", key)
        assert (code, "NOT PROVEN" in output) == (1, True)
        assert (name if change.startswith("UPDATE") else "of writer 0 is missing before seal") in output
        assert run_program(program, file, key).returncode != 0


async def test_the_chain_holds_after_sigkill_in_the_middle_of_writing(tmp_path: Path, program: Path) -> None:
    with Service(tmp_path / "service") as service:
        async with service.api() as owner:
            for _ in range(3):

                async def register_on() -> None:
                    with contextlib.suppress(httpx.TransportError):
                        while True:
                            await register_device(owner)

                writing = [asyncio.create_task(register_on()) for _ in range(4)]
                for _ in range(10):
                    await register_device(owner)
                await latchboard(service, "audit", "seal")
                await service.kill_and_restart()
                await asyncio.gather(*writing)
        file = tmp_path / "log.ndjson"
        key = await sealed_export(service, file)
        await verified(service, file, key)
        assert run_program(program, file, key).returncode == 0
        records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        assert sum("record" in line for line in records) > 30


async def test_after_a_rotation_the_new_key_proves_the_old_part(tmp_path: Path, program: Path) -> None:
    with Service(tmp_path / "service") as service:
        async with service.api() as owner:
            await register_device(owner)
            file = tmp_path / "log.ndjson"
            old = await sealed_export(service, file)
            assert (await latchboard(service, "keys", "rotate"))[0] == 0
            await register_device(owner)
            new = await sealed_export(service, file.with_name("new.ndjson"))
        assert new != old
        await verified(service, file.with_name("new.ndjson"), new)
        assert run_program(program, file.with_name("new.ndjson"), new).returncode == 0
        code, output = await latchboard(service, "audit", "verify", str(file.with_name("new.ndjson")), "--public-key", old)
        assert (code, "a key you did not name" in output) == (1, True)


async def test_wrong_use_is_told(service: Service, tmp_path: Path) -> None:
    file = tmp_path / "there"
    file.write_text("mine")
    for arguments, code, message in (
        (("export", "-o", str(file)), 2, "exists"),
        (("export", "--since", "yesterday"), 1, "--since yesterday"),
        (("export", "--account", "acc_none"), 1, "no account acc_none"),
        (("verify", str(file), "--public-key", "12"), 2, "64 hexadecimal"),
        (("verify", str(file), "--public-key", "00" * 32), 1, "line 1 is no line of an audit export"),
        (("verify", str(tmp_path / "none"), "--public-key", "00" * 32), 2, "cannot be read"),
        (("verify", str(file), "--public-key", "00" * 32, "--expect-seal", "1"), 2, "a number and a hash"),
    ):
        found, output = await latchboard(service, "audit", *arguments)
        assert (found, message in output, "Traceback" in output) == (code, True, False), output
    assert file.read_text() == "mine"
