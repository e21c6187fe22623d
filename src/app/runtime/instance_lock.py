"""One service on one SQLite file. Two would both run its schedules, switch by its rules and post its webhooks.

The claim is a lock that the kernel holds for this process: it ends with it, however that ends. The file that stays means nothing;
the next service takes it over. Commands of the command line need no claim: they take turns with the service, write by write.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from app.runtime.errors import StartupError


class InstanceLock:
    """`database`: SQLite's file; None where the database itself arbitrates."""

    def __init__(self, database: Path | None) -> None:
        self._path = None if database is None else database.with_name(f"{database.name}.lock")
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Raises StartRefused while another service has it."""
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
                f"Another Latchboard (process {process}) runs on {self._path.with_suffix('')}. "
                "Stop it first, or give this one a database of its own with LATCHBOARD_DATA_DIR; several on one database take "
                "PostgreSQL."
            ) from None
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
