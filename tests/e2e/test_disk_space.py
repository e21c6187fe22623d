"""The space of deleted rows goes back to the file system: by the running service, and by `latchboard compact`."""

from __future__ import annotations

import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

from adapters.storage.sql.sqlite.vacuum import read_space, release_step
from support.command_line import run_command
from support.service import Service, environment

MIB = 1024 * 1024


def fill_and_delete(path: Path, megabytes: int = 24) -> None:
    """Leave so much unused space in the database, as an expired table does."""
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE ballast (content BLOB)")
        connection.executemany("INSERT INTO ballast VALUES (?)", [(bytes(MIB),)] * megabytes)
        connection.execute("DROP TABLE ballast")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def compact(service: Service) -> subprocess.CompletedProcess[str]:
    return run_command("compact", folder=service.folder, env=environment(**service.settings), is_merged=False)


def test_a_new_database_is_compacted_while_the_service_runs_and_a_foreign_copy_when_it_is_stopped(tmp_path: Path) -> None:
    with Service(tmp_path) as service:
        path = service.data_dir / "latchboard.db"
        assert read_space(path).is_incremental
        fill_and_delete(path)
        done = compact(service)
        assert "while the service runs" in done.stdout, done.stderr
        assert read_space(path).free_bytes < 6 * MIB
        service.stop()
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:  # as another program may write it
            connection.execute("PRAGMA auto_vacuum = NONE")
            connection.execute("VACUUM")
        fill_and_delete(path)
        assert path.stat().st_size > 24 * MIB
        service.start()
        refused = compact(service)
        assert (refused.returncode, release_step(path)) == (1, 0)
        assert "Stop it first" in refused.stderr
        service.stop()
        done = compact(service)
        assert "rewritten" in done.stdout, done.stderr
        assert path.stat().st_size < 4 * MIB
        assert read_space(path).is_incremental
        service.start()


def test_compact_says_what_it_cannot_do(tmp_path: Path) -> None:
    service = Service(tmp_path)
    missing = compact(service)
    assert (missing.returncode, "There is no database" in missing.stderr) == (1, True)
    service.settings["LATCHBOARD_DATABASE_URL"] = "postgresql+asyncpg://nobody@127.0.0.1:1/none"
    postgres = compact(service)
    assert (postgres.returncode, "VACUUM (FULL, ANALYZE)" in postgres.stderr) == (1, True)
