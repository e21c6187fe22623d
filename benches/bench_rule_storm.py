"""Many rules that fire at one moment, as when a site loses its network: processor time a rule, from the engine's result to the
command at the device, and how much of it passes before the first command.

The cost must be linear: a rule of 10,000 costs what a rule of 1,500 costs.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path

import pytest

from support.in_process_app import in_process_app
from support.rule_storm import add_rules, all_fire, link_of

ROUNDS = 3


async def storm(path: Path, count: int) -> tuple[float, float, float]:
    """Processor seconds a rule to store, and to store and send, and before the first command."""
    async with in_process_app(path) as app:
        result = all_fire(await add_rules(app, count), app.clock.now_ms())
        sent_at: list[float] = []
        link_of(app).on_send = lambda _: sent_at.append(time.process_time())

        async def send() -> None:
            while len(sent_at) < count:
                if not await app.services.dispatch.send_queued():
                    await asyncio.sleep(0.001)

        begun = time.process_time()
        sending = asyncio.create_task(send())
        async with app.services.engine_commit_lock:
            await app.program.workers.rule_timers.store_steps(result)
        stored = time.process_time() - begun
        await asyncio.wait_for(sending, 600)
        return stored / count, (time.process_time() - begun) / count, sent_at[0] - begun


@pytest.mark.parametrize("count", [1_500, 10_000])
def test_a_storm(tmp_path: Path, count: int, benchmark: object) -> None:
    runs = [asyncio.run(storm(tmp_path / str(number), count)) for number in range(ROUNDS)]
    stored, total, first = (statistics.median(column) for column in zip(*runs, strict=True))
    print(
        f"\n  {count} rules: {stored * 1e3:.2f} ms each to store, {total * 1e3:.2f} with sending; first command after {first:.2f} s"
    )
