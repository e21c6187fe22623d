"""Many rules that fire at one moment, as when a site loses its network: processor time a rule, from the engine's result to the
command at the device, and how much of it passes before the first command.

They fire by their timers, or by readings that arrive together. The cost must be linear: a rule of 10,000 costs what a rule of 1,500
costs. `LATCHBOARD_TEST_STORM=1500` measures that size only.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from app.workers.ingest import BATCH_SIZE
from domain.ingest.results import IngestResult
from domain.rules.model import Comparator, Rule, RuleCondition
from support.in_process_app import InProcessApp, in_process_app
from support.rule_storm import add_rules, all_fire, link_of

ROUNDS = 3
SIZES = [int(size) for size in os.environ.get("LATCHBOARD_TEST_STORM", "1500,10000").split(",")]
HOT = RuleCondition("temperature", Comparator.GREATER, 30.0)


async def fire_by_timers(app: InProcessApp, rules: list[Rule]) -> Callable[[], Awaitable[Any]]:
    result = all_fire(rules, app.clock.now_ms())
    return lambda: app.program.workers.rule_timers.store_steps(result)


async def fire_by_readings(app: InProcessApp, rules: list[Rule]) -> Callable[[], Awaitable[Any]]:
    """In batches as the ingest worker takes them from the broker."""
    parts = app.program.adapters.engine
    await app.report(rules[0].device_id, temperature=20)
    for rule in rules:
        parts.engine.set_rules(rule.device_no, [rule.to_spec()])

    async def ingest() -> None:
        for start in range(0, len(rules), BATCH_SIZE):
            messages = [(one.device_no, app.clock.now_ms(), b'{"temperature": 40}') for one in rules[start : start + BATCH_SIZE]]
            result = parts.engine.ingest(parts.make_batch(messages))
            async with app.services.uow.write(caller=None) as tx:
                await app.services.ingest.store(tx, IngestResult.of(result))

    return ingest


FIRE = {"timers": fire_by_timers, "readings": fire_by_readings}


async def storm(path: Path, count: int, cause: str) -> tuple[float, float, float]:
    """Processor seconds a rule to store, and to store and send, and before the first command."""
    async with in_process_app(path, engine="native") as app:
        rules = await add_rules(app, count, *([HOT] if cause == "readings" else []))
        fire = await FIRE[cause](app, rules)
        sent_at: list[float] = []
        link_of(app).on_send = lambda _: sent_at.append(time.process_time())

        async def send() -> None:
            while len(sent_at) < count:
                if not await app.services.dispatch.send_queued():
                    await asyncio.sleep(0.001)

        begun = time.process_time()
        sending = asyncio.create_task(send())
        async with app.services.engine_commit_lock:
            await fire()
        stored = time.process_time() - begun
        await asyncio.wait_for(sending, 600)
        return stored / count, (time.process_time() - begun) / count, sent_at[0] - begun


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("cause", FIRE)
def test_a_storm(tmp_path: Path, count: int, cause: str, benchmark: object) -> None:
    runs = [asyncio.run(storm(tmp_path / str(number), count, cause)) for number in range(ROUNDS)]
    stored, total, first = (statistics.median(column) for column in zip(*runs, strict=True))
    print(
        f"\n  {count} rules by {cause}: {stored * 1e3:.2f} ms each to store, {total * 1e3:.2f} with sending; "
        f"first command after {first:.2f} s"
    )
