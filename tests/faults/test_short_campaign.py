"""The fault campaign in its short form: nothing that was acknowledged is lost, nothing is doubled, nothing is told wrongly."""

from __future__ import annotations

import asyncio

import pytest

from faults.campaign import campaign
from faults.injections import FAULTS
from faults.setups import Setup
from support.thoroughness import thorough_run_only

pytestmark = [pytest.mark.thorough, thorough_run_only, pytest.mark.filterwarnings("ignore::ResourceWarning")]
CASE_TIMEOUT_S = 300
"""A case takes 15 to 45 s on a quiet machine; the longest wait for something lost is 180 s."""
CASES = [
    ("kill -9 of the service", Setup.SQLITE),
    ("kill -9 of the service", Setup.POSTGRES),
    ("kill -9 of an instance", Setup.CLUSTER),
    ("an instance stopped (SIGSTOP)", Setup.CLUSTER),
    ("kill -9 of all NATS nodes", Setup.CLUSTER),
    ("PostgreSQL away, devices go on", Setup.CLUSTER),
    ("PostgreSQL away, timers of rules go on", Setup.CLUSTER),
    ("the owner of partitions hangs, timers of rules go on", Setup.CLUSTER),
    ("database connections ended, 10 a second", Setup.POSTGRES),
    ("disk full", Setup.SMALL_DISK),
    ("clock an hour ahead, then behind", Setup.FALSE_CLOCK),
    ("clock ahead for a minute", Setup.DOUBTED_CLOCK),
    ("clock behind at boot", Setup.DOUBTED_CLOCK),
    ("clock ahead at boot", Setup.DOUBTED_CLOCK),
    ("the sender ends while devices have commands", Setup.CLUSTER),
    ("a move interrupted, with writes between", Setup.MOVE),
    ("nobody reads the log", Setup.UNREAD_LOG),
    ("service away from Mosquitto", Setup.MOSQUITTO),
    ("service away, boards go on", Setup.SQLITE),
    ("service away, boards go on", Setup.CLUSTER),
    ("service away for hours, boards go on", Setup.FALSE_CLOCK),
    ("QoS 1 duplicates", Setup.SQLITE),
]


@pytest.mark.parametrize(("name", "setup"), CASES)
async def test_nothing_acknowledged_is_lost_doubled_or_wrong(name: str, setup: Setup) -> None:
    if reason := setup.missing():
        pytest.skip(reason)
    [fault] = [one for one in FAULTS if one.name == name and setup in one.setups]
    async with asyncio.timeout(CASE_TIMEOUT_S):
        row = await campaign(fault, setup, fault.short)
    assert row.verdict.acknowledged > 0
    assert row.verdict.is_clean, row.verdict.notes
