"""Ports of the second factor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from domain.accounts.session_and_sign_in_model import LoginChallenge, TotpEnrollment
from domain.kernel.ids import UserId


class SecondFactorRepository(Protocol):
    async def is_enabled(self, user_id: UserId) -> bool:
        """Whether the user has a confirmed authenticator app or a passkey."""

    async def has_totp(self, user_id: UserId) -> bool:
        """Whether the user has a confirmed authenticator app."""

    async def delete_totp(self, user_id: UserId) -> bool:
        """False if there was none."""

    async def get_totp_for_update(self, user_id: UserId) -> TotpEnrollment | None:
        """Locks the user until the write transaction ends."""

    async def upsert_totp(self, secret: TotpEnrollment) -> None: ...

    async def list_totp_page(self, after: UserId | None, limit: int) -> Sequence[TotpEnrollment]:
        """By user id, for the re-encryption after a key rotation."""

    async def rekey_totp(self, user_id: UserId, before: bytes, sealed: bytes) -> int:
        """Replace the sealed secret if it is still `before`; the number of changed rows."""

    async def count_totp(self) -> int: ...

    async def replace_recovery_codes(self, user_id: UserId, code_hashes: Sequence[bytes]) -> None: ...

    async def use_recovery_code(self, user_id: UserId, code_hash: bytes) -> bool:
        """Delete the code; False if there is none. Each is used once, also by concurrent requests."""

    async def count_recovery_codes(self, user_id: UserId) -> int: ...

    async def delete_all(self, user_id: UserId) -> bool:
        """All factors, passkeys too, and recovery codes of a user; False if there were none."""

    async def add_challenge(self, challenge: LoginChallenge) -> None: ...

    async def get_challenge(self, token_hash: bytes) -> LoginChallenge | None: ...

    async def delete_challenge(self, token_hash: bytes) -> bool:
        """False if another request has used it."""

    async def delete_challenges_older_than(self, expires_ms: int, limit: int) -> int: ...


class HasSecondFactors(Protocol):
    @property
    def second_factors(self) -> SecondFactorRepository: ...


class TotpCodec(Protocol):
    """Port: codes of authenticator apps, RFC 6238: 6 digits, 30 seconds, SHA-1 (what every app supports)."""

    def new_secret(self) -> str:
        """160 random bits, in base 32."""

    def matching_step(self, secret: str, code: str, now_ms: int) -> int | None:
        """The time step that the code is of: the present one or one next to it. None for a wrong code."""

    def setup_uri(self, secret: str, email: str) -> str: ...

    def qr_rows(self, uri: str) -> Sequence[str]:
        """The QR code without its quiet zone: its rows from the top, `1` for a dark module."""

    def qr_svg(self, uri: str) -> str: ...
