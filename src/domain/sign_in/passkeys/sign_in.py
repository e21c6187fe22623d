"""Sign-in with a passkey, instead of password and second factor: the authenticator has checked the person. It also gives the
questions (challenges) for a passkey as second factor and as step-up.
"""

from __future__ import annotations

from typing import Protocol

from domain.accounts.model import MembershipWithUser
from domain.accounts.ports import HasAccounts, HasMemberships, HasUsers
from domain.accounts.session_and_sign_in_model import ClientInfo
from domain.accounts.sign_in_ports import TokenHasher
from domain.kernel.caller import SessionCaller
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import DomainEvent, JsonObject
from domain.kernel.errors import NotFound
from domain.kernel.ids import UserId
from domain.kernel.unit_of_work import UnitOfWork
from domain.sign_in.passkeys.assertion_verification_and_use import PasskeyAssertionService
from domain.sign_in.passkeys.challenges import (
    SIGN_IN,
    PasskeyChallengeCodec,
    passkey_refused_error,
    purpose_of_second_factor,
    purpose_of_step_up,
)
from domain.sign_in.passkeys.model import VerifiedPasskeyAssertion
from domain.sign_in.passkeys.ports import HasPasskeys, PasskeyCodec
from domain.sign_in.second_factor_policy import challenge_expired_error
from domain.sign_in.second_factor_ports import HasSecondFactors
from domain.sign_in.session_opener import OpenedSession, SessionOpener, SessionOpenerTx


class PasskeySignInTx(SessionOpenerTx, HasAccounts, HasMemberships, HasPasskeys, HasSecondFactors, HasUsers, Protocol): ...


@service
class PasskeySignInService:
    uow: UnitOfWork[PasskeySignInTx]
    clock: Clock
    codec: PasskeyCodec
    challenges: PasskeyChallengeCodec
    verifier: PasskeyAssertionService
    opener: SessionOpener
    digest: TokenHasher

    def sign_in_options(self) -> JsonObject:
        """For `navigator.credentials.get`; the browser lets the person choose among all passkeys of this origin."""
        return self.codec.request_options(self.challenges.issue(SIGN_IN, self.clock.now_ms()), ())

    async def second_factor_options(self, challenge_token: str) -> JsonObject:
        """For the second step of a sign-in with a password. Raises ValidationFailed `CHALLENGE_EXPIRED`, NotFound."""
        token_hash, now_ms = self.digest.sha256(challenge_token), self.clock.now_ms()
        async with self.uow.read() as tx:
            waiting = await tx.second_factors.get_challenge(token_hash)
        if waiting is None or now_ms >= waiting.expires_ms:
            raise challenge_expired_error()
        return await self.options_of(waiting.user_id, purpose_of_second_factor(token_hash))

    async def step_up_options(self, caller: SessionCaller) -> JsonObject:
        """Raises NotFound for a user without passkeys."""
        return await self.options_of(caller.user_id, purpose_of_step_up(caller.session_id))

    async def options_of(self, user_id: UserId, purpose: str) -> JsonObject:
        """For `navigator.credentials.get`, to be signed for this purpose. Raises NotFound for a user without passkeys."""
        async with self.uow.read() as tx:
            passkeys = await tx.passkeys.list_by_user(user_id)
        if not passkeys:
            raise NotFound("You have no passkey. Use another second factor.")
        return self.codec.request_options(self.challenges.issue(purpose, self.clock.now_ms()), passkeys)

    async def sign_in(self, response: JsonObject, *, client: ClientInfo) -> OpenedSession:
        """Raises ValidationFailed `PASSKEY_REFUSED`."""
        verified = await self.verifier.verify(response, SIGN_IN)
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller=None) as tx:
            result = await self._sign_in(tx, verified, client, now_ms)
        if result is None:
            raise passkey_refused_error("it was removed, this response was used before, or its use count went back.")
        return result

    async def _sign_in(
        self, tx: PasskeySignInTx, verified: VerifiedPasskeyAssertion, client: ClientInfo, now_ms: int
    ) -> OpenedSession | None:
        user = await tx.users.get_for_update(verified.user_id)
        memberships = () if user is None else await tx.memberships.list_by_user(user.user_id)
        account = await tx.accounts.get(memberships[0].account_id) if memberships else None
        if user is None or account is None:
            return None
        passkey = await self.verifier.use(tx, verified, now_ms)
        if passkey is None:
            caller, text = memberships[0].to_session(client.address), f"A passkey of {user.email} was refused"
            await tx.emit(DomainEvent.from_caller(caller, "second_factor_failed", text, now_ms))
            return None
        how = f" with the passkey {passkey.name}"
        return await self.opener.open(tx, MembershipWithUser(memberships[0], user), account, client, now_ms, how=how)
