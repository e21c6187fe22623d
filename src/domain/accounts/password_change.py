"""Changing a password with a code sent by mail: 6 digits, 10 minutes, 5 tries, used once, and at most one a minute.

A code has little entropy, so its hash is keyed and bound to the user, and each wrong try is written down before it is answered.
"""

from __future__ import annotations

import hmac
from dataclasses import replace
from typing import Protocol

from domain.accounts.model import OneTimeCode, User
from domain.accounts.policy import CODE_COOLDOWN_MS, CODE_DIGITS, CODE_MAX_ATTEMPTS, CODE_TTL_MS, check_password
from domain.accounts.ports import HasOneTimeCodes, HasRefreshTokens, HasUsers, Mailer, PasswordHasher, SecretHasher
from domain.kernel.caller import Role, Session, require_role
from domain.kernel.clock import MINUTE_MS, SECOND_MS, Clock
from domain.kernel.domain_events import DomainEvent, EventKind
from domain.kernel.errors import RateLimited, Unauthenticated, Unavailable, ValidationFailed
from domain.kernel.ids import IdGenerator
from domain.kernel.unit_of_work import Transaction, UnitOfWork

MAIL_SUBJECT = "Your Latchboard code"
MAIL_TEXT = """Hello {name},

your code to change your password is {code}.
It is valid for {minutes} minutes and can be used once.

If you did not ask for it, somebody is signed in as you: change your password and tell an Owner of your account.
"""


class PasswordTx(Transaction, HasOneTimeCodes, HasRefreshTokens, HasUsers, Protocol): ...


class PasswordService:
    def __init__(
        self,
        *,
        uow: UnitOfWork[PasswordTx],
        clock: Clock,
        ids: IdGenerator,
        hasher: PasswordHasher,
        digest: SecretHasher,
        mailer: Mailer,
    ) -> None:
        self._uow = uow
        self._clock = clock
        self._ids = ids
        self._hasher = hasher
        self._digest = digest
        self._mailer = mailer

    async def send_code(self, caller: Session) -> None:
        """Mail a code to the caller.

        Raises PermissionDenied, RateLimited `OTP_COOLDOWN`, or Unavailable when the mail server does not accept it."""
        require_role(caller, Role.ADMIN)
        code = self._ids.random_digits(CODE_DIGITS)
        now_ms = self._clock.now_ms()
        async with self._uow.write() as tx:
            user = await _get_user_for_update(tx, caller)
            earlier = await tx.one_time_codes.get_for_update(user.user_id)
            _check_cooldown(earlier, now_ms)
            kept = OneTimeCode(user.user_id, self._hash_code(user, code), now_ms, now_ms + CODE_TTL_MS, 0, False)
            await tx.one_time_codes.upsert(kept)
            description = f"{user.name} asked for a code to change the password"
            await tx.emit(DomainEvent.from_caller(caller, "otp_requested", description, now_ms))
        text = MAIL_TEXT.format(name=user.name, code=code, minutes=CODE_TTL_MS // MINUTE_MS)
        try:
            await self._mailer.send(user.email, MAIL_SUBJECT, text)
        except Unavailable:
            async with self._uow.write() as tx:  # nobody has this code: let them ask again at once
                await tx.one_time_codes.upsert(replace(kept, issued_ms=0, expires_ms=0, used=True))
            raise

    async def change_password(self, caller: Session, code: str, new_password: str) -> None:
        """Raises ValidationFailed `OTP_INVALID`, alike for wrong, expired, used and too often tried. All refresh tokens end."""
        require_role(caller, Role.ADMIN)
        check_password(new_password, "newPassword")
        new_hash = await self._hasher.hash(new_password)
        now_ms = self._clock.now_ms()
        async with self._uow.write() as tx:
            user = await _get_user_for_update(tx, caller)
            accepted = await self._verify_code(tx, user, code, now_ms)
            if accepted:
                await tx.users.save(user.with_password(new_hash, now_ms))
                await tx.refresh_tokens.revoke_by_user(user.user_id, now_ms)
            kind: EventKind = "password_changed" if accepted else "password_change_failed"
            description = f"{user.name} changed the password" if accepted else f"{user.name} gave a wrong code"
            await tx.emit(DomainEvent.from_caller(caller, kind, description, now_ms))
        if not accepted:
            raise ValidationFailed.for_field(
                "otp", "is wrong, expired or used up. Check it, or request a new code.", code="OTP_INVALID"
            )

    async def _verify_code(self, tx: PasswordTx, user: User, code: str, now_ms: int) -> bool:
        kept = await tx.one_time_codes.get_for_update(user.user_id)
        if kept is None or kept.used or now_ms >= kept.expires_ms or kept.tries >= CODE_MAX_ATTEMPTS:
            return False
        right = hmac.compare_digest(kept.code_hash, self._hash_code(user, code))
        await tx.one_time_codes.upsert(replace(kept, tries=kept.tries + 1, used=right))
        return right

    def _hash_code(self, user: User, code: str) -> bytes:
        return self._digest.hmac_sha256("otp", f"{user.user_id}:{code}")


def _check_cooldown(earlier: OneTimeCode | None, now_ms: int) -> None:
    wait_ms = earlier.issued_ms + CODE_COOLDOWN_MS - now_ms if earlier is not None else 0
    if wait_ms > 0:
        seconds = -(-wait_ms // SECOND_MS)
        raise RateLimited(
            f"A code was sent less than a minute ago. Look for it, or ask again in {seconds} s.",
            retry_after=seconds,
            code="OTP_COOLDOWN",
        )


async def _get_user_for_update(tx: PasswordTx, caller: Session) -> User:
    user = await tx.users.get_for_update(caller.user_id)
    if user is None:
        raise Unauthenticated("This user does not exist any more.")
    return user
