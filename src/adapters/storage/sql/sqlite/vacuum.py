"""Gives the space of deleted rows back to the file system.

SQLite keeps the pages of deleted rows for new ones. A database with incremental vacuum can be made shorter in small steps while
the service runs. One that another program has written anew, such as from a dump, needs one VACUUM, which writes the whole file.

Each step is a transaction of a connection of its own: Python's driver ends `PRAGMA incremental_vacuum` after its first page,
except in a script, and a script would commit what the service's writer has open.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from domain.kernel.errors import Unavailable

INCREMENTAL = 2
"""The value of `PRAGMA auto_vacuum`."""
PAGES_PER_STEP = 256
"""1 MiB; the writer waits some milliseconds for it."""
KEPT_SHARE, MIN_KEPT_PAGES = 16, 1_024
"""A sixteenth of the file, and at least 4 MiB, stays for new rows, so that the file does not shrink and grow by turns."""
BUSY_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class DatabasePageUsage:
    """In pages of `page_size` bytes. `is_incremental`: it can be given back in steps."""

    page_size: int
    pages: int
    free_pages: int
    is_incremental: bool

    @property
    def free_bytes(self) -> int:
        return self.free_pages * self.page_size

    @property
    def pages_to_release(self) -> int:
        return max(0, self.free_pages - max(MIN_KEPT_PAGES, self.pages // KEPT_SHARE))


def read_space(path: Path) -> DatabasePageUsage:
    """Raises Unavailable."""
    with _opened(path) as connection:
        return _read(connection)


def release_step(path: Path) -> int:
    """Release a bounded number of unused pages. Returns how many; 0 when there is nothing to do. Raises Unavailable."""
    with _opened(path) as connection:
        before = _read(connection)
        wanted = min(PAGES_PER_STEP, before.pages_to_release)
        if not before.is_incremental or wanted == 0:
            return 0
        connection.executescript(f"PRAGMA incremental_vacuum({wanted})")
        return before.free_pages - _read(connection).free_pages


def vacuum(path: Path) -> None:
    """Write the whole file anew, with incremental vacuum from now on. Nothing else may use it. Raises Unavailable."""
    with _opened(path) as connection:
        needed = 2 * path.stat().st_size  # the new file in the write-ahead log, and a copy while it is written
        free = shutil.disk_usage(path.parent).free
        if free < needed:
            raise Unavailable(
                f"This needs {needed / 2**20:,.0f} MiB of free disk space in {path.parent} for a while, and "
                f"{free / 2**20:,.0f} MiB are free. Free some, or copy the data directory to a larger disk first."
            )
        connection.execute(f"PRAGMA temp_store_directory = '{str(path.parent).replace(chr(39), chr(39) * 2)}'")
        connection.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}")
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _read(connection: sqlite3.Connection) -> DatabasePageUsage:
    names = ("page_size", "page_count", "freelist_count", "auto_vacuum")
    page_size, pages, free_pages, mode = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
    return DatabasePageUsage(page_size, pages, free_pages, mode == INCREMENTAL)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as connection:
            yield connection
    except (sqlite3.Error, OSError) as error:
        raise Unavailable(f"The space of {path} cannot be given back now: {error}. Try again later.") from error
