"""A database of an older version becomes one of this version at the start: nothing is lost, a kill changes nothing, and of several
instances one does it.

`baseline/` holds the schema of 1.0, with which the chain begins; it does not change any more once 1.0 is released. While the chain
has few steps, the tests of upgrading itself add one of their own at its end.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, literal, select, text

from adapters.storage.sql import SqlDatabase, schema
from adapters.storage.sql.migrations import HEAD
from adapters.storage.sql.tables import database_life, write_probes
from support.empty_database import bare_postgres, sqlite_url
from support.storage import STORAGES
from support.stored_schema import definitions_of, engine_of
from support.table_rows import Rows, a_value, all_rows, stored_columns
from support.waiting import TIMEOUT_S

BASELINE = Path(__file__).with_name("baseline")
ROWS = 2
STEP = """\
op.add_column("accounts", sa.Column("colour", sa.Text(), nullable=False, server_default="none"))
    op.execute("UPDATE accounts SET colour = name")
    op.create_table("colours", sa.Column("colour", sa.Text(), primary_key=True))
    with Path({runs!r}).open("a") as runs:
        runs.write("x")
    if Path({kill!r}).exists():
        os.kill(os.getpid(), signal.SIGKILL)
    op.create_index("ix_accounts__colour", "accounts", ["colour"])
"""
START = """
import asyncio, sys
from pathlib import Path
from adapters.storage.sql import SqlDatabase, schema
schema.HEAD, schema.MIGRATIONS = sys.argv[2], Path(sys.argv[3])
async def main():
    database = SqlDatabase(sys.argv[1])
    await database.start()
    await database.stop()
asyncio.run(main())
"""


@pytest.fixture(params=[kind for kind in STORAGES if kind != "memory"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a database of 1.0 with rows in every table."""
    if request.param == "sqlite":
        with closing(sqlite3.connect(tmp_path / "latchboard.db")) as connection:
            connection.executescript(f"BEGIN; {(BASELINE / 'sqlite.sql').read_text()} COMMIT")
        url = sqlite_url(tmp_path / "latchboard.db")
    else:
        url = await bare_postgres()
        connection = await asyncpg.connect(url.replace("+asyncpg", ""))
        await connection.execute((BASELINE / "postgresql.sql").read_text())
        await connection.close()
    async with engine_of(url) as engine, engine.connect() as connection:
        await connection.run_sync(fill)
    return url


def fill(connection: Connection) -> None:
    for table, columns in stored_columns(connection):
        if connection.execute(select(literal(1)).select_from(table).limit(1)).first() is None:
            rows = [{column.name: a_value(table, column, row) for column in columns} for row in range(1, ROWS + 1)]
            connection.execute(table.insert(), rows)
    connection.commit()


async def rows_of(url: str) -> Rows:
    async with engine_of(url) as engine, engine.connect() as connection:
        found = await connection.run_sync(all_rows)
    return {name: rows for name, rows in found.items() if name != write_probes.name}  # each start writes it


async def start_and_stop(url: str) -> str | None:
    database = SqlDatabase(url)
    try:
        await database.start()
        return await database.revision()
    finally:
        await database.stop()


def of_then(rows: list[dict[str, Any]], before: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with the columns that they had before the upgrade."""
    return [{name: row[name] for name in old} for row, old in zip(rows, before, strict=True)]


async def test_a_filled_database_of_1_0_keeps_its_rows_and_gets_the_schema_of_a_new_one(url: str, tmp_path: Path) -> None:
    before = await rows_of(url)
    assert len(before) > 55
    assert all(len(rows) >= ROWS for name, rows in before.items() if name != database_life.name)  # one row, made with the schema

    assert await start_and_stop(url) == HEAD

    after = await rows_of(url)
    assert {name: of_then(after[name], rows) for name, rows in before.items()} == before
    upgraded = await definitions_of(url)
    new = sqlite_url(tmp_path / "new.db") if url.startswith("sqlite") else await bare_postgres()
    await start_and_stop(new)
    assert upgraded == await definitions_of(new), "after a change of the tables the chain needs its next step"


@dataclass(frozen=True)
class LongerChain:
    """The chain with one more step at its end, in a folder of its own."""

    folder: Path
    head: str
    runs: Path
    """A byte for each time that the step ran."""
    kill: Path
    """While it exists, the step kills its process in the middle."""

    def start_in_a_process(self, url: str) -> int:
        """Returns how the process ended."""
        command = [sys.executable, "-c", START, url, self.head, str(self.folder)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run(command, env=environment, timeout=TIMEOUT_S, check=False).returncode


@pytest.fixture
def longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LongerChain:
    """It is also the chain of this process."""
    chain = LongerChain(tmp_path / "migrations", f"v{int(HEAD[1:]) + 1:04d}", tmp_path / "runs", tmp_path / "kill")
    shutil.copytree(schema.MIGRATIONS, chain.folder)
    body = STEP.format(runs=str(chain.runs), kill=str(chain.kill))
    imports = "import os\nimport signal\nfrom pathlib import Path"
    ScriptDirectory(str(chain.folder)).generate_revision(chain.head, "One more step", head=HEAD, upgrades=body, imports=imports)
    monkeypatch.setattr(schema, "MIGRATIONS", chain.folder)
    monkeypatch.setattr(schema, "HEAD", chain.head)
    return chain


async def colours_of(url: str) -> list[tuple[str, str]]:
    async with engine_of(url) as engine, engine.connect() as connection:
        rows = await connection.execute(text("SELECT name, colour FROM accounts ORDER BY account_id"))
        return [(name, colour) for name, colour in rows]


async def test_a_step_runs_at_the_start_and_once(url: str, longer: LongerChain) -> None:
    before = await rows_of(url)
    assert await start_and_stop(url) == longer.head
    assert await start_and_stop(url) == longer.head
    assert longer.runs.read_text() == "x"
    assert await rows_of(url) == before
    assert [colour for _, colour in await colours_of(url)] == [account["name"] for account in before["accounts"]]
    assert "colours" in await definitions_of(url)


async def test_a_kill_in_the_middle_of_a_step_changes_nothing_and_the_next_start_runs_it_again(
    url: str, longer: LongerChain
) -> None:
    database = SqlDatabase(url)
    found, definitions, rows = await database.revision(), await definitions_of(url), await rows_of(url)
    longer.kill.touch()
    assert await asyncio.to_thread(longer.start_in_a_process, url) == -signal.SIGKILL
    assert (await database.revision(), await definitions_of(url), await rows_of(url)) == (found, definitions, rows)
    await database.stop()

    longer.kill.unlink()
    assert await start_and_stop(url) == longer.head
    assert longer.runs.read_text() == "xx"
    assert all(name == colour for name, colour in await colours_of(url))


async def test_instances_that_start_at_once_run_a_step_once(url: str, longer: LongerChain) -> None:
    in_other_processes = [asyncio.to_thread(longer.start_in_a_process, url) for _ in range(2)]
    found = await asyncio.gather(*in_other_processes, start_and_stop(url), start_and_stop(url))
    assert found == [0, 0, longer.head, longer.head]
    assert longer.runs.read_text() == "x"
