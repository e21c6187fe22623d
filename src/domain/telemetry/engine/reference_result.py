"""What the reference engine returns for a batch, a tick, or a clock that was set."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from domain.kernel.clock import HOUR_MS
from domain.rules.model import RuleFiring, RuleSuppression, RuleTransition
from domain.rules.ports import Checkpoint, ClockOffset, MessageFault, NewMetric, TelemetryRow, WatchedReading


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
