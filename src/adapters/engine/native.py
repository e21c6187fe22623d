"""The engine, window evaluator and signers of the extension `_native`, as the domain's ports want them.

Values cross the border as plain tuples; what comes back per batch is turned into domain types only where it is rare (edges,
firings), never per message. Importing this module without the extension raises `EngineMissing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from adapters.engine.freshness import EngineMissing
from domain.kernel.clock import SECOND_MS
from domain.kernel.errors import Invalid
from domain.rules.model import (
    Comparator,
    Condition,
    DryRun,
    Fired,
    Match,
    Reading,
    RuleEdge,
    RuleSpec,
    Suppressed,
    Value,
)
from domain.rules.ports import Fault, Ingested, MetricReport, Row, Tally, TelemetryBatch, Unpacked, Watched
from domain.rules.reference import Report, explain
from domain.webhooks.reference import standard_key

try:
    from adapters.engine import _native
except ImportError as missing:
    raise EngineMissing from missing

_ConditionTuple = tuple[str, str, float, str | None]
"""(metric, comparator, number or milliseconds, text)"""

_RuleTuple = tuple[
    int, int, bool, list[_ConditionTuple], list[_ConditionTuple], int, int, str, bool, int | None, int | None
]
"""(rule, priority, any, conditions, clear conditions, for ms, cooldown ms, command, matched, held since, last fired)"""


class NativeIngested:
    """A batch's result. What is asked for is built then; only rare things become domain objects."""

    __slots__ = ("_raw",)

    def __init__(self, raw: _native.Ingested) -> None:
        self._raw = raw

    @property
    def rows(self) -> list[Row]:
        return self._raw.rows

    @property
    def hours(self) -> list[tuple[int, int]]:
        return self._raw.hours

    @property
    def new_names(self) -> list[tuple[int, str]]:
        return self._raw.new_names

    @property
    def new_metrics(self) -> list[MetricReport]:
        return self._raw.new_metrics

    @property
    def edges(self) -> list[RuleEdge]:
        return list(map(RuleEdge._make, self._raw.edges))

    @property
    def fired(self) -> list[Fired]:
        return list(map(Fired._make, self._raw.fired))

    @property
    def suppressed(self) -> list[Suppressed]:
        return list(map(Suppressed._make, self._raw.suppressed))

    @property
    def watched(self) -> list[Watched]:
        return self._raw.watched

    @property
    def faults(self) -> list[Fault]:
        return self._raw.faults

    @property
    def seen(self) -> list[tuple[int, int]]:
        return self._raw.seen

    @property
    def messages(self) -> int:
        return self._raw.messages

    @property
    def readings(self) -> int:
        return self._raw.readings


class NativeEngine:
    def __init__(self) -> None:
        self._engine = _native.Engine()

    def put_rules(self, device_no: int, rules: Sequence[RuleSpec]) -> None:
        self._engine.put_rules(device_no, [_rule(rule) for rule in rules if rule.enabled])

    def drop_device(self, device_no: int) -> None:
        self._engine.drop_device(device_no)

    def watch(self, device_no: int, on: bool) -> None:
        self._engine.watch(device_no, on)

    def set_metrics(self, names: Sequence[tuple[int, str]]) -> None:
        self._engine.set_metrics(names)

    def restore(self, device_no: int, latest: bytes) -> None:
        self._engine.restore(device_no, latest)

    def replay(self, device_no: int, ts_ms: int, packed: bytes) -> None:
        self._engine.replay(device_no, ts_ms, packed)

    def ingest(self, batch: TelemetryBatch) -> Ingested:
        native = batch if isinstance(batch, _native.TelemetryBatch) else _native.TelemetryBatch(batch.messages())
        return NativeIngested(self._engine.ingest(native))

    def tick(self, now_ms: int) -> Ingested:
        return NativeIngested(self._engine.tick(now_ms))

    def next_timer_ms(self) -> int | None:
        return self._engine.next_timer_ms()

    def checkpoint(self, limit: int) -> list[tuple[int, int, bytes]]:
        return self._engine.checkpoint(limit)

    def latest(self, device_no: int) -> list[Reading]:
        return [Reading(name, value, unit, ts_ms) for name, value, unit, ts_ms, _ in self._engine.latest(device_no)]

    def dry_run(self, device_no: int, rule: RuleSpec, readings: Mapping[str, Value], at_ms: int) -> DryRun:
        """A dry run is asked for by a person, once: the readable definition explains it over the native values."""
        last = {name: Report(value, ts_ms, heard_ms) for name, value, _, ts_ms, heard_ms in self._engine.latest(device_no)}
        given = {name: Report(value, at_ms, at_ms) for name, value in readings.items()}
        return explain(rule, {**last, **given}, at_ms)

    def unpack(self, rows: Iterable[tuple[int, bytes]], metric_no: int | None = None) -> list[Unpacked]:
        return _native.unpack(rows, metric_no)

    def tally(self, step_ms: int, metric_no: int | None = None) -> Tally:
        return _native.Tally(step_ms, metric_no)


class NativeSigners:
    def signer(self, secret: str) -> _native.Signer:
        standard_key(secret)
        return _native.Signer(secret)


def _rule(rule: RuleSpec) -> _RuleTuple:
    return (
        rule.rule_no,
        rule.priority,
        rule.match is Match.ANY,
        [_condition(condition) for condition in rule.conditions],
        [_condition(condition) for condition in rule.clear_conditions],
        rule.for_seconds * SECOND_MS,
        rule.cooldown_seconds * SECOND_MS,
        rule.command,
        rule.state.matched,
        rule.state.held_since_ms,
        rule.state.last_fired_ms,
    )


def _condition(condition: Condition) -> _ConditionTuple:
    if isinstance(condition.value, str):
        return (condition.metric, condition.comparator.value, 0.0, condition.value)
    if condition.comparator is Comparator.SILENT:
        return (condition.metric, condition.comparator.value, float(condition.silent_ms), None)
    try:
        number = float(condition.value)
    except OverflowError:
        raise Invalid.field("value", "must fit an IEEE double.") from None
    return (condition.metric, condition.comparator.value, number, None)


def batch_of(messages: Iterable[tuple[int, int, bytes]]) -> TelemetryBatch:
    """(device number, arrival in Unix ms, payload) tuples as the engine takes them fastest."""
    return _native.TelemetryBatch(messages)
