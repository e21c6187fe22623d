"""What the reference engine keeps of a device, and how its timers and rules run over it. `reference_engine.py` says the laws."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from domain.kernel.clock import HOUR_MS
from domain.rules.model import EngineRule, RuleFiring, RuleState, RuleSuppression, RuleTransition
from domain.rules.ports import Checkpoint, ClockOffset, FaultMetric, MessageFault, NewMetric, TelemetryRow, WatchedReading
from domain.rules.reference import (
    LastMetricValue,
    deadlines_ms,
    evaluate_rule,
    find_winner,
    next_deadline_ms,
    resumed_ms,
    shift_state,
)
from domain.telemetry.reference_parser import MAX_AHEAD_MS, MessageTime


@dataclass(slots=True)
class ReferenceBatchResult:
    """The `BatchResult` port, filled while the engine runs."""

    rows: list[TelemetryRow] = field(default_factory=list)
    not_replayed: dict[int, None] = field(default_factory=dict)
    """Devices with a value whose row a restart does not replay."""
    checkpoints: list[Checkpoint] = field(default_factory=list)
    consumed: int = 0
    unknown_metric_names: list[str] = field(default_factory=list)
    new_metrics: list[NewMetric] = field(default_factory=list)
    rule_transitions: list[RuleTransition] = field(default_factory=list)
    rule_firings: list[RuleFiring] = field(default_factory=list)
    rule_suppressions: list[RuleSuppression] = field(default_factory=list)
    watched_readings: list[WatchedReading] = field(default_factory=list)
    message_count: int = 0
    reading_count: int = 0
    newest_arrivals: dict[int, int] = field(default_factory=dict)
    fault_counts: Counter[tuple[int, str]] = field(default_factory=Counter)
    named_faults: dict[tuple[int, str], str] = field(default_factory=dict)
    ahead_ms: dict[int, int] = field(default_factory=dict)

    @property
    def rollup_hours(self) -> list[tuple[int, int]]:
        return sorted({(device_no, ts_ms // HOUR_MS) for device_no, ts_ms, _, _ in self.rows})

    @property
    def last_seen(self) -> list[tuple[int, int]]:
        return list(self.newest_arrivals.items())

    @property
    def clocks_ahead(self) -> list[ClockOffset]:
        return sorted(self.ahead_ms.items())

    @property
    def faults(self) -> list[MessageFault]:
        return sorted((device_no, code, count) for (device_no, code), count in self.fault_counts.items())

    @property
    def fault_metrics(self) -> list[FaultMetric]:
        return sorted((device_no, code, metric) for (device_no, code), metric in self.named_faults.items())


@dataclass(slots=True)
class ReferenceMetricState:
    number: int
    unit: str | None = None
    last_report: LastMetricValue | None = None
    """What rules see."""
    later: LastMetricValue | None = None
    """A reading of a later time than what rules see: it came late, or a message of an earlier time drove rules since."""

    @property
    def latest(self) -> LastMetricValue | None:
        return self.later or self.last_report

    def report(self, report: LastMetricValue, now_ms: int | None) -> None:
        """Of a message that drives rules."""
        latest = self.latest
        self.later = latest if _is_later(latest, report, now_ms) else None
        self.last_report = report

    def report_late(self, report: LastMetricValue, now_ms: int | None) -> bool:
        """Of a message that rules do not see. Returns whether it is the latest value now."""
        if _is_later(self.latest, report, now_ms):
            return False
        self.later = report
        return True


def _is_later(latest: LastMetricValue | None, report: LastMetricValue, now_ms: int | None) -> bool:
    """A time too far after the present is not believed: the service's clock was ahead."""
    if latest is None or latest.ts_ms <= report.ts_ms:
        return False
    return now_ms is None or latest.ts_ms <= now_ms + MAX_AHEAD_MS


@dataclass(slots=True)
class TrackedRule:
    """A rule with its state and its timer."""

    rule: EngineRule
    state: RuleState
    due_ms: int | None = None
    evaluated_ms: int | None = None
    """None: not since the rule or the values were put from outside."""


@dataclass(slots=True)
class ReferenceDeviceTelemetryState:
    """What the engine keeps of a device, and how its rules are evaluated over it."""

    number: int
    metrics: dict[str, ReferenceMetricState] = field(default_factory=dict)
    newest_ms: int | None = None
    arrived_ms: int = 0
    """Arrival of the newest message."""
    time_by_device: bool = False
    """Whether the time of the newest message is its `ts`."""
    late_since_ms: int | None = None
    """Arrival of the first of the late messages since the newest message."""
    at_checkpoint: bool = False
    """Whether the last checkpoint has the time of the newest message."""
    rules: list[TrackedRule] = field(default_factory=list)
    watched: bool = False
    deaf_since_ms: int | None = None
    """Since when the device could not be heard; its timers stand still."""
    deaf_until_ms: int = 0
    """A message that arrived earlier has waited in a log: the device was heard until then."""

    def last_reports(self) -> dict[str, LastMetricValue]:
        return {name: metric.last_report for name, metric in self.metrics.items() if metric.last_report is not None}

    def is_late(self, time: MessageTime, arrived_ms: int) -> bool:
        if self.newest_ms is None:
            return False
        if not time.by_device:
            return arrived_ms + MAX_AHEAD_MS < self.arrived_ms
        if time.ts_ms >= self.newest_ms:
            return False
        if self.late_since_ms is None:
            self.late_since_ms = arrived_ms
        return arrived_ms - self.late_since_ms < MAX_AHEAD_MS

    def is_replayed(self, ts_ms: int) -> bool:
        """Whether a restart replays a row of this time."""
        return self.newest_ms is None or ts_ms > self.newest_ms or (ts_ms == self.newest_ms and not self.at_checkpoint)

    def set_newest(self, time: MessageTime, arrived_ms: int) -> None:
        self.at_checkpoint = self.at_checkpoint and time.ts_ms == self.newest_ms
        self.newest_ms, self.arrived_ms = time.ts_ms, arrived_ms
        self.time_by_device = time.by_device
        self.late_since_ms = None

    def reset_timers(self) -> None:
        reports = self.last_reports()
        for tracked in self.rules:
            tracked.evaluated_ms = None
            tracked.due_ms = next_deadline_ms(tracked.rule, tracked.state, reports, None)

    @property
    def running(self) -> Sequence[TrackedRule]:
        """The rules whose timers do not stand still."""
        return self.rules if self.deaf_since_ms is None else ()

    def deafen(self, since_ms: int, until_ms: int) -> None:
        self.deaf_since_ms = since_ms if self.deaf_since_ms is None else self.deaf_since_ms
        self.deaf_until_ms = until_ms

    def advance(self, at_ms: int, result: ReferenceBatchResult) -> None:
        """A message arrived at `at_ms`: evaluate what was due before, each at its time. A timer of the same millisecond is judged
        with the message. Of a rule that was not evaluated since it was put, earlier instants may be judged already: it is
        evaluated at the last one, or at the time since when there is the rule, if that is later."""
        if self.deaf_since_ms is not None:
            self.deaf_since_ms = max(self.deaf_since_ms, at_ms)
        reports = self.last_reports()
        for tracked in self.rules:
            if tracked.evaluated_ms is None:
                past = [due_ms for due_ms in deadlines_ms(tracked.rule, tracked.state, reports) if due_ms < at_ms]
                if past:
                    tracked.due_ms = max(*past, tracked.rule.since_ms or past[0])
        while due := [tracked.due_ms for tracked in self.rules if tracked.due_ms is not None and tracked.due_ms < at_ms]:
            due_ms = min(due)
            self.evaluate_rules([tracked for tracked in self.rules if tracked.due_ms == due_ms], due_ms, result)

    def hear(self, at_ms: int, result: ReferenceBatchResult) -> None:
        """The device has spoken. Moved arrivals say nothing about its clock."""
        if self.deaf_since_ms is None:
            return
        since_ms, self.deaf_since_ms = self.deaf_since_ms, None
        if self.newest_ms is not None:
            self.time_by_device = False
            self.arrived_ms = resumed_ms(self.arrived_ms, since_ms, at_ms)
        for metric in self.metrics.values():
            if metric.last_report is not None:
                arrived_ms = resumed_ms(metric.last_report.arrived_ms, since_ms, at_ms)
                metric.last_report = replace(metric.last_report, arrived_ms=arrived_ms)
        for tracked in self.rules:
            before = tracked.state
            if before.held_since_ms is not None:
                tracked.state = replace(before, held_since_ms=resumed_ms(before.held_since_ms, since_ms, at_ms))
            if tracked.state != before:
                result.rule_transitions.append(_rule_transition(self, tracked, before, at_ms))
        self.reset_timers()

    def evaluate_rules(self, rules: Sequence[TrackedRule], at_ms: int, result: ReferenceBatchResult) -> None:
        """Evaluate these rules at one instant, in firing order."""
        reports = self.last_reports() if rules else {}
        fired: list[EngineRule] = []
        for tracked in rules:
            before, evaluation = tracked.state, evaluate_rule(tracked.rule, tracked.state, reports, at_ms)
            tracked.state = evaluation.state
            winner = find_winner(tracked.rule, fired) if evaluation.wants_to_fire else None
            if evaluation.in_cooldown or winner is not None:
                winner_no = None if winner is None else winner.rule_no
                result.rule_suppressions.append(RuleSuppression(self.number, tracked.rule.rule_no, at_ms, winner_no))
            elif evaluation.wants_to_fire:
                tracked.state = replace(evaluation.state, last_fired_ms=at_ms)
                fired.append(tracked.rule)
                result.rule_firings.append(RuleFiring(self.number, tracked.rule.rule_no, at_ms))
            if tracked.state != before:
                result.rule_transitions.append(_rule_transition(self, tracked, before, at_ms))
            tracked.evaluated_ms = at_ms
            tracked.due_ms = next_deadline_ms(tracked.rule, tracked.state, reports, at_ms)

    def shift_clock(self, step_ms: int, now_ms: int, result: ReferenceBatchResult) -> None:
        """Move everything that counts from an arrival. The times of readings stay: they are stored, or the device's."""
        if self.newest_ms is not None:
            self.arrived_ms += step_ms
        if self.late_since_ms is not None:
            self.late_since_ms += step_ms
        if self.deaf_since_ms is not None:
            self.deaf_since_ms += step_ms
            self.deaf_until_ms += step_ms
        if self.newest_ms is not None and self.newest_ms > now_ms:
            self.late_since_ms = now_ms - MAX_AHEAD_MS  # the newest time is of the clock as it was: not believed
        for metric in self.metrics.values():
            if metric.last_report is not None:
                metric.last_report = replace(metric.last_report, arrived_ms=metric.last_report.arrived_ms + step_ms)
        for tracked in self.rules:
            before, tracked.state = tracked.state, shift_state(tracked.rule, tracked.state, step_ms, now_ms)
            if tracked.due_ms is not None:
                tracked.due_ms += step_ms
            if tracked.evaluated_ms is not None:
                tracked.evaluated_ms += step_ms
            if tracked.rule.since_ms is not None:
                tracked.rule = replace(tracked.rule, since_ms=tracked.rule.since_ms + step_ms)
            if tracked.state != before:
                result.rule_transitions.append(_rule_transition(self, tracked, before, now_ms))


def _rule_transition(
    device: ReferenceDeviceTelemetryState, tracked: TrackedRule, before: RuleState, at_ms: int
) -> RuleTransition:
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
