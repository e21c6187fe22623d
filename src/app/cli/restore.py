"""`latchboard restore`: puts a backup in place of the database, or makes a database that other means have restored another life.

Either way the copy does not know what happened after it was made. So its life is renewed, which every cursor notices, and all
sessions end: those that were ended since would be open again.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy.engine import make_url

from adapters.clock import SystemClock
from adapters.crypto.key_ring import KeyRing, KeyRingFile
from adapters.crypto.passwords import Argon2PasswordHasher
from adapters.randomness import RandomIdAndSecretGenerator
from adapters.storage.sql import SqlDatabase
from adapters.storage.sql.repositories.life import new_life
from adapters.storage.sql.unit_of_work import SqlUnitOfWork
from app.cli.database import copy_database, write_new_file
from app.cli.operator import open_database
from app.config.settings import Settings
from app.runtime.start import KEY_FILE, InstanceLock, StartupError
from domain.kernel.clock import SECOND_MS, to_iso
from domain.kernel.life import LifeCause, StoredLife
from domain.keys.model import ApiKey
from domain.team.operator import OperatorService

DATABASE_NAME = "latchboard.db"
FILE_SUFFIXES = ("", "-wal", "-shm")
"""Of what SQLite keeps of a database; the log belongs to the file beside it."""
USE_PG_RESTORE = (
    "This database is PostgreSQL. Stop the service, restore the dump with pg_restore (or let your provider restore it), put the "
    "secret_keys of its time into the data directory, and run `latchboard restore --in-place`."
)


@dataclass(frozen=True, slots=True)
class RestoredDatabase:
    """`set_aside`: where the database of before is. `newest_ms`: Unix ms of the newest event that the backup knows."""

    set_aside: Path | None
    newest_ms: int | None
    signed_out: int
    keys: Sequence[ApiKey]


async def restore(settings: Settings, backup: Path | None, *, keep_sessions: bool) -> RestoredDatabase:
    """`backup`: a directory that `latchboard backup` wrote, or a database file; None: the database is in place already. Raises
    StartupError, and what the database raises."""
    file = SqlDatabase(settings.effective_database_url, pool_size=1).file
    if backup is not None and file is None:
        raise StartupError(USE_PG_RESTORE)
    lock = InstanceLock(file)
    lock.acquire()
    try:
        set_aside = None
        if backup is not None and file is not None:
            source = _find_backup(backup, file)
            await _require_database(source)
            set_aside = _put_in_place(settings, source, file)
        if file is None:
            await _require_stopped(settings)
        async with open_database(settings) as uow:
            return replace(await _begin_anew(uow, keep_sessions=keep_sessions), set_aside=set_aside)
    finally:
        lock.release()


def _find_backup(backup: Path, file: Path) -> Path:
    """Raises StartupError."""
    source = backup / DATABASE_NAME if backup.is_dir() else backup
    if not source.is_file():
        raise StartupError(f"There is no {source}. Name a directory that `latchboard backup` wrote, or a copy of the database.")
    if source.resolve() == file.resolve():
        raise StartupError(f"{source} is the database itself. Use `latchboard restore --in-place` for one that is in place.")
    return source


def _put_in_place(settings: Settings, source: Path, file: Path) -> Path | None:
    """Returns where the database of before is now. The copy is complete before anything is replaced. Raises StartupError."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _add_keys(settings, source.with_name(KEY_FILE))
        new = file.with_name(f"{file.name}.restoring")
        new.unlink(missing_ok=True)
        new.with_name(new.name + ".part").unlink(missing_ok=True)
        copy_database(source, new, LifeCause.RESTORE)
        set_aside = _set_aside(file)
        new.rename(file)
    except (OSError, sqlite3.Error, ValueError) as error:
        raise StartupError(f"{source} could not be put in place: {error}. The database is as it was; try again.") from None
    return set_aside


async def _require_database(source: Path) -> None:
    """Raises StartupError, and as `SqlDatabase.revision`."""
    database = SqlDatabase(f"sqlite+aiosqlite:///{source}", pool_size=1)
    try:
        if await database.revision() is None:
            raise StartupError(f"{source} is empty. Name a backup that has a database.")
    finally:
        await database.stop()


def _set_aside(file: Path) -> Path | None:
    if not file.exists():
        return None
    name = f"{file.name}.before-restore-{SystemClock().now_ms() // SECOND_MS}"
    for suffix in reversed(FILE_SUFFIXES):  # the file last: without it, an interrupted restore is begun anew
        part = file.with_name(file.name + suffix)
        if part.exists():
            part.rename(file.with_name(name + suffix))
    return file.with_name(name)


def _add_keys(settings: Settings, backup: Path) -> None:
    """The ring keeps its keys and gets those of the backup that it lacks: they open what is in the restored database. Raises
    OSError, ValueError."""
    if settings.secret_keys is not None or not backup.is_file():
        return
    path = settings.data_dir / KEY_FILE
    if not path.exists():
        write_new_file(path, backup.read_bytes())
        return
    ring, old = KeyRingFile(path), KeyRing.parse(backup.read_text(encoding="ascii"))
    with ring.exclusive_lock():
        missing = tuple(key for key in old.keys if ring.find(key.key_id) is None)
        if missing:
            ring.replace(KeyRing((*ring.keys, *missing)))


async def _require_stopped(settings: Settings) -> None:
    """Raises StartupError while a service is connected: it would not notice that its database is another one."""
    database = SqlDatabase(settings.effective_database_url, pool_size=1)
    try:
        count = await database.count_services()
    finally:
        await database.stop()
    if count:
        raise StartupError(f"A service is connected to this database ({count} connections). Stop every instance of it first.")


async def _begin_anew(uow: SqlUnitOfWork, *, keep_sessions: bool) -> RestoredDatabase:
    async with uow.write(None) as tx:
        before = await tx.life.get()
        await tx.life.renew(before.life, StoredLife(new_life(), pending=LifeCause.RESTORE))
    hasher = Argon2PasswordHasher(threads=1)
    try:
        operator = OperatorService(uow=uow, clock=SystemClock(), ids=RandomIdAndSecretGenerator(), hasher=hasher)
        signed_out = 0 if keep_sessions else await operator.end_all_sessions()
    finally:
        hasher.close()
    keys: list[ApiKey] = []
    newest: list[int] = []
    async with uow.read() as tx:
        for account_id in await tx.accounts.list_ids():
            keys += await tx.api_keys.list_by_account(account_id)
            newest += [event.at_ms for event in await tx.events.page(account_id, limit=2) if event.source != "operator"]
    return RestoredDatabase(None, max(newest, default=None), signed_out, keys)


def describe(restored: RestoredDatabase, settings: Settings, *, keep_sessions: bool) -> str:
    """What was done, and what is left to people."""
    database = make_url(settings.effective_database_url).render_as_string()
    known = "" if restored.newest_ms is None else f" Its newest event is of {to_iso(restored.newest_ms)}."
    lines = [f"{database} is another life from now on: every cursor begins anew.{known}"]
    if restored.set_aside is not None:
        lines.append(f"The database of before is {restored.set_aside}. Keep it until you are sure, then delete it.")
    lines.append(
        "Sessions go on, those that were ended since the backup too."
        if keep_sessions
        else f"All sessions have ended, of {restored.signed_out} people. They sign in again."
    )
    lines.append("API keys that work now. Delete those that were deleted since the backup; those made since are gone:")
    for key in restored.keys:
        used = "never used" if key.last_used_ms is None else f"last used {to_iso(key.last_used_ms)}"
        ends = "" if key.expires_ms is None else f", until {to_iso(key.expires_ms)}"
        lines.append(f"  {key.prefix}…  {key.name}  ({'enabled' if key.enabled else 'disabled'}{ends}, {used})")
    if not restored.keys:
        lines.append("  none")
    lines.append("Check members, grants and revoked devices too (docs/how-to/after-a-restore.md), then start the service.")
    return os.linesep.join(lines)
