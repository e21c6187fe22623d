"""Allows one service per SQLite file. Two services would both fire its schedules, apply its rules and send its webhooks.

The operating system holds the lock for this process and releases it when the process ends in any way. The lock file stays and
means nothing by itself. Commands of the command line need no lock: SQLite serializes their writes with those of the service.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from app.runtime.startup_errors import StartupError


class InstanceLock:
    """`database`: the SQLite file; None for PostgreSQL, which elects the leader itself."""

    def __init__(self, database: Path | None) -> None:
        self._path = None if database is None else database.with_name(f"{database.name}.lock")
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Raises StartupError while another service holds the lock."""
        if self._path is None or self._descriptor is not None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StartupError(
                f"{self._path} cannot be written: {error.strerror}. Give the service's user write access to that directory, "
                "or set LATCHBOARD_DATA_DIR to another one."
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            process = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise StartupError(
                f"Another Latchboard service (process {process}) uses {self._path.with_suffix('')}. "
                "Stop it first, or set LATCHBOARD_DATA_DIR to another directory. Several services need PostgreSQL."
            ) from None
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def is_held(self) -> bool:
        """Whether a running service holds the lock. Creates no file."""
        if self._path is None or not self._path.exists():
            return False
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
