"""Settings for every test: plain logs, the program's garbage collector thresholds, random order, and leaks charged to their test."""

from __future__ import annotations

import gc
import importlib.util
import logging
import sys
from collections.abc import Iterator

import hypothesis
import pytest
import structlog

from app.runtime import interpreter
from support.process_state import restored_process_state

pytest_plugins = ["support.random_order"]

interpreter.relax()
OLDEST_GENERATION = 2
"""Of the collector. What a collection leaves alive becomes as old as the next generation."""

# httpx imports `sniffio` in each request to an application in process. Python would search for the missing package each time.
if importlib.util.find_spec("sniffio") is None:
    sys.modules["sniffio"] = None  # type: ignore[assignment]

# How long an example takes says more about the machine's other work than about the code.
hypothesis.settings.register_profile(
    "any machine", hypothesis.settings(), deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")

# Rich tracebacks with the locals of every frame take seconds on a busy machine.
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)


@pytest.fixture(scope="session", autouse=True)
def _exclude_imports_from_collections() -> None:
    """What the imports created lives to the end: without it, a collection takes a few milliseconds instead of a hundred."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _restored_process_state() -> Iterator[None]:
    with restored_process_state():
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Fail the test that leaks: collect garbage after its fixtures, so that an open socket, file or process warns now.

    Without this, the collector finds the leak at some later time, and the test that then runs fails. What is older than the test is
    looked at once in each file, after its last test: a file's garbage takes a few milliseconds to traverse, that of one test hardly
    any. What exists then, such as modules that the file imported, lives to the end and is excluded as well.
    """
    yield
    is_last_of_file = nextitem is None or nextitem.path != item.path
    if leaks := collect_leaks(OLDEST_GENERATION if is_last_of_file else OLDEST_GENERATION - 1):
        pytest.fail("this test leaves something open behind:\n" + "\n".join(leaks), pytrace=False)
    if is_last_of_file:
        gc.freeze()


def collect_leaks(generation: int) -> list[str]:
    """Run the collector up to this generation. Returns what finalizers report: resource warnings and other errors in `__del__`, and asyncio's tasks."""
    leaks: list[str] = []
    before, sys.unraisablehook = sys.unraisablehook, lambda found: leaks.append(f"{found.exc_value!r} in {found.object!r}")
    listener = logging.Handler(logging.ERROR)
    listener.emit = lambda record: leaks.extend(lost_tasks(record.getMessage()))  # type: ignore[method-assign]
    logging.getLogger("asyncio").addHandler(listener)
    try:
        gc.collect(generation)
    finally:
        sys.unraisablehook = before
        logging.getLogger("asyncio").removeHandler(listener)
    return leaks


def lost_tasks(message: str) -> list[str]:
    """A task that is destroyed while it waits. A client's future that nobody asked after a kill is no leak of the test."""
    return [message] if message.startswith("Task was destroyed") else []
