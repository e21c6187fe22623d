"""An engine on its way through a generated case, with the part of a database that a restart needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from adapters.engine.native import NativeEngine
from domain.rules.model import EngineRule
from domain.rules.ports import BatchResult, Checkpoint, TelemetryEngine
from domain.telemetry.reference_engine import PythonTelemetryBatch, ReferenceTelemetryEngine
from property import engine_cases as cases
from support.engine import MetricNumbers


class EngineRun:
    def __init__(self, make: type[NativeEngine] | type[ReferenceTelemetryEngine]) -> None:
        self._make = make
        self.engine: TelemetryEngine = make()
        self.numbers = MetricNumbers()
        self.latest: dict[int, tuple[int, bytes]] = {}
        self.rows: dict[tuple[int, int, int], bytes] = {}
        self.rules: dict[int, dict[int, EngineRule]] = {}

    def act(self, action: cases.Action) -> Any:
        match action:
            case cases.Ingest(messages, now_ms):
                batch = PythonTelemetryBatch.of(messages)
                return [self._record(result) for result in self.numbers.ingest(self.engine, batch, now_ms)]
            case cases.ShiftClock(step_ms, now_ms):
                return self._record(self.engine.shift_clock(step_ms, now_ms))
            case cases.Deafen(since_ms, until_ms, partition, connected):
                return self._record(self.engine.deafen(since_ms, until_ms, partition, connected))
            case cases.HearAll(now_ms):
                return self._record(self.engine.hear_all(now_ms))
            case cases.Tick(now_ms):
                return self._record(self.engine.tick(now_ms))
            case cases.SetRules(device_no, rules):
                self.rules[device_no] = {rule.rule_no: rule for rule in rules}
                return self.engine.set_rules(device_no, rules)
            case cases.SetWatched(device_no, on):
                return self.engine.set_watched(device_no, on)
            case cases.RemoveDevice(device_no):
                self.rules.pop(device_no, None)
                self.latest.pop(device_no, None)
                self.rows = {key: packed for key, packed in self.rows.items() if key[0] != device_no}
                return self.engine.remove_device(device_no)
            case cases.Checkpoint(limit):
                taken = self.engine.checkpoint(limit)
                self._store(taken)
                return taken
            case cases.Restart(rules_first, now_ms):
                return self._restart(rules_first, now_ms)

    def _record(self, result: BatchResult) -> dict[str, Any]:
        found = {name: getattr(result, name) for name in _PARTS}
        self.rows.update({row[:3]: row[3] for row in found["rows"]})
        self._store(found["checkpoints"])
        for transition in found["rule_transitions"]:
            rules = self.rules[transition.device_no]
            rules[transition.rule_no] = replace(rules[transition.rule_no], state=transition.state)
        return found

    def _store(self, checkpoints: Sequence[Checkpoint]) -> None:
        self.latest.update({device_no: (newest_ms, latest) for device_no, newest_ms, latest in checkpoints})

    def _restart(self, rules_first: bool, now_ms: int | None) -> None:
        self.engine = self._make()
        self.engine.add_metric_names(self.numbers.rows)
        if rules_first:
            self._set_rules()
        for device_no, (_, latest) in self.latest.items():
            self.engine.restore(device_no, latest, now_ms)
        for (device_no, ts_ms, _), packed in sorted(self.rows.items()):
            newest_ms = self.latest.get(device_no, (-1, b""))[0]
            if ts_ms > newest_ms:
                self.engine.replay(device_no, ts_ms, packed, now_ms)
        if not rules_first:
            self._set_rules()

    def _set_rules(self) -> None:
        for device_no, rules in self.rules.items():
            self.engine.set_rules(device_no, list(rules.values()))


_PARTS = (
    "rows",
    "checkpoints",
    "consumed",
    "unknown_metric_names",
    "new_metrics",
    "rule_transitions",
    "rule_firings",
    "rule_suppressions",
    "watched_readings",
    "faults",
    "clocks_ahead",
    "last_seen",
    "message_count",
    "reading_count",
)
