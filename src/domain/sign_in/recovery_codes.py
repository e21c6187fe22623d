"""Recovery codes: each stands in for the second factor once. They exist exactly while a user has a second factor."""

from __future__ import annotations

from collections.abc import Sequence

from domain.accounts.sign_in_ports import TokenHasher
from domain.kernel.ids import IdAndSecretGenerator, UserId
from domain.sign_in.second_factor_policy import RECOVERY_CODE_LENGTH, RECOVERY_CODES, format_recovery_code, normalize_code
from domain.sign_in.second_factor_ports import HasSecondFactors


class RecoveryCodeIssuer:
    def __init__(self, *, ids: IdAndSecretGenerator, digest: TokenHasher) -> None:
        self._ids = ids
        self._digest = digest

    async def replace(self, tx: HasSecondFactors, user_id: UserId) -> Sequence[str]:
        """New codes, in the form that people write; the old ones are void."""
        codes = [self._ids.random_alphanumeric(RECOVERY_CODE_LENGTH) for _ in range(RECOVERY_CODES)]
        hashes = [hash_recovery_code(self._digest, user_id, code) for code in codes]
        await tx.second_factors.replace_recovery_codes(user_id, hashes)
        return [format_recovery_code(code) for code in codes]


def hash_recovery_code(digest: TokenHasher, user_id: UserId, code: str) -> bytes:
    return digest.hmac_sha256("recovery-code", f"{user_id}:{normalize_code(code)}")
