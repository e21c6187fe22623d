"""The reference engine: messages in; rows, rule transitions and firings out. The native engine must equal it, call for call.

A message is parsed (`payload_parser.py`), becomes a row (`packing.py`), replaces the device's latest values, and the device's
rules (`rules/reference.py`) are evaluated at its arrival. A message older than the newest one of its device becomes a row only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from domain.kernel.clock import HOUR_MS
from domain.rules.engine_port import (
    Aggregator,
    MessageFault,
    NewMetric,
    TelemetryBatch,
    TelemetryRow,
    UnpackedReading,
    WatchedReading,
)
from domain.rules.model import (
    LatestReading,
    MetricValue,
    RuleDryRun,
    RuleFiring,
    RuleSpec,
    RuleState,
    RuleSuppression,
    RuleTransition,
    in_firing_order,
)
from domain.rules.reference import LastReport, evaluate_rule, explain_rule, find_winner, next_deadline_ms
from domain.telemetry import packing
from domain.telemetry.engine.aggregate import ReferenceAggregator
from domain.telemetry.engine.payload_parser import MAX_METRICS, TOO_MANY_METRICS, TelemetryMessage, parse_payload


@dataclass(slots=True)
class ReferenceBatchResult:
    """The `BatchResult` port, filled while the engine runs."""

    rows: list[TelemetryRow] = field(default_factory=list)
    new_metric_names: list[tuple[int, str]] = field(default_factory=list)
    new_metrics: list[NewMetric] = field(default_factory=list)
    rule_transitions: list[RuleTransition] = field(default_factory=list)
    rule_firings: list[RuleFiring] = field(default_factory=list)
    rule_suppressions: list[RuleSuppression] = field(default_factory=list)
    watched_readings: list[WatchedReading] = field(default_factory=list)
    message_count: int = 0
    reading_count: int = 0
    newest_arrivals: dict[int, int] = field(default_factory=dict)
    fault_counts: Counter[tuple[int, str]] = field(default_factory=Counter)

    @property
    def rollup_hours(self) -> list[tuple[int, int]]:
        return sorted({(device_no, ts_ms // HOUR_MS) for device_no, ts_ms, _, _ in self.rows})

    @property
    def last_seen(self) -> list[tuple[int, int]]:
        return list(self.newest_arrivals.items())

    @property
    def faults(self) -> list[MessageFault]:
        return sorted((device_no, code, count) for (device_no, code), count in self.fault_counts.items())


@dataclass(slots=True)
class _MetricState:
    number: int
    unit: str | None = None
    last_report: LastReport | None = None


@dataclass(slots=True)
class _TrackedRule:
    """A rule with its state and its timer."""

    rule: RuleSpec
    state: RuleState
    due_ms: int | None = None


@dataclass(slots=True)
class _DeviceState:
    number: int
    metrics: dict[str, _MetricState] = field(default_factory=dict)
    newest_ms: int | None = None
    rules: list[_TrackedRule] = field(default_factory=list)
    watched: bool = False

    def last_reports(self) -> dict[str, LastReport]:
        return {name: metric.last_report for name, metric in self.metrics.items() if metric.last_report is not None}

    def reset_timers(self) -> None:
        reports = self.last_reports()
        for tracked in self.rules:
            tracked.due_ms = next_deadline_ms(tracked.rule, tracked.state, reports, None)


class ReferenceEngine:
    """The `TelemetryEngine` port in Python."""

    def __init__(self) -> None:
        self._devices: dict[int, _DeviceState] = {}
        self._metric_numbers: dict[str, int] = {}
        self._metric_names: dict[int, str] = {}
        self._dirty_devices: dict[int, None] = {}

    def set_rules(self, device_no: int, rules: Sequence[RuleSpec]) -> None:
        device = self._get_or_create_device(device_no)
        device.rules = [_TrackedRule(rule, rule.state) for rule in in_firing_order(rules)]
        device.reset_timers()

    def remove_device(self, device_no: int) -> None:
        self._devices.pop(device_no, None)
        self._dirty_devices.pop(device_no, None)

    def set_watched(self, device_no: int, on: bool) -> None:
        self._get_or_create_device(device_no).watched = on

    def add_metric_names(self, names: Sequence[tuple[int, str]]) -> None:
        for number, name in names:
            self._metric_numbers[name] = number
            self._metric_names[number] = name

    def restore(self, device_no: int, latest: bytes) -> None:
        newest_ms, metrics = packing.unpack_latest(latest)
        named = {self._metric_name(metric.metric_no): metric for metric in metrics}
        device = self._get_or_create_device(device_no)
        device.newest_ms = newest_ms
        device.metrics = {
            name: _MetricState(metric.metric_no, metric.unit, LastReport(metric.value, metric.ts_ms, metric.arrived_ms))
            for name, metric in named.items()
        }
        device.reset_timers()

    def replay(self, device_no: int, ts_ms: int, packed: bytes) -> None:
        named = [(self._metric_name(number), number, value) for number, value in packing.unpack_readings(packed)]
        device = self._get_or_create_device(device_no)
        if device.newest_ms is not None and ts_ms < device.newest_ms:
            return
        for name, number, value in named:
            device.metrics.setdefault(name, _MetricState(number)).last_report = LastReport(value, ts_ms, ts_ms)
        device.newest_ms = ts_ms
        self._dirty_devices[device_no] = None
        device.reset_timers()

    def ingest(self, batch: TelemetryBatch) -> ReferenceBatchResult:
        result = ReferenceBatchResult()
        for device_no, arrived_ms, payload in batch.messages():
            result.newest_arrivals[device_no] = max(arrived_ms, result.newest_arrivals.get(device_no, arrived_ms))
            parsed = parse_payload(payload, arrived_ms)
            device = self._get_or_create_device(device_no)
            for message in parsed.messages:
                self._ingest_message(device, message, arrived_ms, result)
            for code, count in parsed.faults.items():
                result.fault_counts[device_no, code] += count
        return result

    def tick(self, now_ms: int) -> ReferenceBatchResult:
        result = ReferenceBatchResult()
        for _, device in sorted(self._devices.items()):
            due = [tracked for tracked in device.rules if tracked.due_ms is not None and tracked.due_ms <= now_ms]
            _evaluate(device, due, now_ms, result)
        return result

    def next_timer_ms(self) -> int | None:
        due = (tracked.due_ms for device in self._devices.values() for tracked in device.rules)
        return min((due_ms for due_ms in due if due_ms is not None), default=None)

    def checkpoint(self, limit: int) -> list[tuple[int, int, bytes]]:
        taken = list(self._dirty_devices)[:limit]
        for device_no in taken:
            del self._dirty_devices[device_no]
        return [self._pack_latest(self._devices[device_no]) for device_no in taken]

    def latest(self, device_no: int) -> list[LatestReading]:
        device = self._devices.get(device_no)
        return [
            LatestReading(name, metric.last_report.value, metric.unit, metric.last_report.ts_ms)
            for name, metric in (device.metrics.items() if device else ())
            if metric.last_report is not None
        ]

    def dry_run(self, device_no: int, rule: RuleSpec, readings: Mapping[str, MetricValue], at_ms: int) -> RuleDryRun:
        device = self._devices.get(device_no)
        reports = device.last_reports() if device else {}
        given = {name: LastReport(value, at_ms, at_ms) for name, value in readings.items()}
        return explain_rule(rule, {**reports, **given}, at_ms)

    def unpack_readings(self, rows: Iterable[tuple[int, bytes]], metric_no: int | None = None) -> list[UnpackedReading]:
        return packing.unpack_rows(rows, metric_no)

    def create_aggregator(self, step_ms: int, metric_no: int | None = None) -> Aggregator:
        return ReferenceAggregator(step_ms, metric_no)

    def _ingest_message(
        self, device: _DeviceState, message: TelemetryMessage, arrived_ms: int, result: ReferenceBatchResult
    ) -> None:
        result.message_count += 1
        accepted = self._register_metrics(device, message, result)
        if not accepted:
            return
        result.reading_count += len(accepted)
        packed = packing.pack_readings((device.metrics[name].number, value) for name, value in accepted.items())
        result.rows.append((device.number, message.ts_ms, packing.row_digest(packed), packed))
        if device.watched:
            result.watched_readings += [
                (device.number, message.ts_ms, name, *packing.value_columns(value), device.metrics[name].unit)
                for name, value in accepted.items()
            ]
        if device.newest_ms is not None and message.ts_ms < device.newest_ms:
            return
        device.newest_ms = message.ts_ms
        for name, value in accepted.items():
            device.metrics[name].last_report = LastReport(value, message.ts_ms, arrived_ms)
        self._dirty_devices[device.number] = None
        _evaluate(device, device.rules, arrived_ms, result)

    def _register_metrics(
        self, device: _DeviceState, message: TelemetryMessage, result: ReferenceBatchResult
    ) -> dict[str, MetricValue]:
        """The readings of the message without those that exceed the metric limit of the device."""
        accepted = {}
        for name, value in message.readings.items():
            metric = device.metrics.get(name)
            is_new = metric is None
            if metric is None:
                if len(device.metrics) >= MAX_METRICS:
                    result.fault_counts[device.number, TOO_MANY_METRICS] += 1
                    continue
                metric = device.metrics[name] = _MetricState(self._metric_number(name, result))
            unit = message.units.get(name, metric.unit)
            if is_new or unit != metric.unit:
                metric.unit = unit
                result.new_metrics.append((device.number, metric.number, name, unit))
            accepted[name] = value
        return accepted

    def _metric_number(self, name: str, result: ReferenceBatchResult) -> int:
        number = self._metric_numbers.get(name)
        if number is None:
            number = max(self._metric_names, default=0) + 1
            self.add_metric_names([(number, name)])
            result.new_metric_names.append((number, name))
        return number

    def _metric_name(self, number: int) -> str:
        if number not in self._metric_names:
            raise ValueError(f"metric number {number} has no name; load the names first")
        return self._metric_names[number]

    def _get_or_create_device(self, device_no: int) -> _DeviceState:
        return self._devices.setdefault(device_no, _DeviceState(device_no))

    def _pack_latest(self, device: _DeviceState) -> tuple[int, int, bytes]:
        newest_ms = device.newest_ms or 0
        metrics = [
            packing.LatestMetric(metric.number, report.value, report.ts_ms, report.arrived_ms, metric.unit)
            for metric in device.metrics.values()
            if (report := metric.last_report) is not None
        ]
        return device.number, newest_ms, packing.pack_latest(newest_ms, metrics)


def _evaluate(device: _DeviceState, rules: Sequence[_TrackedRule], at_ms: int, result: ReferenceBatchResult) -> None:
    """Evaluate these rules at one instant, in firing order."""
    reports = device.last_reports() if rules else {}
    fired: list[RuleSpec] = []
    for tracked in rules:
        before, evaluation = tracked.state, evaluate_rule(tracked.rule, tracked.state, reports, at_ms)
        tracked.state = evaluation.state
        winner = find_winner(tracked.rule, fired) if evaluation.wants_to_fire else None
        if evaluation.in_cooldown or winner is not None:
            winner_no = None if winner is None else winner.rule_no
            result.rule_suppressions.append(RuleSuppression(device.number, tracked.rule.rule_no, at_ms, winner_no))
        elif evaluation.wants_to_fire:
            tracked.state = replace(evaluation.state, last_fired_ms=at_ms)
            fired.append(tracked.rule)
            result.rule_firings.append(RuleFiring(device.number, tracked.rule.rule_no, at_ms))
        if tracked.state != before:
            result.rule_transitions.append(_rule_transition(device, tracked, before, at_ms))
        tracked.due_ms = next_deadline_ms(tracked.rule, tracked.state, reports, at_ms)


def _rule_transition(device: _DeviceState, tracked: _TrackedRule, before: RuleState, at_ms: int) -> RuleTransition:
    after = tracked.state
    return RuleTransition(
        device_no=device.number,
        rule_no=tracked.rule.rule_no,
        at_ms=at_ms,
        matched=after.matched,
        held_since_ms=after.held_since_ms,
        last_fired_ms=after.last_fired_ms,
        matched_changed=after.matched != before.matched,
    )
