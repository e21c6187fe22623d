"""Secrets of the installation itself, encrypted."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, select, update

from adapters.storage.sql.entity_repository import SqlRepository
from adapters.storage.sql.statement_builders import insert_or_ignore
from adapters.storage.sql.tables import service_secrets

s = service_secrets.c

_NAME = s.name == bindparam("at_name")
GET_SECRET = select(s.sealed).where(_NAME)
ADD_SECRET = insert_or_ignore(service_secrets)
LIST_SECRETS = select(s.name, s.sealed).order_by(s.name)
REKEY_SECRET = update(service_secrets).where(_NAME, s.sealed == bindparam("at_before")).returning(s.name)


class SqlServiceSecretRepository(SqlRepository):
    async def get(self, name: str) -> bytes | None:
        rows = await self._session.read(GET_SECRET, at_name=name)
        return bytes(rows[0][0]) if rows else None

    async def add_if_absent(self, name: str, sealed: bytes) -> None:
        await self._session.write(ADD_SECRET, name=name, sealed=sealed)

    async def list_all(self) -> Sequence[tuple[str, bytes]]:
        return [(name, bytes(sealed)) for name, sealed in await self._session.read(LIST_SECRETS)]

    async def rekey(self, name: str, before: bytes, sealed: bytes) -> int:
        return await self._count_changed(REKEY_SECRET, at_name=name, at_before=before, sealed=sealed)
