"""The challenges that authenticators sign: random, for one purpose, valid for five minutes, and used once.

A challenge carries its expiry and a keyed hash over both and its purpose, so an open one needs no row: strangers who ask for
challenges fill no table. Only a used one is stored, until it expires.
"""

from __future__ import annotations

import hmac

from domain.accounts.sign_in_ports import TokenHasher
from domain.kernel.clock import MINUTE_MS
from domain.kernel.errors import ValidationFailed
from domain.kernel.ids import IdAndSecretGenerator, SessionId
from domain.sign_in.passkeys.model import VerifiedPasskeyChallenge

CHALLENGE_TTL_MS = 5 * MINUTE_MS
NONCE_LENGTH = 32
MAX_EXPIRY_DIGITS = 15

SIGN_IN = "sign-in"


def purpose_of_step_up(session_id: SessionId | None) -> str:
    return f"step-up:{session_id}"


def purpose_of_registration(session_id: SessionId | None) -> str:
    return f"register:{session_id}"


def purpose_of_second_factor(challenge_token_hash: bytes) -> str:
    return f"second-factor:{challenge_token_hash.hex()}"


class PasskeyChallengeCodec:
    def __init__(self, *, ids: IdAndSecretGenerator, digest: TokenHasher) -> None:
        self._ids = ids
        self._digest = digest

    def issue(self, purpose: str, now_ms: int) -> str:
        nonce, expires_ms = self._ids.random_alphanumeric(NONCE_LENGTH), now_ms + CHALLENGE_TTL_MS
        return f"{nonce}.{expires_ms}.{self._sign(nonce, expires_ms, purpose)}"

    def check(self, challenge: str, purpose: str, now_ms: int) -> VerifiedPasskeyChallenge:
        """Raises ValidationFailed `PASSKEY_REFUSED` for one that is not of this service, of another purpose, or expired."""
        nonce, _, rest = challenge.partition(".")
        expires, _, signature = rest.partition(".")
        if expires.isascii() and expires.isdigit() and len(expires) <= MAX_EXPIRY_DIGITS:
            expires_ms = int(expires)
            expected = self._sign(nonce, expires_ms, purpose)
            if hmac.compare_digest(expected.encode(), signature.encode()) and now_ms < expires_ms:
                return VerifiedPasskeyChallenge(self._digest.sha256(challenge), expires_ms)
        raise passkey_refused_error("it answers no open question of this service. Try again.")

    def _sign(self, nonce: str, expires_ms: int, purpose: str) -> str:
        return self._digest.hmac_sha256("passkey-challenge", f"{purpose}:{nonce}:{expires_ms}").hex()


def passkey_refused_error(reason: str) -> ValidationFailed:
    return ValidationFailed(f"The passkey was not accepted: {reason}", code="PASSKEY_REFUSED")
