"""Sends the messages of one device straight to an engine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from domain.rules.engine_port import BatchResult, TelemetryEngine
from domain.rules.model import Comparator, RuleCondition, RuleSpec, RuleState
from domain.telemetry.engine.batch import InMemoryTelemetryBatch

T0 = 1_790_000_000_000
DEVICE = 7


def rule(*conditions: tuple[str, str, float | str], no: int = 1, **fields: Any) -> RuleSpec:
    clear = tuple(_condition(each) for each in fields.pop("clear", ()))
    fields.setdefault("command", "OFF")
    return RuleSpec(no, tuple(_condition(each) for each in conditions), clear_conditions=clear, **fields)


def _condition(each: tuple[str, str, float | str]) -> RuleCondition:
    metric, comparator, value = each
    return RuleCondition(metric, Comparator(comparator), value)


class EngineDriver:
    """Times are seconds after `T0`."""

    def __init__(self, engine: TelemetryEngine, *rules: RuleSpec) -> None:
        self.engine = engine
        self.rules = {each.rule_no: each for each in rules}
        if rules:
            engine.set_rules(DEVICE, rules)

    def send(self, payload: dict[str, Any] | bytes | str, at_s: float = 0, device_no: int = DEVICE) -> BatchResult:
        return self.send_all([payload], at_s, device_no)

    def send_all(self, payloads: Sequence[dict[str, Any] | bytes | str], at_s: float = 0, device_no: int = DEVICE) -> BatchResult:
        batch = InMemoryTelemetryBatch.of((device_no, ms(at_s), _bytes(payload)) for payload in payloads)
        return self._record(self.engine.ingest(batch))

    def tick(self, at_s: float) -> BatchResult:
        return self._record(self.engine.tick(ms(at_s)))

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
