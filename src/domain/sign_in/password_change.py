"""Password change, with the current password or with a code sent by mail. Both end all sessions of the user and suspend
the user's channels.

A code has 6 digits, is valid for 10 minutes and single use; at most one a minute is sent, and it allows 5 attempts; a user
has 10 wrong attempts in 24 hours, over all codes.
A code has little entropy, so its hash is keyed and bound to the user, and each attempt is stored before it is answered.
"""

from __future__ import annotations

import hmac
from dataclasses import replace

from domain.accounts.model import User
from domain.accounts.policy import TranslatableMailTemplate, choose_language
from domain.accounts.ports import Mailer, Translator
from domain.kernel.caller import Role, SessionCaller, require_role
from domain.kernel.clock import MINUTE_MS, SECOND_MS, Clock, is_of_earlier_clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import EventKind, event_of
from domain.kernel.errors import PermissionDenied, RateLimited, Unauthenticated, Unavailable, ValidationFailed
from domain.kernel.ids import IdAndSecretGenerator
from domain.kernel.unit_of_work import UnitOfWork
from domain.sign_in.model import PasswordChangeCode
from domain.sign_in.policy import CODE_ATTEMPTS, PASSWORD_CONFIRMATIONS, check_new_password
from domain.sign_in.ports import PasswordHasher, SignInTx, TokenHasher
from domain.sign_in.presence import require_verification
from domain.sign_in.sessions import cut_off_user

CODE_DIGITS = 6
CODE_TTL_MS = 10 * MINUTE_MS
CODE_COOLDOWN_MS = MINUTE_MS
CODE_MAX_ATTEMPTS = 5
MAIL = TranslatableMailTemplate(
    "Your Latchboard code",
    """Hello {name},

your code to change your password is {code}.
It is valid for {minutes} minutes and can be used once.

If you did not request it, somebody else is signed in as you: change your password and inform an Owner of your account.
""",
)


@service
class PasswordChangeService:
    uow: UnitOfWork[SignInTx]
    clock: Clock
    ids: IdAndSecretGenerator
    hasher: PasswordHasher
    digest: TokenHasher
    mailer: Mailer
    translator: Translator

    async def send_code(self, caller: SessionCaller, *, language: str) -> None:
        """Mail a code to the caller. `language`: for who has stored none.

        Raises PermissionDenied, RateLimited `OTP_COOLDOWN`, or Unavailable when the mail server does not accept it."""
        code = self.ids.random_digits(CODE_DIGITS)
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.ADMIN) as tx:
            user = await _get_user_for_update(tx, caller)
            language = await choose_language(tx, user, language)
            CODE_ATTEMPTS.check(await tx.login_failures.get_for_update(_code_subject(user)), now_ms, "wrong codes")
            previous = await tx.one_time_codes.get_for_update(user.user_id)
            _check_cooldown(previous, now_ms)
            stored_code = PasswordChangeCode(user.user_id, self._hash_code(user, code), now_ms, now_ms + CODE_TTL_MS, 0, False)
            await tx.one_time_codes.upsert(stored_code)
            description = f"{user.name} requested a code to change the password"
            tx.emit(event_of(caller, "otp_requested", description, now_ms))
        minutes = CODE_TTL_MS // MINUTE_MS
        subject, text = MAIL.write(self.translator, language, name=user.name, code=code, minutes=minutes)
        try:
            await self.mailer.send(user.email, subject, text)
        except Unavailable:
            async with self.uow.write(caller=None) as tx:  # the code was not delivered: allow a new request at once
                await tx.one_time_codes.upsert(replace(stored_code, issued_ms=0, expires_ms=0, used=True))
            raise

    async def change_password(self, caller: SessionCaller, code: str, new_password: str) -> None:
        """Ends all sessions. Raises ValidationFailed `OTP_INVALID` for a wrong, expired, used or exhausted code."""
        require_role(caller, Role.ADMIN)
        new_hash = await self.hasher.hash(await self._check_new(caller, new_password))
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.ADMIN, locks_account=True) as tx:
            user = await _get_user_for_update(tx, caller)
            wrong_codes = await tx.login_failures.get_for_update(_code_subject(user))
            CODE_ATTEMPTS.check(wrong_codes, now_ms, "wrong codes")
            accepted = await self._verify_code(tx, user, code, now_ms)
            if accepted:
                await tx.users.save(user.with_password(new_hash, now_ms))
                await cut_off_user(tx, user.user_id, now_ms)
            else:
                await tx.login_failures.upsert(CODE_ATTEMPTS.count(wrong_codes, _code_subject(user), now_ms))
            kind: EventKind = "password_changed" if accepted else "password_change_failed"
            description = f"{user.name} changed the password" if accepted else f"{user.name} entered a wrong code"
            tx.emit(event_of(caller, kind, description, now_ms))
        if not accepted:
            raise ValidationFailed.for_field(
                "otp", "is wrong, expired or used up. Check it, or request a new code.", code="OTP_INVALID"
            )

    async def set_first_password(self, caller: SessionCaller, new_password: str) -> None:
        """For a user of an identity provider who has none, shortly after signing in. Ends all sessions.

        Raises PermissionDenied `PASSWORD_MISMATCH` for a user who has one, `STEP_UP_REQUIRED`."""
        new_hash = await self.hasher.hash(await self._check_new(caller, new_password))
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.VIEWER, locks_account=True) as tx:
            user = await _get_user_for_update(tx, caller)
            if user.has_password:
                raise PermissionDenied("currentPassword is missing: you have a password.", code="PASSWORD_MISMATCH")
            await require_verification(tx, caller, now_ms)
            await tx.users.save(user.with_password(new_hash, now_ms))
            await cut_off_user(tx, user.user_id, now_ms)
            tx.emit(event_of(caller, "password_changed", f"{user.name} set a first password", now_ms))

    async def change_password_with_current(self, caller: SessionCaller, current_password: str, new_password: str) -> None:
        """For every role. Ends all sessions. Raises PermissionDenied `PASSWORD_MISMATCH`, or RateLimited after ten wrong ones."""
        await self._check_new(caller, new_password)
        subject = f"password:{caller.user_id}"
        async with self.uow.read() as tx:
            PASSWORD_CONFIRMATIONS.check(await tx.login_failures.get_for_update(subject), self.clock.now_ms(), "wrong passwords")
            user = await tx.users.get(caller.user_id)
        is_correct = user is not None and await self.hasher.verify(user.password_hash, current_password)
        new_hash = await self.hasher.hash(new_password) if is_correct else ""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.VIEWER, locks_account=True) as tx:
            failures = await tx.login_failures.get_for_update(subject)
            PASSWORD_CONFIRMATIONS.check(failures, now_ms, "wrong passwords")  # concurrent guesses gain nothing
            current = await _get_user_for_update(tx, caller)
            accepted = is_correct and user is not None and current.password_hash == user.password_hash
            if accepted:
                await tx.users.save(current.with_password(new_hash, now_ms))
                await cut_off_user(tx, current.user_id, now_ms)
                await tx.login_failures.delete(subject)
            else:
                await tx.login_failures.upsert(PASSWORD_CONFIRMATIONS.count(failures, subject, now_ms))
            kind: EventKind = "password_changed" if accepted else "password_change_failed"
            failed = f"{current.name} entered a wrong current password"
            description = f"{current.name} changed the password" if accepted else failed
            tx.emit(event_of(caller, kind, description, now_ms))
        if not accepted:
            raise PermissionDenied("The current password is wrong. Enter the one you sign in with.", code="PASSWORD_MISMATCH")

    async def _check_new(self, caller: SessionCaller, password: str) -> str:
        """Raises ValidationFailed, `PASSWORD_WEAK`."""
        async with self.uow.read() as tx:
            user = await tx.users.get(caller.user_id)
        related = () if user is None else (user.email, user.name)
        return await check_new_password(self.hasher, password, "newPassword", related=related)

    async def _verify_code(self, tx: SignInTx, user: User, code: str, now_ms: int) -> bool:
        stored_code = await tx.one_time_codes.get_for_update(user.user_id)
        if stored_code is None or stored_code.used or now_ms >= stored_code.expires_ms or stored_code.tries >= CODE_MAX_ATTEMPTS:
            return False
        is_correct = hmac.compare_digest(stored_code.code_hash, self._hash_code(user, code))
        await tx.one_time_codes.upsert(replace(stored_code, tries=stored_code.tries + 1, used=is_correct))
        return is_correct

    def _hash_code(self, user: User, code: str) -> bytes:
        return self.digest.hmac_sha256("otp", f"{user.user_id}:{code}")


def _code_subject(user: User) -> str:
    return f"otp:{user.user_id}"


def _check_cooldown(previous: PasswordChangeCode | None, now_ms: int) -> None:
    if previous is None or is_of_earlier_clock(previous.issued_ms, now_ms):
        return
    wait_ms = previous.issued_ms + CODE_COOLDOWN_MS - now_ms
    if wait_ms > 0:
        seconds = -(-wait_ms // SECOND_MS)
        raise RateLimited(
            f"A code was sent less than a minute ago. Check your mail, or request another in {seconds} s.",
            retry_after=seconds,
            code="OTP_COOLDOWN",
        )


async def _get_user_for_update(tx: SignInTx, caller: SessionCaller) -> User:
    user = await tx.users.get_for_update(caller.user_id)
    if user is None:
        raise Unauthenticated("This user no longer exists.")
    return user
