"""Refresh tokens, one-time codes, failed logins and stored responses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from domain.kernel.idempotency import COMMITTED, StoredResponse, still_in_progress
from domain.kernel.ids import SessionId, UserId
from domain.sign_in.model import (
    KNOWN_LOGIN_PREFIX,
    LoginFailures,
    PasswordChangeCode,
    RefreshToken,
    SignInUnlockLink,
    UserSession,
)
from support.memory_storage.tables import Database, Table

REFRESH_TOKENS: Table[bytes, RefreshToken] = Table("refresh_tokens")
USER_SESSIONS: Table[SessionId, UserSession] = Table("user_sessions")
UNLOCK_LINKS: Table[UserId, SignInUnlockLink] = Table("unlock_links")
ONE_TIME_CODES: Table[UserId, PasswordChangeCode] = Table("one_time_codes")
LOGIN_FAILURES: Table[str, LoginFailures] = Table("login_failures")
STORED_RESPONSES: Table[tuple[str, str], StoredResponse] = Table("stored_responses")


class MemoryRefreshTokenRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, token: RefreshToken) -> None:
        self._database.writable_rows(REFRESH_TOKENS)[token.token_hash] = token

    async def get(self, token_hash: bytes) -> RefreshToken | None:
        return self._database.rows(REFRESH_TOKENS).get(token_hash)

    async def mark_spent(self, token_hash: bytes, at_ms: int) -> bool:
        rows = self._database.writable_rows(REFRESH_TOKENS)
        token = rows.get(token_hash)
        if token is None or token.spent_ms is not None or token.revoked_ms is not None:
            return False
        rows[token_hash] = replace(token, spent_ms=at_ms)
        return True

    async def revoke_family(self, family: SessionId, at_ms: int) -> None:
        self._revoke(lambda token: token.family == family, at_ms)

    async def revoke_by_user(self, user_id: UserId, at_ms: int, *, keep: SessionId | None = None) -> None:
        self._revoke(lambda token: token.user_id == user_id and token.family != keep, at_ms)

    async def delete_older_than(self, expires_ms: int, limit: int) -> int:
        old = [key for key, token in self._database.rows(REFRESH_TOKENS).items() if token.expires_ms < expires_ms]
        return self._database.delete(REFRESH_TOKENS, old[:limit])

    def _revoke(self, chosen: Callable[[RefreshToken], bool], at_ms: int) -> None:
        rows = self._database.writable_rows(REFRESH_TOKENS)
        for key, token in rows.items():
            if token.revoked_ms is None and chosen(token):
                rows[key] = replace(token, revoked_ms=at_ms)


class MemoryOneTimeCodeRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def get_for_update(self, user_id: UserId) -> PasswordChangeCode | None:
        return self._database.rows(ONE_TIME_CODES).get(user_id)

    async def upsert(self, code: PasswordChangeCode) -> None:
        self._database.writable_rows(ONE_TIME_CODES)[code.user_id] = code


class MemorySignInUnlockLinkRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def get_for_update(self, user_id: UserId) -> SignInUnlockLink | None:
        return self._database.rows(UNLOCK_LINKS).get(user_id)

    async def find_by_token(self, token_hash: bytes) -> SignInUnlockLink | None:
        return next((link for link in self._database.rows(UNLOCK_LINKS).values() if link.token_hash == token_hash), None)

    async def upsert(self, link: SignInUnlockLink) -> None:
        self._database.writable_rows(UNLOCK_LINKS)[link.user_id] = link


class MemoryLoginFailureRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def get_for_update(self, subject: str) -> LoginFailures | None:
        return self._database.rows(LOGIN_FAILURES).get(subject)

    async def upsert(self, failures: LoginFailures) -> None:
        self._database.writable_rows(LOGIN_FAILURES)[failures.subject] = failures

    async def delete(self, subject: str) -> None:
        self._database.delete(LOGIN_FAILURES, [subject])

    async def delete_older_than(self, last_ms: int, limit: int) -> int:
        return self._delete_older_than(last_ms, limit, places=False)

    async def delete_known_logins_older_than(self, last_ms: int, limit: int) -> int:
        return self._delete_older_than(last_ms, limit, places=True)

    def _delete_older_than(self, last_ms: int, limit: int, *, places: bool) -> int:
        rows = self._database.rows(LOGIN_FAILURES).items()
        old = [key for key, one in rows if one.last_ms < last_ms and key.startswith(KNOWN_LOGIN_PREFIX) is places]
        return self._database.delete(LOGIN_FAILURES, old[:limit])


class MemoryStoredResponseRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, caller: str, key: str) -> StoredResponse | None:
        return self._database.rows(STORED_RESPONSES).get((caller, key))

    async def claim(self, answer: StoredResponse) -> bool:
        rows = self._database.writable_rows(STORED_RESPONSES)
        place = (answer.caller, answer.key)
        if place in rows:
            return False
        rows[place] = answer
        return True

    async def mark_committed(self, claim: StoredResponse) -> None:
        kept = self._find(claim)
        if kept is None:
            raise still_in_progress()
        if kept.status is None:
            self._database.writable_rows(STORED_RESPONSES)[(claim.caller, claim.key)] = replace(kept, status=COMMITTED)

    async def complete(self, answer: StoredResponse) -> None:
        kept = self._find(answer)
        if kept is not None:
            after = replace(kept, status=answer.status, body=answer.body)
            self._database.writable_rows(STORED_RESPONSES)[(answer.caller, answer.key)] = after

    async def release(self, claim: StoredResponse) -> None:
        kept = self._find(claim)
        if kept is not None and kept.status is None:
            await self.discard(claim)

    async def discard(self, claim: StoredResponse) -> None:
        if self._find(claim) is not None:
            self._database.delete(STORED_RESPONSES, [(claim.caller, claim.key)])

    async def delete_if_unchanged(self, abandoned: StoredResponse) -> bool:
        kept = self._find(abandoned)
        if kept is None or kept.status != abandoned.status:
            return False
        await self.discard(abandoned)
        return True

    async def is_process_alive(self, process_id: bytes) -> bool:
        return False

    def _find(self, claim: StoredResponse) -> StoredResponse | None:
        """Exactly this claim."""
        kept = self._database.rows(STORED_RESPONSES).get((claim.caller, claim.key))
        return kept if kept is not None and kept.at_ms == claim.at_ms else None

    async def page(self, after: StoredResponse | None, limit: int) -> Sequence[StoredResponse]:
        place = ("", "") if after is None else (after.caller, after.key)
        found = sorted((key, one) for key, one in self._database.rows(STORED_RESPONSES).items() if key > place)
        return [one for _, one in found if one.status not in (None, COMMITTED)][:limit]

    async def count(self) -> int:
        return len(await self.page(None, 1_000_000))

    async def rekey(self, response: StoredResponse, after: bytes) -> bool:
        kept = self._database.rows(STORED_RESPONSES).get((response.caller, response.key))
        if kept is None or kept.body != response.body:
            return False
        self._database.writable_rows(STORED_RESPONSES)[(response.caller, response.key)] = replace(kept, body=after)
        return True

    async def delete_older_than(self, at_ms: int, limit: int) -> int:
        old = [key for key, answer in self._database.rows(STORED_RESPONSES).items() if answer.at_ms < at_ms]
        return self._database.delete(STORED_RESPONSES, old[:limit])
