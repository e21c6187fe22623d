"""Own entries of a partition: only an unbroken run from the asked position is read, and memory is bounded."""

from __future__ import annotations

from adapters.stream.jetstream import MAX_CACHED_BYTES, AppendedInboundLogEntryCache
from domain.partitions.ports import InboundLogEntry


def entries(*positions: int) -> AppendedInboundLogEntryCache:
    made = AppendedInboundLogEntryCache()
    for position in positions:
        made.add(InboundLogEntry(position, b"x"))
    return made


def positions(found: AppendedInboundLogEntryCache, after: int, limit: int = 10) -> list[int]:
    return [entry.position for entry in found.read(after, limit)]


def test_a_run_ends_at_the_entry_of_another_instance() -> None:
    found = entries(4, 5, 7)
    assert positions(found, 3) == [4, 5]
    assert positions(found, 5) == []
    assert positions(found, 6) == [7]


def test_reading_again_from_the_same_position_finds_the_same() -> None:
    found = entries(1, 2, 3)
    assert positions(found, 0, 2) == positions(found, 0, 2) == [1, 2]
    assert positions(found, 2) == [3]
    assert positions(found, 0) == [], "they were read; the log has them"


def test_the_oldest_go_when_they_are_too_large_together() -> None:
    found = AppendedInboundLogEntryCache()
    for position in range(1, 5):
        found.add(InboundLogEntry(position, bytes(MAX_CACHED_BYTES // 3)))
    assert positions(found, 0) == []
    assert positions(found, 1) == [2, 3, 4]
    found.add(InboundLogEntry(5, bytes(MAX_CACHED_BYTES + 1)))
    assert positions(found, 4) == []
