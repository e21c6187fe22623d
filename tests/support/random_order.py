"""A pytest plugin: run test files, and the tests inside each file, in random order. `--random-order=SEED` repeats an order.

Tests of one module-scoped fixture stay together, because a file is never split. The header names the seed. The files that start
processes and wait for them come first, so that no process of the run has a long file left when the others have finished.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

_STARTING_PROCESSES = {"e2e", "faults", "integration", "security"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--random-order",
        metavar="SEED",
        help="run files, and the tests in each file, in random order: `random` chooses a seed, a number repeats that order",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """xdist's workers take the controller's seed, so that all of them collect in one order."""
    if hasattr(config, "workerinput"):
        config.option.random_order = config.workerinput["random_order"]
    elif config.option.random_order == "random":
        config.option.random_order = str(random.SystemRandom().randrange(1_000_000))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["random_order"] = node.config.option.random_order


def pytest_report_header(config: pytest.Config) -> str | None:
    seed = config.option.random_order
    return f"random order: repeat it with --random-order={seed}" if seed else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.option.random_order
    if seed is None:
        return
    dice = random.Random(seed)
    by_file: dict[str, list[pytest.Item]] = {}
    for item in items:
        by_file.setdefault(str(item.path), []).append(item)
    files = sorted(by_file)
    dice.shuffle(files)
    files.sort(key=lambda file: Path(file).parent.name not in _STARTING_PROCESSES)
    for file in files:
        dice.shuffle(by_file[file])
    items[:] = [item for file in files for item in by_file[file]]
