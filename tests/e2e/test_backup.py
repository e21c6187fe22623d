"""A backup of a running service is a data directory: a service on a copy has the data, opens the secrets and serves the devices."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from support.command_line import run_command
from support.device import create_device
from support.service import Service, environment


def latchboard(service: Service, *arguments: str, **settings: Any) -> tuple[int, str]:
    done = run_command(*arguments, folder=service.folder, env=environment(**service.settings | settings))
    return done.returncode, done.stdout


async def test_a_service_starts_on_a_backup_made_while_it_ran(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    with Service(tmp_path / "first") as service:
        async with service.api() as owner:
            pump = await create_device(owner)
            async with pump.online(service) as line:
                await line.report(temperature=21.5)
                code, output = latchboard(service, "backup", str(backup))
                await line.report(temperature=22.5)
            assert code == 0, output
            await owner.delete(pump.path)
    assert sorted(path.name for path in backup.iterdir()) == ["latchboard.db", "secret_keys"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in backup.iterdir()} == {0o600}
    assert stat.S_IMODE(backup.stat().st_mode) == 0o700

    second = Service(tmp_path / "second", **{name: value for name, value in service.settings.items() if name.endswith("PORT")})
    shutil.copytree(backup, second.data_dir)
    with second:
        async with second.api() as owner:
            [reading] = await owner.get(f"{pump.path}/telemetry")
            assert reading["value"] == 21.5
            async with pump.online(second) as line:
                assert await line.drain_commands(owner) == []


@pytest.mark.parametrize("reason", ["not empty", "no database", "PostgreSQL"])
def test_a_backup_that_is_not_possible_is_refused_with_the_reason(tmp_path: Path, reason: str) -> None:
    service = Service(tmp_path)
    service.folder.mkdir(exist_ok=True)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("mine")
    url = {"LATCHBOARD_DATABASE_URL": "postgresql+asyncpg://nobody@127.0.0.1:1/none"} if reason == "PostgreSQL" else {}
    if reason == "not empty":
        service.data_dir.mkdir()
        (service.data_dir / "latchboard.db").touch()
    code, output = latchboard(service, "backup", str(tmp_path / "full"), **url)
    assert (code, "Traceback" in output) == (1, False)
    assert {"not empty": "is not empty", "no database": "There is no database", "PostgreSQL": "pg_dump"}[reason] in output
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["notes"]
