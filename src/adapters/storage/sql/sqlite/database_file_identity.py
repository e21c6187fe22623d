"""Whether the open database file and its write-ahead log are still the files at their paths.

A process that has a file open can go on writing to it after the file was deleted or replaced, and every commit succeeds. The
data is gone when the process ends. So each commit compares device and inode of the paths with those of the start.
"""

from __future__ import annotations

import os
from pathlib import Path

from domain.kernel.errors import Unavailable

FileIdentity = tuple[int, int]
"""st_dev and st_ino."""


class DatabaseFileIdentityCheck:
    def __init__(self, database: Path) -> None:
        """Call this right after the database was opened."""
        self._database = database
        self._write_ahead_log = database.with_name(f"{database.name}-wal")
        self._identities: dict[Path, FileIdentity] = {}
        self.remember()

    def remember(self) -> None:
        """Remember the identity of each file that was not there before: SQLite creates the write-ahead log when it needs it."""
        for path in (self._database, self._write_ahead_log):
            if path not in self._identities and (identity := _read_identity(path)) is not None:
                self._identities[path] = identity

    def check(self) -> None:
        """Raises Unavailable if a file was deleted, moved or replaced."""
        for path, identity in self._identities.items():
            found = _read_identity(path)
            if found != identity:
                reason = "is gone" if found is None else "was replaced by another file"
                raise Unavailable(
                    f"The database file {path} {reason} while the service runs, so nothing is saved. "
                    "Stop the service, put the data directory back or restore a backup, and start again."
                )


def _read_identity(path: Path) -> FileIdentity | None:
    try:
        found = os.stat(path)  # runs four times per commit, and Path.stat costs twice as much
    except OSError:
        return None
    return found.st_dev, found.st_ino
