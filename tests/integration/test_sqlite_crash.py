"""kill -9 in the middle of group commits loses nothing that was acknowledged."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

from support.waiting import TIMEOUT_S

WRITER = """
import asyncio, os, sys
from adapters.storage.sql import SqlDatabase
from domain.sign_in.model import LoginFailures

async def produce(uow, round, worker):
    number = 0
    while True:
        subject = f"{round}-{worker}-{number}"
        async with uow.write() as tx:
            await tx.login_failures.upsert(LoginFailures(subject, 1, 1, 1))
        os.write(1, (subject + "\\n").encode())
        number += 1

async def main():
    database = SqlDatabase(sys.argv[1])
    await database.start()
    await asyncio.gather(*[produce(database.uow, sys.argv[2], worker) for worker in range(32)])

asyncio.run(main())
"""


def _run_and_kill(url: str, round_: int, after: int) -> set[str]:
    """Start the writer, kill it without warning after `after` acknowledgements; what it acknowledged."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, url, str(round_)], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        acknowledged = [process.stdout.readline() for _ in range(after)]
        process.send_signal(signal.SIGKILL)
        acknowledged += process.stdout.readlines()
        process.wait(timeout=TIMEOUT_S)
    return {line.rstrip("\n") for line in acknowledged if line.endswith("\n")}


def test_nothing_acknowledged_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "latchboard.db"
    acknowledged: set[str] = set()
    for round_, after in enumerate((1, 150, 700)):
        acknowledged |= _run_and_kill(f"sqlite+aiosqlite:///{path}", round_, after)
    with sqlite3.connect(path) as connection:
        stored = {row[0] for row in connection.execute("SELECT subject FROM login_failures")}
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    assert len(acknowledged) > 850
    assert acknowledged <= stored
