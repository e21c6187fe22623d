"""Refresh tokens, one-time codes, failed logins and remembered answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from adapters.storage.memory.shelves import Book, Shelf
from domain.accounts.model import KNOWN, LoginFailures, OneTimeCode, RefreshToken
from domain.kernel.idempotency import CARRIED_OUT, Answer
from domain.kernel.ids import MembershipId, UserId

TOKENS: Shelf[bytes, RefreshToken] = Shelf("refresh_tokens")
CODES: Shelf[UserId, OneTimeCode] = Shelf("one_time_codes")
FAILURES: Shelf[str, LoginFailures] = Shelf("login_failures")
ANSWERS: Shelf[tuple[str, str], Answer] = Shelf("answers")


class MemoryRefreshTokens:
    def __init__(self, book: Book) -> None:
        self._book = book

    async def add(self, token: RefreshToken) -> None:
        self._book.edit(TOKENS)[token.token_hash] = token

    async def get(self, token_hash: bytes) -> RefreshToken | None:
        return self._book.rows(TOKENS).get(token_hash)

    async def spend(self, token_hash: bytes, at_ms: int) -> bool:
        rows = self._book.edit(TOKENS)
        token = rows.get(token_hash)
        if token is None or token.spent_ms is not None or token.revoked_ms is not None:
            return False
        rows[token_hash] = replace(token, spent_ms=at_ms)
        return True

    async def revoke_family(self, family: str, at_ms: int) -> None:
        self._revoke(lambda token: token.family == family, at_ms)

    async def revoke_user(self, user_id: UserId, at_ms: int) -> None:
        self._revoke(lambda token: token.user_id == user_id, at_ms)

    async def revoke_membership(self, membership_id: MembershipId, at_ms: int) -> None:
        self._revoke(lambda token: token.membership_id == membership_id, at_ms)

    async def forget_before(self, expires_ms: int, limit: int) -> int:
        old = [key for key, token in self._book.rows(TOKENS).items() if token.expires_ms < expires_ms]
        return self._book.drop(TOKENS, old[:limit])

    def _revoke(self, chosen: Callable[[RefreshToken], bool], at_ms: int) -> None:
        rows = self._book.edit(TOKENS)
        for key, token in rows.items():
            if token.revoked_ms is None and chosen(token):
                rows[key] = replace(token, revoked_ms=at_ms)


class MemoryOneTimeCodes:
    def __init__(self, book: Book) -> None:
        self._book = book

    async def get(self, user_id: UserId) -> OneTimeCode | None:
        return self._book.rows(CODES).get(user_id)

    async def put(self, code: OneTimeCode) -> None:
        self._book.edit(CODES)[code.user_id] = code


class MemoryLoginFailures:
    def __init__(self, book: Book) -> None:
        self._book = book

    async def get(self, subject: str) -> LoginFailures | None:
        return self._book.rows(FAILURES).get(subject)

    async def put(self, failures: LoginFailures) -> None:
        self._book.edit(FAILURES)[failures.subject] = failures

    async def clear(self, subject: str) -> None:
        self._book.drop(FAILURES, [subject])

    async def forget_before(self, last_ms: int, limit: int) -> int:
        return self._forget(last_ms, limit, places=False)

    async def forget_places_before(self, last_ms: int, limit: int) -> int:
        return self._forget(last_ms, limit, places=True)

    def _forget(self, last_ms: int, limit: int, *, places: bool) -> int:
        rows = self._book.rows(FAILURES).items()
        old = [key for key, one in rows if one.last_ms < last_ms and key.startswith(KNOWN) is places]
        return self._book.drop(FAILURES, old[:limit])


class MemoryAnswers:
    def __init__(self, book: Book) -> None:
        self._book = book

    async def find(self, caller: str, key: str) -> Answer | None:
        return self._book.rows(ANSWERS).get((caller, key))

    async def claim(self, answer: Answer) -> bool:
        rows = self._book.edit(ANSWERS)
        place = (answer.caller, answer.key)
        if place in rows:
            return False
        rows[place] = answer
        return True

    async def carry_out(self, claim: Answer) -> None:
        rows = self._book.edit(ANSWERS)
        kept = rows.get((claim.caller, claim.key))
        if kept is not None and kept.at_ms == claim.at_ms and kept.status is None:
            rows[(claim.caller, claim.key)] = replace(kept, status=CARRIED_OUT)

    async def complete(self, answer: Answer) -> None:
        rows = self._book.edit(ANSWERS)
        kept = rows.get((answer.caller, answer.key))
        if kept is not None:
            rows[(answer.caller, answer.key)] = replace(kept, status=answer.status, body=answer.body)

    async def release(self, caller: str, key: str) -> None:
        rows = self._book.edit(ANSWERS)
        kept = rows.get((caller, key))
        if kept is not None and kept.status is None:
            del rows[(caller, key)]

    async def supersede(self, abandoned: Answer) -> bool:
        rows = self._book.edit(ANSWERS)
        place = (abandoned.caller, abandoned.key)
        kept = rows.get(place)
        if kept is None or kept.at_ms != abandoned.at_ms:
            return False
        del rows[place]
        return True

    async def forget_before(self, at_ms: int, limit: int) -> int:
        old = [key for key, answer in self._book.rows(ANSWERS).items() if answer.at_ms < at_ms]
        return self._book.drop(ANSWERS, old[:limit])
