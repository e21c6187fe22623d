"""The readable engine: messages in, rows, edges and fired actions out. The native engine must equal it, call for call.

A message is checked (`parse.py`), becomes a row (`packing.py`), replaces the device's last values and drives the device's rules
(`rules/reference.py`) at the instant of its arrival. One that is older than the newest of its device becomes a row and no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from domain.kernel.clock import HOUR_MS
from domain.rules.model import (
    DryRun,
    Fired,
    Reading,
    RuleEdge,
    RuleSpec,
    RuleState,
    Suppressed,
    Value,
    in_firing_order,
)
from domain.rules.ports import Fault, MetricReport, Row, Watched
from domain.rules.reference import Report, deadline, explain, step, winner_over
from domain.telemetry import packing
from domain.telemetry.parse import MAX_METRICS, TOO_MANY_METRICS, Message, parse


@dataclass(slots=True)
class Outcome:
    """An `Ingested`, being filled."""

    rows: list[Row] = field(default_factory=list)
    new_names: list[tuple[int, str]] = field(default_factory=list)
    new_metrics: list[MetricReport] = field(default_factory=list)
    edges: list[RuleEdge] = field(default_factory=list)
    fired: list[Fired] = field(default_factory=list)
    suppressed: list[Suppressed] = field(default_factory=list)
    watched: list[Watched] = field(default_factory=list)
    messages: int = 0
    readings: int = 0
    arrivals: dict[int, int] = field(default_factory=dict)
    counted: Counter[tuple[int, str]] = field(default_factory=Counter)

    @property
    def hours(self) -> list[tuple[int, int]]:
        return sorted({(device_no, ts_ms // HOUR_MS) for device_no, ts_ms, _, _ in self.rows})

    @property
    def seen(self) -> list[tuple[int, int]]:
        return list(self.arrivals.items())

    @property
    def faults(self) -> list[Fault]:
        return sorted((device_no, code, count) for (device_no, code), count in self.counted.items())


@dataclass(slots=True)
class _Metric:
    number: int
    unit: str | None = None
    report: Report | None = None


@dataclass(slots=True)
class _Armed:
    """A rule with what the engine remembers of it."""

    rule: RuleSpec
    state: RuleState
    due_ms: int | None = None


@dataclass(slots=True)
class _Device:
    number: int
    metrics: dict[str, _Metric] = field(default_factory=dict)
    newest_ms: int | None = None
    rules: list[_Armed] = field(default_factory=list)
    watched: bool = False

    def reports(self) -> dict[str, Report]:
        return {name: metric.report for name, metric in self.metrics.items() if metric.report is not None}

    def rearm_timers(self) -> None:
        reports = self.reports()
        for armed in self.rules:
            armed.due_ms = deadline(armed.rule, armed.state, reports, None)


class Fleet:
    def __init__(self) -> None:
        self._devices: dict[int, _Device] = {}
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._changed: dict[int, None] = {}

    def put_rules(self, device_no: int, rules: Sequence[RuleSpec]) -> None:
        device = self._device(device_no)
        device.rules = [_Armed(rule, rule.state) for rule in in_firing_order(rules)]
        device.rearm_timers()

    def drop_device(self, device_no: int) -> None:
        self._devices.pop(device_no, None)
        self._changed.pop(device_no, None)

    def watch(self, device_no: int, on: bool) -> None:
        self._device(device_no).watched = on

    def set_metrics(self, names: Sequence[tuple[int, str]]) -> None:
        for number, name in names:
            self._numbers[name] = number
            self._names[number] = name

    def restore(self, device_no: int, latest: bytes) -> None:
        newest_ms, metrics = packing.unpack_latest(latest)
        named = {self._name(kept.metric_no): kept for kept in metrics}
        device = self._device(device_no)
        device.newest_ms = newest_ms
        device.metrics = {
            name: _Metric(kept.metric_no, kept.unit, Report(kept.value, kept.ts_ms, kept.heard_ms))
            for name, kept in named.items()
        }
        device.rearm_timers()

    def replay(self, device_no: int, ts_ms: int, packed: bytes) -> None:
        named = [(self._name(number), number, value) for number, value in packing.unpack(packed)]
        device = self._device(device_no)
        if device.newest_ms is not None and ts_ms < device.newest_ms:
            return
        for name, number, value in named:
            device.metrics.setdefault(name, _Metric(number)).report = Report(value, ts_ms, ts_ms)
        device.newest_ms = ts_ms
        self._changed[device_no] = None
        device.rearm_timers()

    def ingest(self, messages: Sequence[tuple[int, int, bytes]]) -> Outcome:
        outcome = Outcome()
        for device_no, arrived_ms, payload in messages:
            outcome.arrivals[device_no] = max(arrived_ms, outcome.arrivals.get(device_no, arrived_ms))
            parsed = parse(payload, arrived_ms)
            device = self._device(device_no)
            for message in parsed.messages:
                self._take(device, message, arrived_ms, outcome)
            for code, count in parsed.faults.items():
                outcome.counted[device_no, code] += count
        return outcome

    def tick(self, now_ms: int) -> Outcome:
        outcome = Outcome()
        for _, device in sorted(self._devices.items()):
            due = [armed for armed in device.rules if armed.due_ms is not None and armed.due_ms <= now_ms]
            _evaluate(device, due, now_ms, outcome)
        return outcome

    def next_timer_ms(self) -> int | None:
        due = (armed.due_ms for device in self._devices.values() for armed in device.rules)
        return min((due_ms for due_ms in due if due_ms is not None), default=None)

    def checkpoint(self, limit: int) -> list[tuple[int, int, bytes]]:
        taken = list(self._changed)[:limit]
        for device_no in taken:
            del self._changed[device_no]
        return [self._pack_latest(self._devices[device_no]) for device_no in taken]

    def latest(self, device_no: int) -> list[Reading]:
        device = self._devices.get(device_no)
        return [
            Reading(name, metric.report.value, metric.unit, metric.report.ts_ms)
            for name, metric in (device.metrics.items() if device else ())
            if metric.report is not None
        ]

    def dry_run(self, device_no: int, rule: RuleSpec, readings: Mapping[str, Value], at_ms: int) -> DryRun:
        device = self._devices.get(device_no)
        reports = device.reports() if device else {}
        given = {name: Report(value, at_ms, at_ms) for name, value in readings.items()}
        return explain(rule, {**reports, **given}, at_ms)

    def reports(self, device_no: int) -> dict[str, Report]:
        device = self._devices.get(device_no)
        return device.reports() if device else {}

    def _take(self, device: _Device, message: Message, arrived_ms: int, outcome: Outcome) -> None:
        outcome.messages += 1
        accepted = self._register(device, message, outcome)
        if not accepted:
            return
        outcome.readings += len(accepted)
        packed = packing.pack((device.metrics[name].number, value) for name, value in accepted.items())
        outcome.rows.append((device.number, message.ts_ms, packing.digest(packed), packed))
        if device.watched:
            outcome.watched += [
                (device.number, message.ts_ms, name, *packing.columns(value), device.metrics[name].unit)
                for name, value in accepted.items()
            ]
        if device.newest_ms is not None and message.ts_ms < device.newest_ms:
            return
        device.newest_ms = message.ts_ms
        for name, value in accepted.items():
            device.metrics[name].report = Report(value, message.ts_ms, arrived_ms)
        self._changed[device.number] = None
        _evaluate(device, device.rules, arrived_ms, outcome)

    def _register(self, device: _Device, message: Message, outcome: Outcome) -> dict[str, Value]:
        """The message's readings without those that would be one metric too many."""
        accepted = {}
        for name, value in message.readings.items():
            metric = device.metrics.get(name)
            is_new = metric is None
            if metric is None:
                if len(device.metrics) >= MAX_METRICS:
                    outcome.counted[device.number, TOO_MANY_METRICS] += 1
                    continue
                metric = device.metrics[name] = _Metric(self._number(name, outcome))
            unit = message.units.get(name, metric.unit)
            if is_new or unit != metric.unit:
                metric.unit = unit
                outcome.new_metrics.append((device.number, metric.number, name, unit))
            accepted[name] = value
        return accepted

    def _number(self, name: str, outcome: Outcome) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = max(self._names, default=0) + 1
            self.set_metrics([(number, name)])
            outcome.new_names.append((number, name))
        return number

    def _name(self, number: int) -> str:
        if number not in self._names:
            raise ValueError(f"metric number {number} has no name; load the names first")
        return self._names[number]

    def _device(self, device_no: int) -> _Device:
        return self._devices.setdefault(device_no, _Device(device_no))

    def _pack_latest(self, device: _Device) -> tuple[int, int, bytes]:
        newest_ms = device.newest_ms or 0
        metrics = [
            packing.LatestMetric(metric.number, report.value, report.ts_ms, report.heard_ms, metric.unit)
            for metric in device.metrics.values()
            if (report := metric.report) is not None
        ]
        return device.number, newest_ms, packing.pack_latest(newest_ms, metrics)


def _evaluate(device: _Device, rules: Sequence[_Armed], at_ms: int, outcome: Outcome) -> None:
    """One evaluation of these rules, in firing order: who fires here fires at once."""
    reports = device.reports() if rules else {}
    fired: list[RuleSpec] = []
    for armed in rules:
        before, done = armed.state, step(armed.rule, armed.state, reports, at_ms)
        armed.state = done.state
        winner = winner_over(armed.rule, fired) if done.wants_to_fire else None
        if done.cooling or winner is not None:
            winner_no = None if winner is None else winner.rule_no
            outcome.suppressed.append(Suppressed(device.number, armed.rule.rule_no, at_ms, winner_no))
        elif done.wants_to_fire:
            armed.state = replace(done.state, last_fired_ms=at_ms)
            fired.append(armed.rule)
            outcome.fired.append(Fired(device.number, armed.rule.rule_no, at_ms))
        if armed.state != before:
            outcome.edges.append(_edge(device, armed, before, at_ms))
        armed.due_ms = deadline(armed.rule, armed.state, reports, at_ms)


def _edge(device: _Device, armed: _Armed, before: RuleState, at_ms: int) -> RuleEdge:
    after = armed.state
    return RuleEdge(
        device_no=device.number,
        rule_no=armed.rule.rule_no,
        at_ms=at_ms,
        matched=after.matched,
        held_since_ms=after.held_since_ms,
        last_fired_ms=after.last_fired_ms,
        turned=after.matched != before.matched,
    )
