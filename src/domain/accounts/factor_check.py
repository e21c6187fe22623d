"""Checks a second factor: a code of the authenticator app or a recovery code. Both work once; wrong ones are counted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from domain.accounts.model import LoginFailures
from domain.accounts.ports import HasLoginFailures, SecretHasher
from domain.accounts.second_factor_policy import CODE_TRIES, normalize_code
from domain.accounts.second_factor_ports import HasSecondFactors, TotpCodec
from domain.kernel.ids import UserId
from domain.kernel.vault import Vault


class FactorTx(HasLoginFailures, HasSecondFactors, Protocol): ...


@dataclass(frozen=True, slots=True)
class PresentedFactor:
    """What the user sends: exactly one of the two."""

    totp: str | None = None
    recovery_code: str | None = None


class FactorChecker:
    def __init__(self, *, totp: TotpCodec, vault: Vault, digest: SecretHasher) -> None:
        self._totp = totp
        self._vault = vault
        self._digest = digest

    async def check(self, tx: FactorTx, user_id: UserId, factor: PresentedFactor, now_ms: int) -> bool:
        """Stores what the check uses up, or counts a wrong factor, in `tx`; so commit also after False.

        Raises RateLimited after too many wrong ones."""
        subject = f"factor:{user_id}"
        failures: LoginFailures | None = await tx.login_failures.get_for_update(subject)
        CODE_TRIES.check(failures, now_ms, "wrong codes")
        if factor.totp is not None:
            accepted = await self._check_totp(tx, user_id, factor.totp, now_ms)
        else:
            accepted = await tx.second_factors.use_recovery_code(
                user_id, self.hash_recovery_code(user_id, factor.recovery_code or "")
            )
        if accepted:
            await tx.login_failures.delete(subject)
        else:
            await tx.login_failures.upsert(CODE_TRIES.count(failures, subject, now_ms))
        return accepted

    async def _check_totp(self, tx: FactorTx, user_id: UserId, code: str, now_ms: int) -> bool:
        secret = await tx.second_factors.get_totp_for_update(user_id)
        if secret is None or secret.confirmed_ms is None:
            return False
        step = self._totp.matching_step(self._vault.open(secret.sealed, user_id), normalize_code(code), now_ms)
        if step is None or step <= secret.last_step:
            return False
        await tx.second_factors.upsert_totp(replace(secret, last_step=step))
        return True

    def hash_recovery_code(self, user_id: UserId, code: str) -> bytes:
        return self._digest.hmac_sha256("recovery-code", f"{user_id}:{normalize_code(code)}")
