"""Opens a session for a user whose sign-in is complete, whichever way the user signed in, and records it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from domain.accounts.model import Account, MembershipWithUser
from domain.accounts.session_and_sign_in_model import ClientInfo
from domain.kernel.domain_event import DomainEvent
from domain.kernel.unit_of_work import Transaction
from domain.sign_in.known_browser_tokens import HmacKnownBrowserTokenCodec
from domain.sign_in.session_revocation import SessionRowsTx
from domain.sign_in.session_token_issuer import SessionTokenIssuer, TokenPair


class SessionOpenerTx(Transaction, SessionRowsTx, Protocol): ...


@dataclass(frozen=True, slots=True)
class OpenedSession:
    tokens: TokenPair
    member: MembershipWithUser
    account: Account
    device_tokens: str = field(repr=False)
    """What the device shows at its next login (`known_browser_tokens.py`)."""


class SessionOpener:
    def __init__(self, *, issuer: SessionTokenIssuer, devices: HmacKnownBrowserTokenCodec) -> None:
        self._issuer = issuer
        self._devices = devices

    async def open(
        self,
        tx: SessionOpenerTx,
        member: MembershipWithUser,
        account: Account,
        client: ClientInfo,
        now_ms: int,
        *,
        how: str = "",
        ends_ms: int | None = None,
        provider_factor_ms: int | None = None,
    ) -> OpenedSession:
        """`how`: what the log says of the way, such as ` with a passkey`. The last two are those of `UserSession`."""
        user, membership = member.user, member.membership
        tokens = await self._issuer.open_session(
            tx, membership, client, now_ms, ends_ms=ends_ms, provider_factor_ms=provider_factor_ms
        )
        caller = membership.to_session(client.address)
        await tx.emit(DomainEvent.from_caller(caller, "login", f"{user.name} signed in{how}", now_ms))
        return OpenedSession(tokens, member, account, self._devices.add_token(client.device_tokens, user.user_id))
