"""The service stops in good order on SIGTERM and SIGINT, also when a signal arrives twice."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.service import Service
from support.waiting import TIMEOUT_S


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    running = Service(tmp_path)
    running.start()
    try:
        yield running
    finally:
        if running.process is not None and running.process.poll() is None:
            running.process.kill()
            running.process.wait(TIMEOUT_S)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_two_signals_at_once_are_one_graceful_stop(service: Service, number: signal.Signals) -> None:
    """`timeout` and some shells signal the process and its group."""
    assert service.process is not None
    service.process.send_signal(number)
    service.process.send_signal(number)
    assert service.process.wait(TIMEOUT_S) == 0
    assert "stopped" in service.log()


def test_the_service_starts_again_after_a_stop(service: Service) -> None:
    assert service.process is not None
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(TIMEOUT_S) == 0
    started_at = time.monotonic()
    service.start()
    assert time.monotonic() - started_at < 30  # a bound, not a measurement: docs/reference/performance.md has those
