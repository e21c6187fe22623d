"""Checks a second factor: a code of the authenticator app, a recovery code, or a passkey. Each works once; wrong ones count."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from domain.kernel.caller import SessionCaller
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import JsonObject
from domain.kernel.errors import PermissionDenied, ValidationFailed
from domain.kernel.ids import IdAndSecretGenerator, SessionId, UserId
from domain.kernel.ports import Vault
from domain.kernel.unit_of_work import UnitOfWork
from domain.sign_in.model import Passkey, VerifiedPasskeyAssertion, VerifiedPasskeyChallenge
from domain.sign_in.policy import (
    CHALLENGE_TTL_MS,
    CODE_TRIES,
    RolesRequiringSecondFactor,
    normalize_code,
    second_factor_required_error,
)
from domain.sign_in.ports import PasskeyCodec, PasskeyResponseError, SignInTx, TokenHasher, TotpCodec
from domain.sign_in.sessions import revoke_user_sessions


@dataclass(frozen=True, slots=True)
class PresentedSecondFactor:
    """What the user sends: exactly one of the three. `passkey` is the browser's response."""

    totp: str | None = None
    recovery_code: str | None = None
    passkey: JsonObject | None = None


PreparedSecondFactor: TypeAlias = PresentedSecondFactor | VerifiedPasskeyAssertion
"""A code as presented, or a passkey whose signature is verified already."""


@service
class SecondFactorChecker:
    totp: TotpCodec
    vault: Vault
    digest: TokenHasher
    passkeys: PasskeyAssertionService

    async def prepare(self, factor: PresentedSecondFactor, purpose: str) -> PreparedSecondFactor:
        """Before the transaction. `purpose`: what a passkey must have been asked for. Raises ValidationFailed
        `PASSKEY_REFUSED`."""
        return factor if factor.passkey is None else await self.passkeys.verify(factor.passkey, purpose)

    async def check(
        self, tx: SignInTx, user_id: UserId, factor: PreparedSecondFactor, now_ms: int, *, by_link: bool = False
    ) -> bool:
        """Stores what the check uses up, or counts a wrong factor, in `tx`; so commit also after False. `by_link`: whoever has a
        link for an approval guesses without the password. It is counted apart, so that a reader of messages locks nobody out.

        Raises RateLimited after too many wrong ones, PermissionDenied `TOTP_LOCKED` (`_check_totp`)."""
        subject = f"{'link-factor' if by_link else 'factor'}:{user_id}"
        failures = await tx.login_failures.get_for_update(subject)
        CODE_TRIES.check(failures, now_ms, "wrong codes")
        if isinstance(factor, VerifiedPasskeyAssertion):
            accepted = factor.user_id == user_id and await self.passkeys.use(tx, factor, now_ms) is not None
        elif factor.totp is not None:
            accepted = await self._check_totp(tx, user_id, factor.totp, now_ms, by_link=by_link)
        else:
            code_hash = hash_recovery_code(self.digest, user_id, factor.recovery_code or "")
            accepted = await tx.second_factors.use_recovery_code(user_id, code_hash)
        if accepted:
            await tx.login_failures.delete(subject)
            await _forget_wrong_codes(tx, user_id)
        else:
            await tx.login_failures.upsert(CODE_TRIES.count(failures, subject, now_ms))
        return accepted

    async def _check_totp(self, tx: SignInTx, user_id: UserId, code: str, now_ms: int, *, by_link: bool) -> bool:
        """Six digits do not bear endless guesses, however slow: after MAX_WRONG_CODES in a row the app no longer counts, until
        the user shows another factor. Raises PermissionDenied `TOTP_LOCKED`."""
        secret = await tx.second_factors.get_totp_for_update(user_id)
        if secret is None or secret.confirmed_ms is None:
            return False
        wrong = secret.wrong_link_codes if by_link else secret.wrong_codes
        if wrong >= MAX_WRONG_CODES:
            raise totp_locked_error()
        step = self.totp.matching_step(self.vault.open(secret.sealed, user_id), normalize_code(code), now_ms)
        if step is None or step <= secret.last_step:
            counted = replace(secret, wrong_link_codes=wrong + 1) if by_link else replace(secret, wrong_codes=wrong + 1)
            await tx.second_factors.upsert_totp(counted)
            return False
        await tx.second_factors.upsert_totp(replace(secret, last_step=step))
        return True


MAX_WRONG_CODES = 100
"""In a row, of one authenticator app (NIST SP 800-63B, 5.2.2). Those by approval links count apart."""


async def _forget_wrong_codes(tx: SignInTx, user_id: UserId) -> None:
    secret = await tx.second_factors.get_totp_for_update(user_id)
    if secret is not None and (secret.wrong_codes or secret.wrong_link_codes):
        await tx.second_factors.upsert_totp(replace(secret, wrong_codes=0, wrong_link_codes=0))


def totp_locked_error() -> PermissionDenied:
    return PermissionDenied(
        f"After {MAX_WRONG_CODES} wrong codes in a row the codes of your app no longer count. Sign in with a recovery code or a "
        "passkey; then they count again.",
        code="TOTP_LOCKED",
    )


# What a passkey is asked for.
SIGN_IN = "sign-in"


def purpose_of_step_up(session_id: SessionId | None) -> str:
    return f"step-up:{session_id}"


def purpose_of_registration(session_id: SessionId | None) -> str:
    return f"register:{session_id}"


def purpose_of_second_factor(challenge_token_hash: bytes) -> str:
    return f"second-factor:{challenge_token_hash.hex()}"


@service
class PasskeyAssertionService:
    """Checks a passkey in two steps: the signature before the transaction, because it costs milliseconds; then, in the
    transaction that acts, that the passkey still exists, that its challenge is used for the first time, and that its use count
    grew."""

    uow: UnitOfWork[SignInTx]
    clock: Clock
    codec: PasskeyCodec
    challenges: PasskeyChallengeCodec

    async def verify(self, response: JsonObject, purpose: str) -> VerifiedPasskeyAssertion:
        """Raises ValidationFailed `PASSKEY_REFUSED`, with the same text for an unknown passkey and a wrong signature."""
        refused = passkey_refused_error("it is not registered here, or its signature is wrong. Use another way to sign in.")
        try:
            claimed = self.codec.read_assertion(response)
        except PasskeyResponseError:
            raise refused from None
        challenge = self.challenges.check(claimed.challenge, purpose, self.clock.now_ms())
        async with self.uow.read() as tx:
            passkey = await tx.passkeys.find_by_credential(claimed.credential_id)
        if passkey is None or claimed.user_handle not in (None, passkey.user_id):
            raise refused
        try:
            sign_count = await self.codec.verify_assertion(response, claimed.challenge, passkey)
        except PasskeyResponseError:
            raise refused from None
        return VerifiedPasskeyAssertion(passkey.passkey_id, passkey.user_id, sign_count, challenge)

    async def use(self, tx: SignInTx, verified: VerifiedPasskeyAssertion, now_ms: int) -> Passkey | None:
        """None if it does not count. The challenge is used up in any case, so commit also after None."""
        passkey = await tx.passkeys.get_for_update(verified.passkey_id)
        is_first_use = await tx.passkeys.use_challenge(verified.challenge)
        if passkey is None or not is_first_use or not passkey.accepts_sign_count(verified.sign_count):
            return None
        await tx.passkeys.record_use(passkey.passkey_id, verified.sign_count, now_ms)
        return passkey


NONCE_LENGTH = 32
MAX_EXPIRY_DIGITS = 15


@service
class PasskeyChallengeCodec:
    """The challenges that authenticators sign: random, for one purpose, valid for five minutes, and used once.

    A challenge carries its expiry and a keyed hash over both and its purpose, so an open one needs no row: strangers who ask for
    challenges fill no table. Only a used one is stored, until it expires."""

    ids: IdAndSecretGenerator
    digest: TokenHasher

    def issue(self, purpose: str, now_ms: int) -> str:
        nonce, expires_ms = self.ids.random_alphanumeric(NONCE_LENGTH), now_ms + CHALLENGE_TTL_MS
        return f"{nonce}.{expires_ms}.{self._sign(nonce, expires_ms, purpose)}"

    def check(self, challenge: str, purpose: str, now_ms: int) -> VerifiedPasskeyChallenge:
        """Raises ValidationFailed `PASSKEY_REFUSED` for one that is not of this service, of another purpose, or expired."""
        nonce, _, rest = challenge.partition(".")
        expires, _, signature = rest.partition(".")
        if expires.isascii() and expires.isdigit() and len(expires) <= MAX_EXPIRY_DIGITS:
            expires_ms = int(expires)
            expected = self._sign(nonce, expires_ms, purpose)
            if hmac.compare_digest(expected.encode(), signature.encode()) and now_ms < expires_ms:
                return VerifiedPasskeyChallenge(self.digest.sha256(challenge), expires_ms)
        raise passkey_refused_error("it answers no open question of this service. Try again.")

    def _sign(self, nonce: str, expires_ms: int, purpose: str) -> str:
        return self.digest.hmac_sha256("passkey-challenge", f"{purpose}:{nonce}:{expires_ms}").hex()


def passkey_refused_error(reason: str) -> ValidationFailed:
    return ValidationFailed(f"The passkey was not accepted: {reason}", code="PASSKEY_REFUSED")


RECOVERY_CODES = 10
RECOVERY_CODE_LENGTH = 10
"""Letters and digits: 59 bits."""


@service
class RecoveryCodeIssuer:
    """Each code stands in for the second factor once. They exist exactly while a user has a second factor."""

    ids: IdAndSecretGenerator
    digest: TokenHasher

    async def begin(self, tx: SignInTx, caller: SessionCaller, now_ms: int) -> Sequence[str]:
        """With the first second factor of a user; it ends all other sessions, because those were opened without it."""
        await revoke_user_sessions(tx, caller.user_id, now_ms, keep=caller.session_id)
        return await self.replace(tx, caller.user_id)

    async def replace(self, tx: SignInTx, user_id: UserId) -> Sequence[str]:
        """New codes, in the form that people write; the old ones are void."""
        codes = [self.ids.random_alphanumeric(RECOVERY_CODE_LENGTH) for _ in range(RECOVERY_CODES)]
        hashes = [hash_recovery_code(self.digest, user_id, code) for code in codes]
        await tx.second_factors.replace_recovery_codes(user_id, hashes)
        return [f"{code[:5]}-{code[5:]}" for code in codes]


def hash_recovery_code(digest: TokenHasher, user_id: UserId, code: str) -> bytes:
    return digest.hmac_sha256("recovery-code", f"{user_id}:{normalize_code(code)}")


async def complete_factor_removal(tx: SignInTx, caller: SessionCaller, requirement: RolesRequiringSecondFactor) -> None:
    """With the last factor go the recovery codes. Raises Conflict `SECOND_FACTOR_REQUIRED` for a user who needs one."""
    if await tx.second_factors.is_enabled(caller.user_id):
        return
    if requirement.applies_to(caller.role):
        raise second_factor_required_error()
    await tx.second_factors.delete_all(caller.user_id)
