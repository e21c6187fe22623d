"""A backup made beside a running service is a data directory: what it held is there, its secrets open, and its devices come
back."""

from __future__ import annotations

import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.device import a_device
from support.service import Service, environment, program

PATIENCE_S = 60


def latchboard(service: Service, *arguments: str, **settings: Any) -> tuple[int, str]:
    ended = subprocess.run(
        [*program(), *arguments],
        cwd=service.folder,
        env=environment(**service.settings | settings),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return ended.returncode, ended.stdout + ended.stderr


async def test_a_service_is_restored_from_a_backup_that_was_made_while_it_ran(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    with Service(tmp_path / "first") as service:
        async with service.api() as owner:
            pump = await a_device(owner)
            async with pump.online(service) as line:
                await line.report(temperature=21.5)
                code, said = latchboard(service, "backup", str(backup))
                await line.report(temperature=22.5)
            assert code == 0, said
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
                assert await line.settled(owner) == []


@pytest.mark.parametrize("why", ["not empty", "no database", "PostgreSQL"])
def test_what_cannot_be_backed_up_is_said(tmp_path: Path, why: str) -> None:
    service = Service(tmp_path)
    service.folder.mkdir(exist_ok=True)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("mine")
    url = {"LATCHBOARD_DATABASE_URL": "postgresql+asyncpg://nobody@127.0.0.1:1/none"} if why == "PostgreSQL" else {}
    if why == "not empty":
        service.data_dir.mkdir()
        (service.data_dir / "latchboard.db").touch()
    code, said = latchboard(service, "backup", str(tmp_path / "full"), **url)
    assert (code, "Traceback" in said) == (1, False)
    assert {"not empty": "is not empty", "no database": "There is no database", "PostgreSQL": "pg_dump"}[why] in said
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["notes"]
