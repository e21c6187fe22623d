"""Counts how commands end, and how long they take."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager

from prometheus_client import Counter, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from domain.commands.model import Execution, ExecutionStatus
from domain.commands.ports import ExecutionWaiter
from domain.kernel.clock import SECOND_MS
from domain.kernel.ids import ExecutionId
from domain.kernel.ports import ResultWaitHandle

_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3_600.0)
"""From a device on the local network to one that connects hours later: a command may wait up to a day."""


class MeasuredExecutionWaiter(Collector):
    """An ExecutionWaiter that measures each finished execution of this instance and passes everything on to `waiter`."""

    def __init__(self, waiter: ExecutionWaiter) -> None:
        self._waiter = waiter
        self._finished = Counter(
            "latchboard_commands_finished", "Commands that ended, by final status.", ["status"], registry=None
        )
        self._seconds = Histogram(
            "latchboard_command_seconds",
            "Time from a queued command to the result of the device, for commands that are DONE.",
            buckets=_BUCKETS_S,
            registry=None,
        )
        for status in ExecutionStatus:
            if status.is_final:
                self._finished.labels(status.value)  # visible as 0 before the first such command

    def notify(self, execution: Execution) -> None:
        self._finished.labels(execution.status.value).inc()
        if execution.status is ExecutionStatus.DONE and execution.finished_ms is not None:
            self._seconds.observe(max(0, execution.finished_ms - execution.created_ms) / SECOND_MS)
        self._waiter.notify(execution)

    def has_waiters(self, execution_id: ExecutionId) -> bool:
        return self._waiter.has_waiters(execution_id)

    def watch(self, execution_id: ExecutionId, by: str) -> AbstractContextManager[ResultWaitHandle[Execution]]:
        return self._waiter.watch(execution_id, by)

    def collect(self) -> Iterable[Metric]:
        yield from self._finished.collect()
        yield from self._seconds.collect()
