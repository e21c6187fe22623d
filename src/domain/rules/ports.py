"""Ports of the rules part: its repositories, and the engine that parses telemetry and evaluates rules.

There are two engines: the native one and the readable reference. Both pass one contract suite and return equal results for the
same calls. No call does I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from domain.commands.ports import CommandsTx
from domain.devices.ports import ErasableReadings
from domain.kernel.ids import DeviceId, RuleId
from domain.rules.model import (
    EngineRule,
    InstantDryRunResult,
    LatestReading,
    MetricValue,
    Rule,
    RuleFiring,
    RuleSuppression,
    RuleTransition,
)


class RuleRepository(Protocol):
    async def add(self, rule: Rule) -> Rule:
        """Assign `rule_no`: integers from 1 in order of creation."""

    async def get(self, device_id: DeviceId, rule_id: RuleId) -> Rule | None: ...

    async def find_by_number(self, rule_no: int) -> Rule | None: ...

    async def list_by_numbers(self, numbers: Collection[int]) -> Sequence[Rule]:
        """In no particular order."""

    async def list_by_device(self, device_id: DeviceId) -> Sequence[Rule]:
        """By priority, then age."""

    async def save(self, rule: Rule) -> None:
        """Write everything except the rule state, which belongs to the engine, possibly of another instance."""

    async def rearm(self, rule_id: RuleId) -> None:
        """Reset the stored state as `Rule.rearm` does."""

    async def save_states(self, edges: Sequence[RuleTransition]) -> None:
        """Write the rule states that the engine changed."""

    async def delete(self, rule_id: RuleId) -> None: ...

    async def list_enabled(self) -> Sequence[Rule]:
        """Every enabled rule, by device number; read at startup."""


class DeviceMetricRepository(ErasableReadings, Protocol):
    """The metrics that a device has reported, and those that are known before. The readings repository of the telemetry part
    implements it."""

    async def list_device_metrics(self, device_no: int) -> Sequence[tuple[int, str, str | None]]:
        """(metric number, name, unit), by name."""

    async def assign_metric_numbers(self, names: Sequence[str]) -> Sequence[tuple[int, str]]: ...

    async def declare_device_metrics(self, device_no: int, metrics: Collection[int]) -> None:
        """Metric numbers that the device may report; those that it has keep what is stored."""

    async def list_reported_metrics(self, device_no: int) -> Collection[str]:
        """The names of those that the device has reported itself."""


class RulesTx(CommandsTx, Protocol):
    """The repositories of this part and of those below it."""

    @property
    def readings(self) -> DeviceMetricRepository: ...

    @property
    def rules(self) -> RuleRepository: ...


TelemetryRow = tuple[int, int, int, bytes]
"""(device number, time in ms, digest, packed readings), as the telemetry table stores it; the first three are its key."""
Checkpoint = tuple[int, int, bytes]
"""(device number, newest time in ms, packed values): all that a device has reported last."""
NewMetric = tuple[int, int, str, str | None]
"""(device number, metric number, name, unit): a device reports this metric, or this unit, for the first time."""
WatchedReading = tuple[int, int, str, float | None, str | None, str | None]
"""(device number, time in ms, metric, value, text, unit). A boolean has both: 1.0 or 0.0, and "true" or "false"."""
ClockOffset = tuple[int, int]
"""(device number, how far the device's clock is ahead of the service's in ms; negative when it is behind)."""
MessageFault = tuple[int, str, int]
"""(device number, code, count). Codes: `FAULT_CODES` of the payload parser."""

FaultMetric = tuple[int, str, str]
"""(device number, code, metric as the device names it)."""
UnpackedReading = tuple[int, int, float | None, str | None, int | None]
"""(time in ms, metric number, value, text, reported time in ms) of one stored reading; booleans as in
`WatchedReading`. The reported time is None unless it was too far ahead to be used."""
AggregateCell = tuple[int, int, int, float, float, float, float, int]
"""(bucket start in ms, metric number, count, low, high, sum, last, time of the last in ms) of a metric's numbers."""


class TelemetryEngine(Protocol):
    def set_rules(self, device_no: int, rules: Sequence[EngineRule]) -> None:
        """Replace the device's rules; its values stay. Each rule continues from the state in its spec.

        A rule that current values already satisfy is first evaluated at the device's next message. A waiting rule (a `silent`
        condition, or `for_seconds` running) has its timer at once, in the past if it is overdue.
        """

    def remove_device(self, device_no: int) -> None:
        """Remove the device's values, rules and timers."""

    def set_watched(self, device_no: int, on: bool) -> None:
        """Whether `watched_readings` includes this device, because a feed client or webhook watches it."""

    def add_metric_names(self, names: Sequence[tuple[int, str]]) -> None:
        """Tell (metric number, name) from the database, which alone assigns numbers."""

    def restore(self, device_no: int, latest: bytes, now_ms: int | None = None) -> None:
        """Replace the device's last values by those of a `checkpoint`. Raises ValueError for any other bytes.

        `now_ms`: nothing arrived later; what says so was written while the service's clock was ahead, and counts as now.
        """

    def replay(self, device_no: int, ts_ms: int, packed: bytes, now_ms: int | None = None) -> None:
        """Apply a stored row that is newer than the checkpoint: updates values, evaluates no rule. Of an older row only values
        that are later than the latest ones count, as of a late message. One from more than two minutes after `now_ms` changes
        nothing when the device has values from before: the service's clock was ahead when it was stored.

        Raises ValueError for bytes that are not a packed row.
        """

    def ingest(self, batch: RawTelemetryBatch, now_ms: int | None = None, start: int = 0) -> BatchResult:
        """Before each message the timers of its device advance to its arrival: rules that were due before are evaluated at the
        time when they were due.

        Take the messages from index `start` on, up to the first one with a metric name that has no number: then add the
        result's `unknown_metric_names`, and call again with its `consumed`. The results of all calls belong to one transaction.

        `now_ms`: a message that arrived later, by a clock that was set back meanwhile, counts as arrived now."""

    def shift_clock(self, step_ms: int, now_ms: int) -> BatchResult:
        """The service's clock has just been set by `step_ms` (negative: back), to `now_ms`: all arrivals, and what counts from
        them, move along, so that `for_seconds`, `silent` and cooldowns last as long as they would have. A message that is
        ingested from now on, and arrived before by the clock as it was, counts as arrived now."""

    def deafen(
        self, since_ms: int, until_ms: int, partition: tuple[int, int] | None = None, connected: Mapping[int, int] | None = None
    ) -> BatchResult:
        """From `since_ms` to `until_ms` the devices, or those of a partition (number, count), could not be heard: the timers of
        each stand still until it speaks after that, or until `hear_all`. A message that arrived before `until_ms` has waited in
        a log: the device was heard until then, and its timers advance so far. Call it when they have been restored. A device
        that is deaf already stays so since the earlier time.

        `connected`: device number → Unix ms since when it has had a connection that is heard; its timers go on at once, without
        the time before that."""

    def hear_all(self, at_ms: int) -> BatchResult:
        """Whoever has not spoken yet could do so by now: silences and waits go on, without the time that nobody heard."""

    def tick(self, now_ms: int) -> BatchResult:
        """Evaluate every rule whose timer is due: `for_seconds` reached, a metric silent long enough."""

    def next_timer_ms(self) -> int | None:
        """When to call `tick` next (Unix ms); None without a timer."""

    def checkpoint(self, limit: int) -> list[Checkpoint]:
        """Of at most `limit` devices whose values changed since they were last returned."""

    def reset(self) -> None:
        """Forget everything, metric names too: what the database contains is another state."""

    def drop_partition(self, partition: int, partitions: int) -> int:
        """Remove all devices of a partition, as `remove_device` does, because another engine has them now. Returns how many."""

    def checkpoint_partition(self, partition: int, partitions: int, limit: int) -> list[Checkpoint]:
        """`checkpoint` of the devices of one partition; the others keep their changes."""

    def clock_offsets(self, device_nos: Sequence[int]) -> list[ClockOffset]:
        """Of these devices, those whose newest message had a `ts` that was used."""

    def latest(self, device_no: int) -> list[LatestReading]:
        """Of each metric the value with the greatest time, also if it came late, in the order the metrics were first reported."""

    def dry_run(self, device_no: int, rule: EngineRule, readings: Mapping[str, MetricValue], at_ms: int) -> InstantDryRunResult:
        """Evaluate and explain `rule` for the values that rules see, overridden by `readings`. Changes nothing."""

    def unpack_readings(self, rows: Iterable[tuple[int, bytes]], metric_no: int | None = None) -> list[UnpackedReading]:
        """Readings of stored `(time, packed)` rows, row by row, of one metric or of all."""

    def create_aggregator(self, step_ms: int, metric_no: int | None = None) -> BucketAggregator:
        """An empty aggregator with buckets of `step_ms`, of one metric or of all."""


class RawTelemetryBatch(Protocol):
    """Inbound telemetry messages. The native batch creates Python objects only on request."""

    def __len__(self) -> int: ...

    def messages(self) -> list[tuple[int, int, bytes]]:
        """(device number, arrival in Unix ms, payload) in order of arrival."""


class BatchResult(Protocol):
    """The results of one batch or tick; store all of them in one transaction.

    Each property builds its list on every access: read it once.
    """

    @property
    def rows(self) -> list[TelemetryRow]:
        """Ready for executemany. An equal message delivered twice gives an equal row: insert with `ON CONFLICT DO NOTHING`."""

    @property
    def checkpoints(self) -> Sequence[Checkpoint]:
        """Of devices with a value whose row a restart does not replay, because its time is not after the last checkpoint's: a
        late one, say. Store them with the rows."""

    @property
    def rollup_hours(self) -> list[tuple[int, int]]:
        """(device number, hour since 1970) of the rows, sorted and unique: the roll-ups to recompute."""

    @property
    def consumed(self) -> int:
        """The index in the batch of the first message that was not taken; its length if all were."""

    @property
    def unknown_metric_names(self) -> list[str]:
        """Names without a number in that message and at most 2,047 after it, by first appearance; empty if all were taken. Names
        beyond a device's limit of metrics are not among them."""

    @property
    def new_metrics(self) -> list[NewMetric]:
        """New metrics and changed units per device; may repeat stored ones (upsert)."""

    @property
    def rule_transitions(self) -> Sequence[RuleTransition]:
        """Rule states to store, in the order of their changes. Read single fields with `read_column`."""

    @property
    def rule_firings(self) -> Sequence[RuleFiring]:
        """Actions to run, in this order. Read single fields with `read_column`."""

    @property
    def rule_suppressions(self) -> list[RuleSuppression]: ...

    @property
    def watched_readings(self) -> list[WatchedReading]:
        """The readings of devices with subscribers, late ones included."""

    @property
    def faults(self) -> list[MessageFault]:
        """Sorted by device number and code."""

    @property
    def fault_metrics(self) -> list[FaultMetric]:
        """The metric of the first fault of each device and code that was one of a single reading; sorted like `faults`."""

    @property
    def clocks_ahead(self) -> list[ClockOffset]:
        """Devices that sent a `ts` too far ahead to be used, with the last such one of each; sorted by device number."""

    @property
    def last_seen(self) -> list[tuple[int, int]]:
        """(device number, newest arrival) of every device in the batch, faulty messages included."""

    @property
    def message_count(self) -> int:
        """Number of accepted messages; each element of an array counts."""

    @property
    def reading_count(self) -> int:
        """Number of accepted readings."""


class BucketAggregator(Protocol):
    """Aggregates stored telemetry by time bucket and metric. Numbers and booleans (1 and 0) count, text does not."""

    def add(self, rows: Iterable[tuple[int, bytes]]) -> None:
        """Add stored `(time, packed)` rows, newest first within and across calls; sums depend on this order to the last bit.

        Raises ValueError for bytes that are not a packed row."""

    def cells(self) -> list[AggregateCell]:
        """The aggregates so far, newest bucket first, then by metric number."""
