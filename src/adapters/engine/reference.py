"""Grant windows and limits, and webhook signatures, by their reference definitions: for tests, and for `engine = "reference"`.
They stand apart from `native.py`, because they run where the extension is missing.
"""

from __future__ import annotations

from collections.abc import Sequence

from domain.grants.model import GrantRateLimitDecision, WeeklyGrantWindow
from domain.grants.reference import is_open, load_timezone, next_open_ms, rate_allowance
from domain.kernel.errors import ValidationFailed
from domain.webhooks.reference import service_signature, standard_key, standard_signature


class ReferenceGrantEvaluator:
    def is_known_timezone(self, timezone: str) -> bool:
        try:
            load_timezone(timezone)
        except ValidationFailed:
            return False
        return True

    def is_open(self, window: WeeklyGrantWindow, at_ms: int) -> bool:
        return is_open(window, at_ms)

    def next_open_ms(self, window: WeeklyGrantWindow, at_ms: int) -> int | None:
        return next_open_ms(window, at_ms)

    def rate_allowance(self, uses: Sequence[int], limit: int, now_ms: int) -> GrantRateLimitDecision:
        return rate_allowance(uses, limit, now_ms)


class ReferenceWebhookSigner:
    def __init__(self, secret: str) -> None:
        """Raises ValidationFailed for a secret that is no Standard Webhooks key."""
        standard_key(secret)
        self._secret = secret

    def service_signature(self, body: bytes) -> str:
        return service_signature(self._secret, body)

    def standard_signature(self, message_id: str, timestamp_s: int, body: bytes) -> str:
        return standard_signature(self._secret, message_id, timestamp_s, body)

    def sign_batch(self, messages: Sequence[tuple[str, int, bytes]]) -> list[tuple[str, str]]:
        return [
            (self.service_signature(body), self.standard_signature(name, timestamp_s, body))
            for name, timestamp_s, body in messages
        ]
