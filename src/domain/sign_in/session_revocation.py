"""Ends sessions with their refresh and access tokens, in the transaction of the caller. The next call of such a token fails, on
every instance, because each call reads the session's row."""

from __future__ import annotations

from typing import Protocol

from domain.accounts.sign_in_ports import HasRefreshTokens, HasUserSessions
from domain.kernel.ids import SessionId, UserId


class SessionRowsTx(HasRefreshTokens, HasUserSessions, Protocol): ...


async def revoke_session(tx: SessionRowsTx, session_id: SessionId, now_ms: int) -> None:
    await tx.refresh_tokens.revoke_family(session_id, now_ms)
    await tx.user_sessions.revoke(session_id, now_ms)


async def revoke_user_sessions(tx: SessionRowsTx, user_id: UserId, now_ms: int, *, keep: SessionId | None = None) -> None:
    """`keep`: the one session that goes on."""
    await tx.refresh_tokens.revoke_by_user(user_id, now_ms, keep=keep)
    await tx.user_sessions.revoke_by_user(user_id, now_ms, keep=keep)
