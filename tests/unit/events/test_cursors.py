"""Cursors of the event log: what they cover, and how they are written."""

from __future__ import annotations

import random

import pytest

from domain.events.cursors import MAX_WRITERS, EventLogCursor, FeedCursor
from domain.events.model import Event, with_position
from domain.kernel.cursors import EVENTS, FEED, Cursor
from domain.kernel.errors import ValidationFailed
from domain.kernel.ids import AccountId, EventId

WRITERS = range(6)


def some_cursor(chance: random.Random) -> EventLogCursor:
    positions = {writer: chance.randrange(12) for writer in WRITERS if chance.random() < 0.5}
    return EventLogCursor.from_positions(positions, chance.randrange(12))


def covered(cursor: EventLogCursor) -> set[tuple[int, int]]:
    return {(writer, position) for writer in WRITERS for position in range(15) if cursor.covers(writer, position)}


@pytest.mark.parametrize("seed", range(200))
def test_a_union_covers_what_one_of_both_covers_and_nothing_else(seed: int) -> None:
    chance = random.Random(seed)
    one, other = some_cursor(chance), some_cursor(chance)
    union = one.union(other)
    assert covered(union) == covered(one) | covered(other)
    assert union == other.union(one) == union.union(one)
    assert union.highest == max(one.highest, other.highest)
    assert union.lowest >= max(one.lowest, other.lowest)
    written = FeedCursor(union, seed)
    assert FeedCursor.decode(written.encode()) == written


def test_an_event_is_covered_with_all_earlier_ones_of_its_writer_only() -> None:
    event = Event(0, EventId("evt_1"), AccountId("acc_1"), None, None, "relay_changed", "", 0, "device", "", {})
    cursor = EventLogCursor(5).after([with_position(event, 9, 2), with_position(event, 7, 2), with_position(event, 4, 1)])
    assert cursor == EventLogCursor(5, ((2, 9),))
    assert [cursor.covers(2, 9), cursor.covers(2, 10), cursor.covers(1, 5), cursor.covers(1, 6)] == [True, False, True, False]
    assert (cursor.lowest, cursor.highest) == (5, 9)


def test_the_most_common_position_is_the_base_so_that_few_writers_are_listed() -> None:
    idle = dict.fromkeys(range(MAX_WRITERS), 80)
    assert EventLogCursor.from_all_writers(idle | {0: 95, 3: 78}) == EventLogCursor(80, ((0, 95), (3, 78)))
    assert EventLogCursor.from_all_writers(idle) == EventLogCursor(80)


def test_the_cursor_of_an_older_version_covers_its_position_for_every_writer() -> None:
    assert FeedCursor.decode(Cursor(FEED, (57, 1_700_000_000)).encode()) == FeedCursor(EventLogCursor(57), 1_700_000_000)
    assert FeedCursor.decode(Cursor(EVENTS, (57,)).encode()) == FeedCursor(EventLogCursor(57), None)
    assert FeedCursor(EventLogCursor(57), 1_700_000_000).encode() == Cursor(FEED, (57, 1_700_000_000)).encode()


def test_the_longest_cursor_is_read_back() -> None:
    longest = FeedCursor(EventLogCursor(10**17, tuple((writer, 10**18 - 1 - writer) for writer in range(MAX_WRITERS))), 2**40)
    assert FeedCursor.decode(longest.encode()) == longest


@pytest.mark.parametrize("numbers", [(1,), (1, 2, 3), (1, 2, MAX_WRITERS, 5), tuple(range(2 * MAX_WRITERS + 4))])
def test_other_numbers_are_refused(numbers: tuple[int, ...]) -> None:
    with pytest.raises(ValidationFailed):
        FeedCursor.decode(Cursor(FEED, tuple(numbers)).encode())
