"""A service that had data does not start empty without a message; a first start works, also after an interrupted one."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from app.runtime.start import MARKER_FILE
from support.device import create_device
from support.service import Service


def lose(database: Path, loss: str) -> None:
    if loss == "missing":
        database.unlink()
    elif loss == "empty":
        database.write_bytes(b"")
    elif loss == "without a schema":
        database.unlink()
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA user_version = 1")
    else:
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.executescript("DELETE FROM accounts; DELETE FROM users")


@pytest.mark.parametrize("loss", ["missing", "empty", "without a schema", "without accounts"])
async def test_a_lost_database_beside_its_keys_is_refused_with_both_ways_on(tmp_path: Path, loss: str) -> None:
    with Service(tmp_path) as service:
        async with service.api() as owner:
            pump = await create_device(owner)
        service.stop()
        assert not (service.data_dir / MARKER_FILE).exists()
        shutil.copytree(service.data_dir, tmp_path / "backup")
        database, keys = service.data_dir / "latchboard.db", service.data_dir / "secret_keys"
        lose(database, loss)
        for _ in range(2):
            code, output = service.expect_start_failure()
            assert (code, "Traceback" in output) == (1, False), output
            assert all(words in output for words in (str(keys), "restore a backup", "move")), output
        assert service.launch("doctor").wait(60) == (0 if loss.startswith("without") else 1)

        shutil.rmtree(service.data_dir)
        shutil.copytree(tmp_path / "backup", service.data_dir)
        service.start()
        async with service.api() as owner:
            assert [device["deviceId"] for device in await owner.get("/devices")] == [pump.device_id]
        service.stop()

        lose(database, loss)
        keys.rename(tmp_path / "old_keys")
        service.start()
        async with service.api() as owner:
            await service.sign_in_again(owner)
            assert await owner.get("/devices") == []


def test_a_write_ahead_log_without_its_database_is_refused_and_kept(tmp_path: Path) -> None:
    with Service(tmp_path) as service:
        service.kill()
        log = service.data_dir / "latchboard.db-wal"
        before = log.stat().st_size
        (service.data_dir / "latchboard.db").write_bytes(b"")
        code, output = service.expect_start_failure()
        assert (code, str(log) in output) == (1, True), output
        assert log.stat().st_size == before > 0


def test_an_interrupted_first_start_goes_on(tmp_path: Path) -> None:
    """The keys are created before the database; a process may end between the two."""
    with Service(tmp_path) as service:
        service.stop()
        for path in service.data_dir.glob("latchboard.db*"):
            path.unlink()
        (service.data_dir / MARKER_FILE).touch()
        service.start()
        assert not (service.data_dir / MARKER_FILE).exists()
