"""The passkeys of the signed-in user: add, list, remove. A change needs a recent proof of presence, as for all factors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from domain.accounts.model import User
from domain.accounts.policy import check_name
from domain.accounts.ports import HasMemberships, HasUsers
from domain.accounts.sign_in_ports import HasRefreshTokens, HasUserSessions
from domain.kernel.caller import Role, SessionCaller
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import DomainEvent, EventKind, JsonObject
from domain.kernel.errors import Conflict, NotFound, Unauthenticated
from domain.kernel.ids import IdAndSecretGenerator, IdPrefix, PasskeyId
from domain.kernel.unit_of_work import Transaction, UnitOfWork
from domain.sign_in.last_second_factor_removal import complete_factor_removal
from domain.sign_in.passkeys.challenges import PasskeyChallengeCodec, passkey_refused_error, purpose_of_registration
from domain.sign_in.passkeys.model import MAX_PASSKEYS, NewPasskeyCredential, Passkey, VerifiedPasskeyChallenge
from domain.sign_in.passkeys.ports import HasPasskeys, PasskeyCodec, PasskeyResponseError
from domain.sign_in.recovery_codes import RecoveryCodeIssuer
from domain.sign_in.second_factor_policy import RolesRequiringSecondFactor
from domain.sign_in.second_factor_ports import HasSecondFactors
from domain.sign_in.session_revocation import revoke_user_sessions
from domain.sign_in.step_up import require_verification


class PasskeyManagementTx(
    Transaction, HasMemberships, HasPasskeys, HasRefreshTokens, HasSecondFactors, HasUsers, HasUserSessions, Protocol
): ...


@dataclass(frozen=True, slots=True)
class AddedPasskey:
    """`recovery_codes` only with the first second factor of the user, shown once."""

    passkey: Passkey
    recovery_codes: Sequence[str] = field(repr=False)


@service
class PasskeyManagementService:
    uow: UnitOfWork[PasskeyManagementTx]
    clock: Clock
    ids: IdAndSecretGenerator
    codec: PasskeyCodec
    challenges: PasskeyChallengeCodec
    recovery_codes: RecoveryCodeIssuer
    requirement: RolesRequiringSecondFactor

    async def list(self, caller: SessionCaller) -> Sequence[Passkey]:
        async with self.uow.read() as tx:
            return await tx.passkeys.list_by_user(caller.user_id)

    async def begin(self, caller: SessionCaller) -> JsonObject:
        """The options for `navigator.credentials.create`. Raises Conflict when the user has too many."""
        now_ms = self.clock.now_ms()
        async with self.uow.read() as tx:
            await require_verification(tx, caller, now_ms)
            user, existing = await self._get_user_and_passkeys(tx, caller)
        challenge = self.challenges.issue(purpose_of_registration(caller.session_id), now_ms)
        return self.codec.creation_options(user, challenge, existing)

    async def add(self, caller: SessionCaller, name: str, response: JsonObject) -> AddedPasskey:
        """The first second factor of a user signs out all other sessions. Raises ValidationFailed `PASSKEY_REFUSED`, Conflict."""
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
            codes: Sequence[str] = ()
            if is_first:
                await revoke_user_sessions(tx, caller.user_id, now_ms, keep=caller.session_id)
                codes = await self.recovery_codes.replace(tx, caller.user_id)
            await self._emit(tx, caller, "passkey_added", f"{user.name} added the passkey {name}", now_ms)
        return AddedPasskey(passkey, codes)

    async def remove(self, caller: SessionCaller, passkey_id: str) -> None:
        """Raises NotFound, and Conflict `SECOND_FACTOR_REQUIRED` for the last factor of a user who needs one."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.VIEWER, locks_account=True) as tx:
            await require_verification(tx, caller, now_ms)
            found = [one for one in await tx.passkeys.list_by_user(caller.user_id) if one.passkey_id == passkey_id]
            if not found or not await tx.passkeys.delete(caller.user_id, found[0].passkey_id):
                raise NotFound("You have no such passkey. Check the id.")
            await complete_factor_removal(tx, caller, self.requirement)
            await self._emit(tx, caller, "passkey_removed", f"The passkey {found[0].name} was removed", now_ms)

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

    async def _get_user_and_passkeys(self, tx: PasskeyManagementTx, caller: SessionCaller) -> tuple[User, Sequence[Passkey]]:
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

    async def _emit(self, tx: PasskeyManagementTx, caller: SessionCaller, kind: EventKind, text: str, now_ms: int) -> None:
        await tx.emit(DomainEvent.from_caller(caller, kind, text, now_ms))
