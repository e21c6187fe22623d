"""Benches count processor time, not wall time: the machines they run on are shared and noisy.

`messages_per_cpu_second` (or `per_call_us`) is written into each result; `docs/reference/performance.md` holds the ratios.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

ROUNDS = 5


@pytest.fixture
def cpu(benchmark: Any) -> Callable[[Callable[[], object], int], float]:
    """Run `work` for some rounds; returns units of work per processor second of the best round."""

    def run(work: Callable[[], object], units: int) -> float:
        spent: list[float] = []

        def timed() -> None:
            begin = time.process_time()
            work()
            spent.append(time.process_time() - begin)

        benchmark.pedantic(timed, rounds=ROUNDS, warmup_rounds=1)
        best = min(spent)
        rate = units / best if best > 0 else 0.0
        benchmark.extra_info["per_cpu_second"] = round(rate)
        benchmark.extra_info["us_each"] = round(1e6 * best / units, 4)
        print(f"\n  {benchmark.name}: {rate / 1e6:.3f} M/s of CPU, {1e6 * best / units:.3f} us each")
        return rate

    return run
