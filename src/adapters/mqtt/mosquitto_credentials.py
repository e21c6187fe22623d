"""Stores the credentials and topic rights of devices for Mosquitto: a password file, an ACL file, and a signal after a change.

One ACL serves all devices and never changes: `%u` stands for the login. It lists what devices of any profile may publish, so
topics to devices are closed, because they are not listed; a list per profile would need a rule per device. Changes are written
together: each caller waits for the one write and signal that contains its change.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import logging
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from domain.devices.broker_auth import DEVICE_PUBLISH_TOPICS
from domain.kernel.errors import Unavailable

log = logging.getLogger(__name__)

# As mosquitto_passwd writes it. The password has 190 bits, so more rounds would protect nothing.
_PBKDF2_ROUNDS = 101
_SALT_BYTES = 12
# Long enough to collect a burst of changes, too short to be noticed.
_WRITE_DELAY_S = 0.05


@dataclass(frozen=True, slots=True)
class MosquittoFilePaths:
    """The files Mosquitto is configured with; `pid_file` names the process to signal, as `pid_file` in its configuration."""

    password_file: Path
    acl_file: Path
    pid_file: Path


def password_line(username: str, password: str, salt: bytes) -> str:
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _PBKDF2_ROUNDS)
    return f"{username}:$7${_PBKDF2_ROUNDS}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def acl_text(service_user: str) -> str:
    writes = "\n".join(f"pattern write devices/%u/{topic}" for topic in DEVICE_PUBLISH_TOPICS)
    return f"user {service_user}\ntopic readwrite devices/#\ntopic read $SYS/broker/#\n\npattern read devices/%u/#\n{writes}\n"


class MosquittoCredentialStore:
    """Writes the two files and signals Mosquitto. Before `start`, changes are only collected, so that a fleet is one write."""

    def __init__(self, files: MosquittoFilePaths, service_user: str, service_password: str) -> None:
        self._files = files
        self._service_user = service_user
        self._lines = {service_user: self._password_line(service_user, service_password)}
        self._passwords: dict[str, str] = {}
        self._started = False
        self._write_task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises Unavailable when a file cannot be written. A Mosquitto that does not run yet reads the files when it starts."""
        self._started = True
        await asyncio.to_thread(self._replace_files)
        try:
            await asyncio.to_thread(self._signal)
        except Unavailable as error:
            log.error("%s", error.message)

    async def upsert_credentials(self, device_id: str, password: str) -> bool:
        """True when this replaces another password, and so disconnects the device.

        Raises Unavailable when a file cannot be written."""
        current = self._passwords.get(device_id)
        if current == password:
            return False
        self._passwords[device_id] = password
        self._lines[device_id] = self._password_line(device_id, password)
        await self._wait_for_write()
        return current is not None

    async def delete_credentials(self, device_id: str) -> bool:
        if self._passwords.pop(device_id, None) is None:
            return False
        del self._lines[device_id]
        await self._wait_for_write()
        return True

    async def _wait_for_write(self) -> None:
        if not self._started:
            return
        if self._write_task is None:
            self._write_task = asyncio.create_task(self._write_after_delay())
        # Shielded: the cancellation of one waiter must not cancel the write for the others.
        await asyncio.shield(self._write_task)

    async def _write_after_delay(self) -> None:
        await asyncio.sleep(_WRITE_DELAY_S)
        self._write_task = None
        await asyncio.to_thread(self._write_files)

    def _password_line(self, username: str, password: str) -> str:
        return password_line(username, password, os.urandom(_SALT_BYTES))

    def _write_files(self) -> None:
        self._replace_files()
        self._signal()

    def _replace_files(self) -> None:
        try:
            _replace_file(self._files.acl_file, acl_text(self._service_user))
            _replace_file(self._files.password_file, "\n".join(list(self._lines.values())) + "\n")
        except OSError as error:
            raise Unavailable(
                f"Mosquitto's credentials cannot be changed: {error}. Check its password and ACL files, and that this "
                "process may write them."
            ) from error

    def _signal(self) -> None:
        try:
            os.kill(int(self._files.pid_file.read_text(encoding="ascii")), signal.SIGHUP)
        except (OSError, ValueError) as error:
            raise Unavailable(
                f"Mosquitto does not learn of changed credentials: {error}. Check that it runs, as the same user as this "
                "process, and its pid file."
            ) from error


def _replace_file(path: Path, text: str) -> None:
    """Replaces the file atomically and keeps its owner and mode, because Mosquitto reads it as its own user."""
    mode, owner = 0o640, None
    with contextlib.suppress(FileNotFoundError):
        current = path.stat()
        mode, owner = current.st_mode & 0o777, (current.st_uid, current.st_gid)
    temporary = path.with_name(path.name + ".new")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8") as file:
        file.write(text)
    if owner is not None:
        with contextlib.suppress(PermissionError):
            os.chown(temporary, *owner)
    temporary.replace(path)
