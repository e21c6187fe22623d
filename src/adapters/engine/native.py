"""The ports that the extension `_native` implements: the telemetry engine, the hash chain of the event log, grant windows and
limits, and webhook signatures. The domain's reference definitions say what each must do.

Rows cross the boundary as the tuples that database drivers take, rule transitions and firings as columns: a list for each field
that somebody reads. Messages never become objects.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from pathlib import Path

from adapters.engine import _native
from adapters.engine.reference import ReferenceGrantEvaluator
from domain.events.hash_chain import ChainPlace, EventChainHead
from domain.events.model import Event
from domain.grants.model import GrantRateLimitDecision, WeeklyGrantWindow
from domain.grants.reference import load_timezone
from domain.kernel.clock import SECOND_MS
from domain.kernel.columnar_records import ColumnarRecords
from domain.kernel.errors import ValidationFailed
from domain.kernel.ids import AccountId
from domain.rules.model import (
    Comparator,
    EngineRule,
    InstantDryRunResult,
    LatestReading,
    MatchMode,
    MetricValue,
    RuleCondition,
    RuleFiring,
    RuleSuppression,
    RuleTransition,
)
from domain.rules.ports import (
    BatchResult,
    BucketAggregator,
    Checkpoint,
    ClockOffset,
    FaultMetric,
    MessageFault,
    NewMetric,
    RawTelemetryBatch,
    TelemetryRow,
    UnpackedReading,
    WatchedReading,
)
from domain.rules.reference import LastMetricValue, explain_rule
from domain.webhooks.reference import standard_key

MAX_CACHED_WINDOWS = 4096

_ConditionTuple = tuple[str, str, float, str | None]
"""(metric, comparator, number or milliseconds, text)"""

_RuleTuple = tuple[
    int, int, bool, list[_ConditionTuple], list[_ConditionTuple], int, int, str, bool, int | None, int | None, int | None
]
"""(rule number, priority, any, conditions, clear conditions, for ms, cooldown ms, command, matched, held since, last fired,
since)"""


class NativeBatchResult:
    """The result of a batch. Each property builds its list on access."""

    __slots__ = ("_raw",)

    def __init__(self, raw: _native.BatchResult) -> None:
        self._raw = raw

    @property
    def rows(self) -> list[TelemetryRow]:
        return self._raw.rows

    @property
    def checkpoints(self) -> list[Checkpoint]:
        return self._raw.checkpoints

    @property
    def rollup_hours(self) -> list[tuple[int, int]]:
        return self._raw.rollup_hours

    @property
    def consumed(self) -> int:
        return self._raw.consumed

    @property
    def unknown_metric_names(self) -> list[str]:
        return self._raw.unknown_metric_names

    @property
    def new_metrics(self) -> list[NewMetric]:
        return self._raw.new_metrics

    @property
    def rule_transitions(self) -> ColumnarRecords[RuleTransition]:
        return ColumnarRecords(RuleTransition, self._raw.rule_transition_count, self._raw.rule_transitions)

    @property
    def rule_firings(self) -> ColumnarRecords[RuleFiring]:
        return ColumnarRecords(RuleFiring, self._raw.rule_firing_count, self._raw.rule_firings)

    @property
    def rule_suppressions(self) -> list[RuleSuppression]:
        return list(map(RuleSuppression._make, self._raw.rule_suppressions))

    @property
    def watched_readings(self) -> list[WatchedReading]:
        return self._raw.watched_readings

    @property
    def faults(self) -> list[MessageFault]:
        return self._raw.faults

    @property
    def fault_metrics(self) -> list[FaultMetric]:
        return self._raw.fault_metrics

    @property
    def clocks_ahead(self) -> list[ClockOffset]:
        return self._raw.clocks_ahead

    @property
    def last_seen(self) -> list[tuple[int, int]]:
        return self._raw.last_seen

    @property
    def message_count(self) -> int:
        return self._raw.message_count

    @property
    def reading_count(self) -> int:
        return self._raw.reading_count


class NativeEngine:
    def __init__(self, owns_device: Callable[[int], bool] = lambda _: True) -> None:
        """`owns_device`: for an instance of a cluster. Every instance learns of every changed rule; a rule of another instance's
        device would fire here too, as soon as a timer is due."""
        self._owns_device = owns_device
        self.reset()

    def reset(self) -> None:
        self._engine = engine = _native.Engine()
        self.remove_device, self.drop_partition = engine.remove_device, engine.drop_partition
        self.set_watched, self.add_metric_names = engine.set_watched, engine.add_metric_names
        self.restore, self.replay = engine.restore, engine.replay
        self.checkpoint, self.checkpoint_partition = engine.checkpoint, engine.checkpoint_partition
        self.next_timer_ms, self.clock_offsets = engine.next_timer_ms, engine.clock_offsets

    def set_rules(self, device_no: int, rules: Sequence[EngineRule]) -> None:
        if self._owns_device(device_no):
            self._engine.set_rules(device_no, [_rule_tuple(rule) for rule in rules if rule.enabled])

    def ingest(self, batch: RawTelemetryBatch, now_ms: int | None = None, start: int = 0) -> BatchResult:
        native = batch if isinstance(batch, _native.RawTelemetryBatch) else _native.RawTelemetryBatch(batch.messages())
        return NativeBatchResult(self._engine.ingest(native, now_ms, start))

    def shift_clock(self, step_ms: int, now_ms: int) -> BatchResult:
        return NativeBatchResult(self._engine.shift_clock(step_ms, now_ms))

    def deafen(
        self, since_ms: int, until_ms: int, partition: tuple[int, int] | None = None, connected: Mapping[int, int] | None = None
    ) -> BatchResult:
        return NativeBatchResult(self._engine.deafen(since_ms, until_ms, partition, dict(connected or {})))

    def hear_all(self, at_ms: int) -> BatchResult:
        return NativeBatchResult(self._engine.hear_all(at_ms))

    def tick(self, now_ms: int) -> BatchResult:
        return NativeBatchResult(self._engine.tick(now_ms))

    def latest(self, device_no: int) -> list[LatestReading]:
        return [LatestReading(*latest) for latest in self._engine.latest(device_no)]

    def dry_run(self, device_no: int, rule: EngineRule, readings: Mapping[str, MetricValue], at_ms: int) -> InstantDryRunResult:
        """A person requests a dry run, so it is rare: the reference definition explains it over the native values."""
        reports = {name: LastMetricValue(*report) for name, *report in self._engine.last_reports(device_no)}
        given = {name: LastMetricValue(value, at_ms, at_ms) for name, value in readings.items()}
        return explain_rule(rule, {**reports, **given}, at_ms)

    def unpack_readings(self, rows: Iterable[tuple[int, bytes]], metric_no: int | None = None) -> list[UnpackedReading]:
        return _native.unpack_readings(rows, metric_no)

    def create_aggregator(self, step_ms: int, metric_no: int | None = None) -> BucketAggregator:
        return _native.BucketAggregator(step_ms, metric_no)


def _rule_tuple(rule: EngineRule) -> _RuleTuple:
    return (
        rule.rule_no,
        rule.priority,
        rule.match is MatchMode.ANY,
        [_condition_tuple(condition) for condition in rule.conditions],
        [_condition_tuple(condition) for condition in rule.clear_conditions],
        rule.for_seconds * SECOND_MS,
        rule.cooldown_seconds * SECOND_MS,
        rule.command,
        rule.state.matched,
        rule.state.held_since_ms,
        rule.state.last_fired_ms,
        rule.since_ms,
    )


def _condition_tuple(condition: RuleCondition) -> _ConditionTuple:
    if isinstance(condition.value, str):
        return (condition.metric, condition.comparator.value, 0.0, condition.value)
    if condition.comparator is Comparator.SILENT:
        return (condition.metric, condition.comparator.value, float(condition.silent_ms), None)
    try:
        number = float(condition.value)
    except OverflowError:
        raise ValidationFailed.for_field("value", "must fit an IEEE double.") from None
    return (condition.metric, condition.comparator.value, number, None)


def make_batch(messages: Iterable[tuple[int, int, bytes]]) -> RawTelemetryBatch:
    """Build a native batch from (device number, arrival in Unix ms, payload) tuples."""
    return _native.RawTelemetryBatch(messages)


def read_blocks(blocks: Sequence[bytes]) -> RawTelemetryBatch:
    """Raises ValueError for anything but blocks."""
    return _native.RawTelemetryBatch.from_blocks(blocks)


def chain_events(events: Sequence[Event], heads: Mapping[AccountId, EventChainHead]) -> list[ChainPlace]:
    return _native.chain_events(events, {account: (head.sequence, head.hash) for account, head in heads.items()})


class NativeGrantEvaluator(ReferenceGrantEvaluator):
    """Windows use the same time zone files as Python's zoneinfo. The reference definition answers what only checks of input and
    texts of denials ask."""

    def __init__(self) -> None:
        self._get_compiled = lru_cache(maxsize=MAX_CACHED_WINDOWS)(_compile_window)

    def is_open(self, window: WeeklyGrantWindow, at_ms: int) -> bool:
        return self._get_compiled(window).is_open(at_ms)

    def rate_allowance(self, uses: Sequence[int], limit: int, now_ms: int) -> GrantRateLimitDecision:
        return GrantRateLimitDecision(*_native.allowance(uses, limit, now_ms))


def _compile_window(window: WeeklyGrantWindow) -> _native.Window:
    days = sum(1 << day for day in window.days)
    rules = read_tzif(window.timezone)
    return _native.Window(days, window.from_minute, window.to_minute, rules, window.timezone)


@lru_cache(maxsize=1024)
def read_tzif(name: str) -> bytes:
    """The zone's TZif bytes (RFC 8536) from the system, else from the tzdata package, as zoneinfo does. Raises
    ValidationFailed."""
    load_timezone(name)  # also rejects names that would leave the directories below
    for folder in zoneinfo.TZPATH:
        path = Path(folder, name)
        if path.is_file():
            return path.read_bytes()
    package, _, resource = f"tzdata.zoneinfo.{name.replace('/', '.')}".rpartition(".")
    return resources.files(package).joinpath(resource).read_bytes()


def create_native_signer(secret: str) -> _native.Signer:
    """Raises ValidationFailed for a secret that is no Standard Webhooks key."""
    standard_key(secret)
    return _native.Signer(secret)
