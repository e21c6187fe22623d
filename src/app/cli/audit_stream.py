"""`latchboard audit stream`: follows an account's log and sends it to a receiver, at least once."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import ssl
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from adapters.audit_sinks import HttpAuditSink, TcpSyslogAuditSink, UdpSyslogAuditSink
from adapters.clock import SystemClock
from adapters.randomness import random_spread
from app.cli.operator import choose_account, open_database
from app.cli.support import stderr_console
from app.config.settings import Settings
from app.runtime.start import StartupError
from domain.audit.stream import (
    AuditCursor,
    AuditRecordsLostError,
    AuditSink,
    AuditSinkRefusedError,
    AuditSinkUnavailableError,
    AuditStreamReader,
)
from domain.kernel.dataclasses import service
from domain.kernel.errors import Unavailable
from domain.kernel.ids import AccountId
from domain.webhooks.reference import standard_key

POLL_S: Final = 1.0
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
_PORTS = {"syslog+udp": 514, "syslog+tcp": 601, "syslog+tls": 6514}


async def stream_log(settings: Settings, sink: AuditSink, cursor_file: Path, account: str | None, *, once: bool) -> None:
    """Until SIGTERM or SIGINT; with `once`, until nothing is new. Raises StartupError, and what the database raises at first."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    with _exclusive_cursor_file(cursor_file):
        async with open_database(settings) as uow:
            account_id = await choose_account(uow, account)
            stored = AuditCursorFile(path=cursor_file, account_id=account_id)
            forwarder = _AuditLogForwarder(tail=AuditStreamReader(uow=uow), sink=sink, stored=stored, account_id=account_id)
            following = asyncio.create_task(forwarder.follow(once=once))
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait({following, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in (following, stopping):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following


@service
class AuditCursorFile:
    """Replaced as a whole, so that a crash leaves the old or the new one."""

    path: Path
    account_id: AccountId

    def read(self) -> AuditCursor:
        """Raises StartupError."""
        try:
            stored = json.loads(self.path.read_text(encoding="utf-8"))
            account_id, cursor = stored["account"], AuditCursor.from_json(stored)
        except FileNotFoundError:
            return AuditCursor()
        except (ValueError, KeyError, TypeError, AttributeError):
            raise StartupError(f"{self.path} is no cursor. Name another file, or delete it to send everything.") from None
        if account_id != self.account_id:
            raise StartupError(f"{self.path} is the cursor of account {account_id}. Use one file for each account and receiver.")
        return cursor

    def write(self, cursor: AuditCursor) -> None:
        new = self.path.with_name(f"{self.path.name}.new")
        with new.open("w", encoding="utf-8") as file:
            json.dump({"account": self.account_id, **cursor.to_json()}, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@service
class _AuditLogForwarder:
    """Holds one batch at a time; the database is the queue."""

    tail: AuditStreamReader
    sink: AuditSink
    stored: AuditCursorFile
    account_id: AccountId
    _failures: int = field(default=0, init=False)

    async def follow(self, *, once: bool) -> None:
        cursor = self.stored.read()
        while True:
            try:
                found = await self._deliver_next_batch(cursor)
            except (AuditSinkUnavailableError, Unavailable) as error:
                await self._pause(error)
                continue
            except AuditSinkRefusedError as error:
                raise StartupError(f"The stream has ended: {error}.") from error
            except AuditRecordsLostError as error:
                raise StartupError(
                    f"LOST: this database does not have the records {error}, which were sent: it is older than the cursor "
                    f"{self.stored.path} (restored, or a standby without the last changes). Nothing was sent. Keep what the "
                    "receiver has as the proof of that time, and name a new cursor file to send this log from its beginning."
                ) from error
            if found is not None:
                cursor = found
            elif once:
                return
            else:
                await asyncio.sleep(POLL_S)

    async def _deliver_next_batch(self, cursor: AuditCursor) -> AuditCursor | None:
        """Deliver the next batch; None if nothing is new."""
        batch = await self.tail.read(self.account_id, cursor)
        if not batch.lines:
            return None
        for lost in batch.lost:
            stderr_console().print(f"latchboard: LOST: retention deleted the records {lost} before they were sent.", markup=False)
        await self.sink.deliver(batch.lines)
        self.stored.write(batch.cursor)
        if self._failures:
            stderr_console().print(f"latchboard: delivered again after {self._failures} failures.", markup=False)
        self._failures = 0
        return batch.cursor

    async def _pause(self, error: Exception) -> None:
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._failures, 10)) * (1 + random_spread() / 5)
        self._failures += 1
        stderr_console().print(f"latchboard: not delivered: {error}. The next attempt is in {pause_s:.0f} s.", markup=False)
        await asyncio.sleep(pause_s)


def make_sink(target: str, secret: str | None, ca_file: Path | None) -> AuditSink:
    """Raises StartupError."""
    try:
        url = urlsplit(target)
        port = url.port
    except ValueError as error:
        raise StartupError(f"{target} is no URL: {error}.") from None
    if not url.hostname or url.scheme not in {*_PORTS, "http", "https"}:
        raise StartupError(
            "Give a receiver such as syslog+tls://logs.example.com:6514, syslog+tcp://…, syslog+udp://… or https://…."
        )
    if url.scheme in ("http", "https"):
        if secret is not None:
            standard_key(secret)
        return HttpAuditSink(url.geturl(), secret, _tls_context(ca_file), SystemClock())
    port = port or _PORTS[url.scheme]
    if secret is not None:
        raise StartupError("A secret signs batches over HTTP; syslog has no signature. Use syslog+tls to protect it.")
    if url.path.strip("/") or url.query:
        raise StartupError("A syslog receiver has a host and a port, and no path.")
    if url.scheme == "syslog+udp":
        return UdpSyslogAuditSink(url.hostname, port)
    return TcpSyslogAuditSink(url.hostname, port, _tls_context(ca_file) if url.scheme == "syslog+tls" else None)


def _tls_context(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise StartupError(f"--ca-file {ca_file} cannot be used: {error.strerror or error}.") from None


@contextlib.contextmanager
def _exclusive_cursor_file(cursor_file: Path) -> Iterator[None]:
    """Two streams with one cursor file would overwrite each other's place."""
    descriptor = os.open(cursor_file.with_name(f"{cursor_file.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartupError(f"Another `audit stream` uses {cursor_file}. Use one file for each receiver.") from None
        yield
    finally:
        os.close(descriptor)
