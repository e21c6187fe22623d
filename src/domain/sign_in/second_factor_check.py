"""Checks a second factor: a code of the authenticator app, a recovery code, or a passkey. Each works once; wrong ones count."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from domain.accounts.session_and_sign_in_model import LoginFailures
from domain.accounts.sign_in_ports import HasLoginFailures, TokenHasher
from domain.kernel.domain_event import JsonObject
from domain.kernel.ids import UserId
from domain.kernel.ports import Vault
from domain.sign_in.passkeys.assertion_verification_and_use import PasskeyAssertionService
from domain.sign_in.passkeys.model import VerifiedPasskeyAssertion
from domain.sign_in.passkeys.ports import HasPasskeys
from domain.sign_in.recovery_codes import hash_recovery_code
from domain.sign_in.second_factor_policy import CODE_TRIES, normalize_code
from domain.sign_in.second_factor_ports import HasSecondFactors, TotpCodec


class SecondFactorCheckTx(HasLoginFailures, HasPasskeys, HasSecondFactors, Protocol): ...


@dataclass(frozen=True, slots=True)
class PresentedSecondFactor:
    """What the user sends: exactly one of the three. `passkey` is the browser's response."""

    totp: str | None = None
    recovery_code: str | None = None
    passkey: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class SecondFactorAttempt:
    """A presented factor; the signature of a passkey is verified already."""

    presented: PresentedSecondFactor
    passkey: VerifiedPasskeyAssertion | None = None


class SecondFactorChecker:
    def __init__(self, *, totp: TotpCodec, vault: Vault, digest: TokenHasher, passkeys: PasskeyAssertionService) -> None:
        self._totp = totp
        self._vault = vault
        self._digest = digest
        self._passkeys = passkeys

    async def prepare(self, factor: PresentedSecondFactor, purpose: str) -> SecondFactorAttempt:
        """Before the transaction. `purpose`: what a passkey must have been asked for. Raises ValidationFailed
        `PASSKEY_REFUSED`."""
        if factor.passkey is None:
            return SecondFactorAttempt(factor)
        return SecondFactorAttempt(factor, await self._passkeys.verify(factor.passkey, purpose))

    async def check(self, tx: SecondFactorCheckTx, user_id: UserId, factor: SecondFactorAttempt, now_ms: int) -> bool:
        """Stores what the check uses up, or counts a wrong factor, in `tx`; so commit also after False.

        Raises RateLimited after too many wrong ones."""
        subject = f"factor:{user_id}"
        failures: LoginFailures | None = await tx.login_failures.get_for_update(subject)
        CODE_TRIES.check(failures, now_ms, "wrong codes")
        presented = factor.presented
        if factor.passkey is not None:
            is_own = factor.passkey.user_id == user_id
            accepted = is_own and await self._passkeys.use(tx, factor.passkey, now_ms) is not None
        elif presented.totp is not None:
            accepted = await self._check_totp(tx, user_id, presented.totp, now_ms)
        else:
            code_hash = hash_recovery_code(self._digest, user_id, presented.recovery_code or "")
            accepted = await tx.second_factors.use_recovery_code(user_id, code_hash)
        if accepted:
            await tx.login_failures.delete(subject)
        else:
            await tx.login_failures.upsert(CODE_TRIES.count(failures, subject, now_ms))
        return accepted

    async def _check_totp(self, tx: SecondFactorCheckTx, user_id: UserId, code: str, now_ms: int) -> bool:
        secret = await tx.second_factors.get_totp_for_update(user_id)
        if secret is None or secret.confirmed_ms is None:
            return False
        step = self._totp.matching_step(self._vault.open(secret.sealed, user_id), normalize_code(code), now_ms)
        if step is None or step <= secret.last_step:
            return False
        await tx.second_factors.upsert_totp(replace(secret, last_step=step))
        return True
