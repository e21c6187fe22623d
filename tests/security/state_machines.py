"""Hypothesis machines over one whole program: each example has its own account in the same database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from support.empty_database import empty_postgres
from support.in_process_app import InProcessApp, in_process_app


@contextmanager
def running_app(folder: Path, database: str = "sqlite") -> Iterator[tuple[asyncio.Runner, InProcessApp]]:
    """A program and its event loop, for synchronous code."""
    with asyncio.Runner() as runner:
        program = (
            in_process_app(folder) if database == "sqlite" else in_process_app(folder, database_url=runner.run(empty_postgres()))
        )
        made = runner.run(program.__aenter__())
        try:
            yield runner, made
        finally:
            runner.run(program.__aexit__(None, None, None))


def run_machine(machine: Callable[[], RuleBasedStateMachine], *, examples: int, steps: int) -> None:
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
    )
    run_state_machine_as_test(machine, settings=chosen)  # type: ignore[arg-type]  # takes a factory too
