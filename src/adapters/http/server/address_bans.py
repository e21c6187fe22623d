"""Which addresses are refused for a while, because all their connections fail. Times are monotonic seconds.

The broker has the same rule for MQTT (rust/broker/src/address_bans.rs).
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST_BAN_S = 1.0
SUCCESS_PROTECTS_S = 24 * 3600.0
"""Behind one address there may be a whole company and one program with a mistake."""
FORGET_AFTER_S = 600.0
"""Failures are forgotten when none comes for this long after the longest ban."""
MAX_RECORDS = 20_000
PURGE_INTERVAL_S = 10.0
"""The pause between two searches for records to forget: a search reads all of them."""


@dataclass(slots=True)
class _AddressBanState:
    failures: int = 0
    failed_at: float = float("-inf")
    succeeded_at: float = float("-inf")
    banned_until: float = float("-inf")


class AddressBans:
    def __init__(self, ban_after: int, ban_max_s: float) -> None:
        """`ban_after`: failures in a row before the first ban; 0 switches bans off."""
        self._ban_after = ban_after
        self._ban_max_s = ban_max_s
        self._records: dict[str, _AddressBanState] = {}
        self._purged_at = float("-inf")

    def is_banned(self, block: str, now: float) -> bool:
        record = self._records.get(block)
        return record is not None and now < record.banned_until

    def count(self, now: float) -> int:
        return sum(now < record.banned_until for record in self._records.values())

    def record_failure(self, block: str, now: float) -> None:
        record = self._record(block, now)
        if not self._ban_after or record is None or now - record.succeeded_at < SUCCESS_PROTECTS_S:
            return
        if now - record.failed_at >= self._ban_max_s + FORGET_AFTER_S:
            record.failures = 0
        record.failures += 1
        record.failed_at = now
        doublings = record.failures - self._ban_after
        if doublings >= 0:
            record.banned_until = now + min(self._ban_max_s, FIRST_BAN_S * 2 ** min(doublings, 20))

    def record_success(self, block: str, now: float) -> None:
        record = self._record(block, now)
        if record is not None:
            record.succeeded_at, record.failures, record.banned_until = now, 0, float("-inf")

    def _record(self, block: str, now: float) -> _AddressBanState | None:
        """None when the memory is full: then the limits on connections alone protect the service."""
        found = self._records.get(block)
        if found is not None:
            return found
        if len(self._records) >= MAX_RECORDS and now - self._purged_at >= PURGE_INTERVAL_S:
            self._purged_at = now
            self._records = {name: each for name, each in self._records.items() if self._is_recent(each, now)}
        if len(self._records) >= MAX_RECORDS:
            return None
        return self._records.setdefault(block, _AddressBanState())

    def _is_recent(self, record: _AddressBanState, now: float) -> bool:
        return now - record.succeeded_at < SUCCESS_PROTECTS_S or now - record.failed_at < self._ban_max_s + FORGET_AFTER_S
