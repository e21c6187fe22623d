"""The links that unlock the logins of users, one for each user."""

from __future__ import annotations

from sqlalchemy import bindparam

from adapters.storage.sql.entity_repository import SqlRepository
from adapters.storage.sql.repositories.login_tokens_and_failures import LOCK_USER
from adapters.storage.sql.row_mapper import RowMapper
from adapters.storage.sql.statement_builders import upsert
from adapters.storage.sql.tables import unlock_links
from domain.kernel.ids import UserId
from domain.sign_in.model import SignInUnlockLink

UNLOCK_LINK = RowMapper(unlock_links, SignInUnlockLink)
GET_LINK = UNLOCK_LINK.select().where(unlock_links.c.user_id == bindparam("at_user"))
FIND_LINK = UNLOCK_LINK.select().where(unlock_links.c.token_hash == bindparam("at_hash"))
UPSERT_LINK = upsert(unlock_links, "token_hash", "issued_ms", "expires_ms", "used")


class SqlSignInUnlockLinkRepository(SqlRepository):
    async def get_for_update(self, user_id: UserId) -> SignInUnlockLink | None:
        if self._takes_locks:
            await self._session.write(LOCK_USER, at_user=user_id)
        return await self._first(UNLOCK_LINK, GET_LINK, at_user=user_id)

    async def find_by_token(self, token_hash: bytes) -> SignInUnlockLink | None:
        return await self._first(UNLOCK_LINK, FIND_LINK, at_hash=token_hash)

    async def upsert(self, link: SignInUnlockLink) -> None:
        await self._session.write(UPSERT_LINK, **UNLOCK_LINK.values(link))
