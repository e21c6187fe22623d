"""Port to the engine that reads telemetry and evaluates rules.

There are two engines: the native one and the readable reference. Both satisfy this Protocol and one contract suite, and for
the same calls they return equal results. Calls that only compute never wait; none of them does I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from domain.rules.model import LatestReading, MetricValue, RuleDryRun, RuleFiring, RuleSpec, RuleSuppression, RuleTransition

TelemetryRow = tuple[int, int, int, bytes]
"""(device number, time in ms, digest, packed readings), as the telemetry table stores it; the first three are its key."""

NewMetric = tuple[int, int, str, str | None]
"""(device number, metric number, name, unit): a device reports this metric, or this unit, for the first time."""

WatchedReading = tuple[int, int, str, float | None, str | None, str | None]
"""(device number, time in ms, metric, value, text, unit). A boolean has both: 1.0 or 0.0, and "true" or "false"."""

MessageFault = tuple[int, str, int]
"""(device number, code, count). Codes: `FAULT_CODES` in domain/telemetry/parse.py."""

UnpackedReading = tuple[int, int, float | None, str | None]
"""(time in ms, metric number, value, text) of one reading of the history; booleans as in `Watched`."""

AggregateCell = tuple[int, int, int, float, float, float, float, int]
"""(begin of the stretch in ms, metric number, count, low, high, sum, last, time of the last in ms) of a metric's numbers."""


class TelemetryBatch(Protocol):
    """Messages on their way in. The native one keeps them out of Python's sight until somebody asks."""

    def __len__(self) -> int: ...

    def messages(self) -> list[tuple[int, int, bytes]]:
        """(device number, arrival in Unix ms, payload) in order of arrival."""
        ...


class BatchResult(Protocol):
    """What one batch (or one tick) means. Everything in it belongs into one transaction.

    Each property builds its list when asked: ask once.
    """

    @property
    def rows(self) -> list[TelemetryRow]:
        """Ready for executemany. An equal message delivered twice gives an equal row: insert with `ON CONFLICT DO NOTHING`."""
        ...

    @property
    def rollup_hours(self) -> list[tuple[int, int]]:
        """(device number, hour since 1970) of the rows, each once, sorted: where roll-ups are to be made anew."""
        ...

    @property
    def new_metric_names(self) -> list[tuple[int, str]]:
        """(metric number, name) given out by this batch, to be stored before the rows that use them."""
        ...

    @property
    def new_metrics(self) -> list[NewMetric]:
        """New metrics and changed units per device; may repeat what is stored (upsert)."""
        ...

    @property
    def rule_transitions(self) -> list[RuleTransition]:
        """Rule states to store, in the order they came about."""
        ...

    @property
    def rule_firings(self) -> list[RuleFiring]:
        """Actions to run, in this order."""
        ...

    @property
    def rule_suppressions(self) -> list[RuleSuppression]: ...

    @property
    def watched_readings(self) -> list[WatchedReading]:
        """The readings of watched devices, late ones included."""
        ...

    @property
    def faults(self) -> list[MessageFault]:
        """Sorted by device number and code."""
        ...

    @property
    def last_seen(self) -> list[tuple[int, int]]:
        """(device number, newest arrival) of every device in the batch, faulty messages included."""
        ...

    @property
    def message_count(self) -> int:
        """Accepted messages; each element of an array counts."""
        ...

    @property
    def reading_count(self) -> int:
        """Accepted readings."""
        ...


class Aggregator(Protocol):
    """Sums up stored telemetry by stretch and metric. Numbers and booleans (1 and 0) count, text does not."""

    def add(self, rows: Iterable[tuple[int, bytes]]) -> None:
        """Stored `(time, packed)` rows, newest first, as every call before; a sum is added up in this order, to the last bit.

        Raises ValueError on bytes that are not a packed row."""
        ...

    def cells(self) -> list[AggregateCell]:
        """What has been added so far, newest stretch first and in it by metric number."""
        ...


class TelemetryEngine(Protocol):
    def set_rules(self, device_no: int, rules: Sequence[RuleSpec]) -> None:
        """Replace the device's rules; its values stay. Each rule goes on from the state it carries.

        A rule that current values already satisfy is first evaluated at the device's next message; one that waits (a
        `silent` condition, `for_seconds` under way) has its timer at once, in the past if it is overdue.
        """
        ...

    def remove_device(self, device_no: int) -> None:
        """Forget the device: values, rules, timers."""
        ...

    def set_watched(self, device_no: int, on: bool) -> None:
        """Whether somebody looks at this device, so that its readings are returned as objects too."""
        ...

    def add_metric_names(self, names: Sequence[tuple[int, str]]) -> None:
        """(metric number, name) known from the database, before anything else. New numbers go on from the highest."""
        ...

    def restore(self, device_no: int, latest: bytes) -> None:
        """Last values as `checkpoint` gave them, replacing what is known. Raises ValueError on bytes it did not write."""
        ...

    def replay(self, device_no: int, ts_ms: int, packed: bytes) -> None:
        """A stored row newer than the checkpoint: updates values, drives no rule. An older one changes nothing.

        Raises ValueError on bytes that are not a packed row.
        """
        ...

    def ingest(self, batch: TelemetryBatch) -> BatchResult: ...

    def tick(self, now_ms: int) -> BatchResult:
        """Evaluate every rule whose timer is due: `for_seconds` reached, a metric silent long enough."""
        ...

    def next_timer_ms(self) -> int | None:
        """When the next `tick` is worth making."""
        ...

    def checkpoint(self, limit: int) -> list[tuple[int, int, bytes]]:
        """(device number, newest time, latest) of at most `limit` devices whose values changed since they were last returned."""
        ...

    def latest(self, device_no: int) -> list[LatestReading]:
        """The device's last values, in the order the metrics were first reported."""
        ...

    def dry_run(self, device_no: int, rule: RuleSpec, readings: Mapping[str, MetricValue], at_ms: int) -> RuleDryRun:
        """Explain `rule` against `readings` on top of the device's last values. Changes nothing."""
        ...

    def unpack_readings(self, rows: Iterable[tuple[int, bytes]], metric_no: int | None = None) -> list[UnpackedReading]:
        """Readings of stored `(time, packed)` rows, row by row, of one metric or of all."""
        ...

    def create_aggregator(self, step_ms: int, metric_no: int | None = None) -> Aggregator:
        """An empty tally over stretches of `step_ms`, of one metric or of all."""
        ...
