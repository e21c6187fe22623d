"""The life of the database: one row, written when the schema is made and renewed where the database is another one."""

from __future__ import annotations

import secrets
import sqlite3

from sqlalchemy import BigInteger, bindparam, text

from adapters.storage.sql.mapping import SqlRepository
from domain.kernel.life import LifeCause, StoredLife

READ_LIFE = text("SELECT life, began_ms, pending FROM database_life WHERE row_id = 1")
RENEW_LIFE = text(
    "UPDATE database_life SET life = :at_life, began_ms = :at_began, pending = :at_cause "
    "WHERE row_id = 1 AND life = :at_before RETURNING row_id"
).bindparams(bindparam("at_began", type_=BigInteger()))
MARK_RECOVERED = text(
    "UPDATE database_life SET began_ms = :at_began, pending = '' "
    "WHERE row_id = 1 AND life = :at_life AND pending <> '' RETURNING row_id"
).bindparams(bindparam("at_began", type_=BigInteger()))


class SqlLifeRepository(SqlRepository):
    async def get(self) -> StoredLife:
        [[life, began_ms, pending]] = await self._session.read(READ_LIFE)
        return stored_life(life, began_ms, pending)

    async def renew(self, before: str, after: StoredLife) -> bool:
        cause = after.pending or ""
        written = await self._session.write(
            RENEW_LIFE, at_life=after.life, at_began=after.began_ms, at_cause=cause, at_before=before
        )
        return bool(written)

    async def mark_recovered(self, life: str, began_ms: int) -> bool:
        return bool(await self._session.write(MARK_RECOVERED, at_life=life, at_began=began_ms))


def stored_life(life: str, began_ms: int, pending: str) -> StoredLife:
    return StoredLife(life, int(began_ms), LifeCause(pending) if pending else None)


def new_life() -> str:
    return secrets.token_hex(6)


def renew_file_life(file: sqlite3.Connection, cause: LifeCause) -> None:
    """In an SQLite file that no service uses: a copy is another life from its first moment. Raises sqlite3.Error."""
    with file:
        file.execute("UPDATE database_life SET life = ?, began_ms = 0, pending = ?", (new_life(), cause.value))
