"""The fault campaign in its short form: nothing that was acknowledged is lost, nothing is doubled, nothing is told wrongly."""

from __future__ import annotations

import pytest

from faults.campaign import campaign
from faults.injections import FAULTS, POSTGRES, SQLITE
from support import postgres
from support.thoroughness import thorough_run_only

pytestmark = [thorough_run_only, pytest.mark.filterwarnings("ignore::ResourceWarning")]
CASES = [
    ("kill -9 of the service", SQLITE),
    ("kill -9 of the service", POSTGRES),
    ("database connections ended, 10 a second", POSTGRES),
]


@pytest.mark.parametrize(("name", "database"), CASES)
async def test_nothing_acknowledged_is_lost_doubled_or_wrong(name: str, database: str) -> None:
    if database == POSTGRES and not postgres.available():
        pytest.skip("PostgreSQL is not installed")
    [fault] = [one for one in FAULTS if one.name == name]
    row = await campaign(fault, database, fault.short)
    assert row.verdict.acknowledged > 0
    assert row.verdict.is_clean, row.verdict.notes
