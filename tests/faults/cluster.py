"""A PostgreSQL cluster of a campaign's own, durable (fsync on), that may be stopped, killed and restarted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from support import postgres

COMMAND_TIMEOUT_S = 60
QUERY_TIMEOUT_S = 20.0


class Cluster(postgres.Cluster):
    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="latchboard-faults-pg-"))
        super().__init__(folder)
        self.create()

    @property
    def database_url(self) -> str:
        return self.url("postgres")

    def start(self, *settings: str) -> None:
        deadline = time.monotonic() + COMMAND_TIMEOUT_S
        while True:
            try:
                return super().start(*settings)
            except subprocess.CalledProcessError:  # a child of the killed server may still hold its shared memory
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)

    def stop(self, mode: str = "immediate") -> None:
        """Immediate: no checkpoint, connections are cut, the next start recovers from the log."""
        super().stop(mode)

    def kill(self) -> None:
        """SIGKILL of the server's first process. Returns when the others have noticed and ended: before that none can start."""
        first, *others = self._pids()
        os.kill(first, signal.SIGKILL)
        deadline = time.monotonic() + COMMAND_TIMEOUT_S
        while any(map(_is_running, others)) and time.monotonic() < deadline:
            time.sleep(0.05)
        pid_file = self._folder / "data" / "postmaster.pid"
        pid_file.unlink(missing_ok=True)

    def pause(self) -> None:
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_all(signal.SIGCONT)

    def remove(self) -> None:
        try:
            with contextlib.suppress(subprocess.CalledProcessError):  # it is stopped already
                self.stop()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def dump(self, path: Path) -> None:
        """Write the database to a file of SQL statements."""
        command = [
            str(self._binaries / "pg_dump"),
            "-h",
            "127.0.0.1",
            "-p",
            str(self._port),
            "-U",
            "postgres",
            "-f",
            str(path),
            "postgres",
        ]
        subprocess.run(command, check=True, timeout=COMMAND_TIMEOUT_S, stdout=subprocess.DEVNULL)

    async def execute(self, sql: str) -> Any:
        import asyncpg

        connection = await asyncpg.connect(self.database_url.replace("+asyncpg", ""), timeout=QUERY_TIMEOUT_S)
        try:
            return await connection.fetch(sql)
        finally:
            await connection.close()

    async def terminate_busy_backends(self, limit: int) -> int:
        """End up to `limit` of the service's connections, busy ones first; how many ended."""
        rows = await self.execute(
            "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
            f"AND backend_type = 'client backend' ORDER BY state = 'idle', random() LIMIT {limit}) chosen"
        )
        return len(rows)

    async def lock_table(self, table: str, seconds: float) -> None:
        import asyncpg

        connection = await asyncpg.connect(self.database_url.replace("+asyncpg", ""), timeout=QUERY_TIMEOUT_S)
        try:
            async with connection.transaction():
                await connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
                await asyncio.sleep(seconds)
        finally:
            await connection.close()

    def _pids(self) -> list[int]:
        """The server's first process, then its children."""
        first = int((self._folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(first)], capture_output=True, text=True, check=False)
        return [first, *map(int, listed.stdout.split())]

    def _signal_all(self, number: signal.Signals) -> None:
        for pid in self._pids():
            os.kill(pid, number)


def _is_running(pid: int) -> bool:
    """False for one that has ended, also if nobody has asked for its exit code."""
    listed = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return listed.stdout.strip()[:1] not in ("", "Z")
