"""The passkeys of a user: add, list and remove them, and sign in with one.

A passkey signs in instead of password and second factor, because the authenticator has checked the person. A change of passkeys
needs a recent proof of presence, as for all factors.
"""

from __future__ import annotations

from collections.abc import Sequence

from domain.accounts.model import MembershipWithUser, User
from domain.accounts.policy import check_name
from domain.kernel.caller import Role, SessionCaller
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import JsonObject, event_of
from domain.kernel.errors import Conflict, NotFound, Unauthenticated
from domain.kernel.ids import IdAndSecretGenerator, IdPrefix, PasskeyId, UserId
from domain.kernel.unit_of_work import UnitOfWork
from domain.sign_in.model import (
    MAX_PASSKEYS,
    ClientInfo,
    NewPasskeyCredential,
    Passkey,
    VerifiedPasskeyAssertion,
    VerifiedPasskeyChallenge,
)
from domain.sign_in.policy import RolesRequiringSecondFactor, challenge_expired_error
from domain.sign_in.ports import PasskeyCodec, PasskeyResponseError, SignInTx, TokenHasher
from domain.sign_in.presence import require_verification
from domain.sign_in.second_factor import (
    SIGN_IN,
    PasskeyAssertionService,
    PasskeyChallengeCodec,
    RecoveryCodeIssuer,
    complete_factor_removal,
    passkey_refused_error,
    purpose_of_registration,
    purpose_of_second_factor,
    purpose_of_step_up,
)
from domain.sign_in.sessions import OpenedSession, SessionOpener


@service
class PasskeyManagementService:
    uow: UnitOfWork[SignInTx]
    clock: Clock
    ids: IdAndSecretGenerator
    codec: PasskeyCodec
    challenges: PasskeyChallengeCodec
    recovery_codes: RecoveryCodeIssuer
    requirement: RolesRequiringSecondFactor

    async def list(self, caller: SessionCaller) -> Sequence[Passkey]:
        async with self.uow.read() as tx:
            return await tx.passkeys.list_by_user(caller.user_id)

    async def get(self, caller: SessionCaller, passkey_id: str) -> Passkey:
        """One of the caller's own. Raises NotFound."""
        async with self.uow.read() as tx:
            return await _get_own(tx, caller, passkey_id)

    async def begin(self, caller: SessionCaller) -> JsonObject:
        """The options for `navigator.credentials.create`. Raises Conflict when the user has too many."""
        now_ms = self.clock.now_ms()
        async with self.uow.read() as tx:
            await require_verification(tx, caller, now_ms)
            user, existing = await self._get_user_and_passkeys(tx, caller)
        challenge = self.challenges.issue(purpose_of_registration(caller.session_id), now_ms)
        return self.codec.creation_options(user, challenge, existing)

    async def add(self, caller: SessionCaller, name: str, response: JsonObject) -> tuple[Passkey, Sequence[str]]:
        """The passkey; and recovery codes, shown once, with the first second factor of the user, which signs out all other
        sessions. Raises ValidationFailed `PASSKEY_REFUSED`, Conflict."""
        name = check_name(name)
        credential, challenge = await self._verify(caller, response)
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.VIEWER, locks_account=True) as tx:
            await require_verification(tx, caller, now_ms)
            user, _ = await self._get_user_and_passkeys(tx, caller)
            if not await tx.passkeys.use_challenge(challenge):
                raise passkey_refused_error("this response was used before.")
            is_first = not await tx.second_factors.is_enabled(caller.user_id)
            passkey = self._build(user, name, credential, now_ms)
            await tx.passkeys.add(passkey)
            codes = await self.recovery_codes.begin(tx, caller, now_ms) if is_first else ()
            tx.emit(event_of(caller, "passkey_added", f"{user.name} added the passkey {name}", now_ms))
        return passkey, codes

    async def remove(self, caller: SessionCaller, passkey_id: str) -> None:
        """Raises NotFound, and Conflict `SECOND_FACTOR_REQUIRED` for the last factor of a user who needs one."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.VIEWER, locks_account=True) as tx:
            await require_verification(tx, caller, now_ms)
            found = await _get_own(tx, caller, passkey_id)
            if not await tx.passkeys.delete(caller.user_id, found.passkey_id):
                raise _no_passkey()
            await complete_factor_removal(tx, caller, self.requirement)
            tx.emit(event_of(caller, "passkey_removed", f"The passkey {found.name} was removed", now_ms))

    async def _verify(self, caller: SessionCaller, response: JsonObject) -> tuple[NewPasskeyCredential, VerifiedPasskeyChallenge]:
        refused = passkey_refused_error("the browser's response is wrong, or this page is not at the address that people use.")
        try:
            text = self.codec.read_challenge(response)
        except PasskeyResponseError:
            raise refused from None
        challenge = self.challenges.check(text, purpose_of_registration(caller.session_id), self.clock.now_ms())
        try:
            return await self.codec.verify_registration(response, text), challenge
        except PasskeyResponseError:
            raise refused from None

    async def _get_user_and_passkeys(self, tx: SignInTx, caller: SessionCaller) -> tuple[User, Sequence[Passkey]]:
        user, existing = await tx.users.get(caller.user_id), await tx.passkeys.list_by_user(caller.user_id)
        if user is None:
            raise Unauthenticated("This user no longer exists.")
        if len(existing) >= MAX_PASSKEYS:
            raise Conflict(f"You have {MAX_PASSKEYS} passkeys already. Remove one first.", code="TOO_MANY_PASSKEYS")
        return user, existing

    def _build(self, user: User, name: str, credential: NewPasskeyCredential, now_ms: int) -> Passkey:
        return Passkey(
            passkey_id=PasskeyId(self.ids.new_id(IdPrefix.PASSKEY)),
            user_id=user.user_id,
            credential_id=credential.credential_id,
            public_key=credential.public_key,
            sign_count=credential.sign_count,
            name=name,
            transports=credential.transports,
            is_synced=credential.is_synced,
            created_ms=now_ms,
        )


async def _get_own(tx: SignInTx, caller: SessionCaller, passkey_id: str) -> Passkey:
    for passkey in await tx.passkeys.list_by_user(caller.user_id):
        if passkey.passkey_id == passkey_id:
            return passkey
    raise _no_passkey()


def _no_passkey() -> NotFound:
    return NotFound("You have no such passkey. Check the id.")


@service
class PasskeySignInService:
    """Sign-in with a passkey, and the questions (challenges) for one as second factor and as step-up."""

    uow: UnitOfWork[SignInTx]
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
        self, tx: SignInTx, verified: VerifiedPasskeyAssertion, client: ClientInfo, now_ms: int
    ) -> OpenedSession | None:
        user = await tx.users.get_for_update(verified.user_id)
        memberships = () if user is None else await tx.memberships.list_by_user(user.user_id)
        account = await tx.accounts.get(memberships[0].account_id) if memberships else None
        if user is None or account is None:
            return None
        passkey = await self.verifier.use(tx, verified, now_ms)
        if passkey is None:
            caller, text = memberships[0].to_session(client.address), f"A passkey of {user.email} was refused"
            tx.emit(event_of(caller, "second_factor_failed", text, now_ms))
            return None
        how = f" with the passkey {passkey.name}"
        return await self.opener.open(tx, MembershipWithUser(memberships[0], user), account, client, now_ms, how=how)
