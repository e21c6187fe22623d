"""Moves the write-ahead log into the database file while the writer goes on.

By itself, SQLite does this in the commit that makes the log longer than 1,000 pages, and all who wait for that commit wait for
hundreds of scattered writes too. Here a thread with a connection of its own does it (a passive checkpoint). The log begins anew
only when it was moved as a whole, which may not happen while one commit follows the other. So at `MAX_LOG_PAGES` a commit still
moves the rest, which is little.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path

CHECKPOINT_BYTES = 16 * 2**20
"""By how much the log grows from one checkpoint to the next. With less, pages that change often are written more often; with
more, one checkpoint keeps the disk busy for longer."""
MAX_LOG_PAGES = 16_000
"""64 MiB."""


class WalCheckpointer:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = path.with_name(f"{path.name}-wal")
        self._moved_bytes = 0
        """The size of the log at the last checkpoint."""
        self._task: asyncio.Task[None] | None = None

    def on_commit(self) -> None:
        """Begin a checkpoint if the log has grown enough."""
        if self._task is not None and not self._task.done():
            return
        try:
            size = self._log.stat().st_size
        except OSError:
            return  # it is gone; the writer reports that
        if size < self._moved_bytes:
            self._moved_bytes = 0  # the log has begun anew, and its file was cut to `CHECKPOINT_BYTES`
        if size - self._moved_bytes > CHECKPOINT_BYTES:
            self._moved_bytes = size
            self._task = asyncio.create_task(asyncio.to_thread(_checkpoint, self._path), name="storage-checkpoint")

    async def stop(self, timeout_s: float) -> None:
        """Wait for the present checkpoint. One that takes longer does no harm: it moves only what is stored already."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=timeout_s)


def _checkpoint(path: Path) -> None:
    uri = f"{path.absolute().as_uri()}?mode=rw"
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(uri, uri=True, timeout=0)) as connection:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()  # if it fails, the commit that must do it reports why
