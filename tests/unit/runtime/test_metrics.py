"""Metrics of the device link name statistics that a broker has; how commands end is counted once, and the time to DONE is measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from adapters.engine import _native
from adapters.waiters import InProcessExecutionWaiter
from app.runtime.metrics import COUNTERS, GAUGES, BrokerMetricsCollector, MeasuredExecutionWaiter, MetricsRegistry
from domain.commands.model import Execution, ExecutionStatus
from domain.kernel.ids import ExecutionId


def test_every_metric_reads_a_statistic_of_the_embedded_or_an_external_broker() -> None:
    assert {key for metric in (*GAUGES, *COUNTERS) for key in metric.keys.values()} <= {
        *_native.Broker().stats(),
        "dropped_by_broker",
        "broker_sessions",
        "broker_sessions_away",
    }


def test_the_page_shows_gauges_and_counters_by_reason() -> None:
    metrics = MetricsRegistry()
    metrics.register_collector(BrokerMetricsCollector(read=lambda: {"connections": 3, "refused_will": 2, "connects": 5}))
    page = metrics.render().decode()
    assert "latchboard_mqtt_connections 3.0" in page
    assert 'latchboard_mqtt_refused_total{reason="will"} 2.0' in page
    assert "latchboard_mqtt_connects_total 5.0" in page


def test_a_link_without_these_statistics_shows_no_metric() -> None:
    metrics = MetricsRegistry()
    metrics.register_collector(BrokerMetricsCollector(read=lambda: {"stopped": 0}))
    assert b"latchboard_mqtt" not in metrics.render()


QUEUED = Execution(
    execution_id=ExecutionId("exe_1"),
    **{name: cast("Any", None) for name in Execution.__dataclass_fields__ if name not in ("execution_id", "created_ms")},
    created_ms=1_000,
)


@pytest.fixture
def waiter() -> MeasuredExecutionWaiter:
    return MeasuredExecutionWaiter(InProcessExecutionWaiter())


def page(waiter: MeasuredExecutionWaiter) -> str:
    metrics = MetricsRegistry()
    metrics.register_collector(waiter)
    return metrics.render().decode()


def test_a_finished_command_is_counted_by_status_and_only_done_is_timed(waiter: MeasuredExecutionWaiter) -> None:
    waiter.notify(replace(QUEUED, status=ExecutionStatus.DONE, finished_ms=3_000))
    waiter.notify(replace(QUEUED, status=ExecutionStatus.EXPIRED, finished_ms=61_000))
    text = page(waiter)
    assert 'latchboard_commands_finished_total{status="DONE"} 1.0' in text
    assert 'latchboard_commands_finished_total{status="EXPIRED"} 1.0' in text
    assert 'latchboard_commands_finished_total{status="FAILED"} 0.0' in text
    assert "latchboard_command_seconds_count 1.0" in text
    assert "latchboard_command_seconds_sum 2.0" in text


async def test_a_waiting_caller_still_gets_the_execution(waiter: MeasuredExecutionWaiter) -> None:
    done = replace(QUEUED, status=ExecutionStatus.DONE, finished_ms=3_000)
    with waiter.watch(done.execution_id, by="key_1") as watch:
        assert waiter.has_waiters(done.execution_id)
        waiter.notify(done)
        assert await watch.wait(1) is done
