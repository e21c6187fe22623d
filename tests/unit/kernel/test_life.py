"""Which process gives a database that has gone back a life of its own, and when."""

from __future__ import annotations

import pytest

from domain.kernel.life import DatabaseLife, LifeCause, StoredLife

KNOWN = DatabaseLife(current="second", began_ms=2_000)


@pytest.mark.parametrize(
    ("found", "went_back", "expected"),
    [
        (StoredLife("second", 2_000), False, False),
        (StoredLife("second", 2_000), True, True),
        (StoredLife("third", 3_000, LifeCause.FAILOVER), True, False),
        (StoredLife("third", 3_000), True, False),
        (StoredLife("first", 0), True, True),
        (StoredLife("first", 1_000), False, True),
        (StoredLife("third", 0, LifeCause.RESTORE), True, False),
    ],
    ids=[
        "nothing has happened",
        "this process notices it first",
        "another process has noticed it",
        "another process has settled it",
        "a copy from before the last failover",
        "the same, and nothing was committed since",
        "`latchboard restore` has said so",
    ],
)
def test_a_life_is_renewed_once_for_each_time_that_the_database_goes_back(
    found: StoredLife, went_back: bool, expected: bool
) -> None:
    assert KNOWN.is_unannounced(found, went_back=went_back) is expected
