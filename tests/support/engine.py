"""Sends messages straight to an engine, and gives new metric names their numbers, as the database does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from domain.rules.model import Comparator, EngineRule, RuleCondition, RuleState
from domain.rules.ports import BatchResult, RawTelemetryBatch, TelemetryEngine
from domain.telemetry.reference_engine import PythonTelemetryBatch

T0 = 1_790_000_000_000
DEVICE = 7


def rule(*conditions: tuple[str, str, float | str], no: int = 1, **fields: Any) -> EngineRule:
    clear = tuple(_condition(each) for each in fields.pop("clear", ()))
    fields.setdefault("command", "OFF")
    return EngineRule(no, tuple(_condition(each) for each in conditions), clear_conditions=clear, **fields)


def _condition(each: tuple[str, str, float | str]) -> RuleCondition:
    metric, comparator, value = each
    return RuleCondition(metric, Comparator(comparator), value)


@dataclass
class MetricNumbers:
    """Numbers from 1, in the order in which the names are asked for."""

    by_name: dict[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> list[tuple[int, str]]:
        return [(number, name) for name, number in self.by_name.items()]

    def ingest(self, engine: TelemetryEngine, batch: RawTelemetryBatch, now_ms: int | None = None) -> list[BatchResult]:
        """The results of all calls that the batch needs."""
        results = [engine.ingest(batch, now_ms)]
        while unknown := results[-1].unknown_metric_names:
            for name in unknown:
                self.by_name.setdefault(name, len(self.by_name) + 1)
            engine.add_metric_names([(self.by_name[name], name) for name in unknown])
            results.append(engine.ingest(batch, now_ms, results[-1].consumed))
        return results


def ingest_batch(engine: TelemetryEngine, batch: RawTelemetryBatch, now_ms: int | None = None) -> BatchResult:
    """The one result of a batch whose first message has all the new names."""
    *before, result = MetricNumbers().ingest(engine, batch, now_ms)
    assert all(each.consumed == 0 for each in before)
    return result


class EngineDriver:
    """Times are seconds after `T0`."""

    def __init__(self, engine: TelemetryEngine, *rules: EngineRule) -> None:
        self.engine = engine
        self.numbers = MetricNumbers()
        self.rules = {each.rule_no: each for each in rules}
        if rules:
            engine.set_rules(DEVICE, rules)

    def set_rules(self, *rules: EngineRule) -> None:
        self.rules = {each.rule_no: each for each in rules}
        self.engine.set_rules(DEVICE, rules)

    def send(self, payload: dict[str, Any] | bytes | str, at_s: float = 0, device_no: int = DEVICE) -> BatchResult:
        return self.send_all([payload], at_s, device_no)

    def send_all(self, payloads: Sequence[dict[str, Any] | bytes | str], at_s: float = 0, device_no: int = DEVICE) -> BatchResult:
        batch = PythonTelemetryBatch.of((device_no, ms(at_s), _bytes(payload)) for payload in payloads)
        *before, result = self.numbers.ingest(self.engine, batch)
        assert all(each.consumed == 0 for each in before)
        return self._record(result)

    def send_batches(self, payload: dict[str, Any] | bytes | str, at_s: float = 0) -> list[BatchResult]:
        """The results of all calls that the message needs."""
        batch = PythonTelemetryBatch.of([(DEVICE, ms(at_s), _bytes(payload))])
        return [self._record(result) for result in self.numbers.ingest(self.engine, batch)]

    def tick(self, at_s: float) -> BatchResult:
        return self._record(self.engine.tick(ms(at_s)))

    def hear_all(self, at_s: float) -> BatchResult:
        return self._record(self.engine.hear_all(ms(at_s)))

    def fired(self, payload: dict[str, Any], at_s: float = 0) -> list[int]:
        return [each.rule_no for each in self.send(payload, at_s).rule_firings]

    def state(self, rule_no: int = 1) -> RuleState:
        """The state that the database would contain."""
        return self.rules[rule_no].state

    def _record(self, result: BatchResult) -> BatchResult:
        for transition in result.rule_transitions:
            self.rules[transition.rule_no] = replace(self.rules[transition.rule_no], state=transition.state)
        return result


def ms(at_s: float) -> int:
    return T0 + int(at_s * 1000)


def _bytes(payload: dict[str, Any] | bytes | str) -> bytes:
    if isinstance(payload, dict):
        return json.dumps(payload).encode()
    return payload.encode() if isinstance(payload, str) else payload
