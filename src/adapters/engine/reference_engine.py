"""The engine made of the readable definitions: for tests, and where no extension can be built (`engine = "reference"`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from domain.grants.rate_limit import RateAllowance
from domain.grants.reference import is_open, load_timezone, next_open_ms, rate_allowance
from domain.grants.window import GrantWindow
from domain.kernel.errors import ValidationFailed
from domain.rules.engine_port import Aggregator, BatchResult, TelemetryBatch, UnpackedReading
from domain.rules.model import LatestReading, MetricValue, RuleDryRun, RuleSpec
from domain.telemetry import packing
from domain.telemetry.engine.aggregate import ReferenceAggregator
from domain.telemetry.engine.reference import FleetState
from domain.webhooks.signature_reference import service_signature, standard_key, standard_signature


class ReferenceEngine:
    def __init__(self) -> None:
        self._fleet = FleetState()

    def set_rules(self, device_no: int, rules: Sequence[RuleSpec]) -> None:
        self._fleet.put_rules(device_no, rules)

    def remove_device(self, device_no: int) -> None:
        self._fleet.drop_device(device_no)

    def set_watched(self, device_no: int, on: bool) -> None:
        self._fleet.watch(device_no, on)

    def add_metric_names(self, names: Sequence[tuple[int, str]]) -> None:
        self._fleet.set_metrics(names)

    def restore(self, device_no: int, latest: bytes) -> None:
        self._fleet.restore(device_no, latest)

    def replay(self, device_no: int, ts_ms: int, packed: bytes) -> None:
        self._fleet.replay(device_no, ts_ms, packed)

    def ingest(self, batch: TelemetryBatch) -> BatchResult:
        return self._fleet.ingest(batch.messages())

    def tick(self, now_ms: int) -> BatchResult:
        return self._fleet.tick(now_ms)

    def next_timer_ms(self) -> int | None:
        return self._fleet.next_timer_ms()

    def checkpoint(self, limit: int) -> list[tuple[int, int, bytes]]:
        return self._fleet.checkpoint(limit)

    def latest(self, device_no: int) -> list[LatestReading]:
        return self._fleet.latest(device_no)

    def dry_run(self, device_no: int, rule: RuleSpec, readings: Mapping[str, MetricValue], at_ms: int) -> RuleDryRun:
        return self._fleet.dry_run(device_no, rule, readings, at_ms)

    def unpack_readings(self, rows: Iterable[tuple[int, bytes]], metric_no: int | None = None) -> list[UnpackedReading]:
        return packing.unpack_rows(rows, metric_no)

    def create_aggregator(self, step_ms: int, metric_no: int | None = None) -> Aggregator:
        return ReferenceAggregator(step_ms, metric_no)


class ReferenceGrantEvaluator:
    def is_known_timezone(self, timezone: str) -> bool:
        try:
            load_timezone(timezone)
        except ValidationFailed:
            return False
        return True

    def is_open(self, window: GrantWindow, at_ms: int) -> bool:
        return is_open(window, at_ms)

    def next_open_ms(self, window: GrantWindow, at_ms: int) -> int | None:
        return next_open_ms(window, at_ms)

    def rate_allowance(self, uses: Sequence[int], limit: int, now_ms: int) -> RateAllowance:
        return rate_allowance(uses, limit, now_ms)


class ReferenceSigner:
    def __init__(self, secret: str) -> None:
        standard_key(secret)
        self._secret = secret

    def service(self, body: bytes) -> str:
        return service_signature(self._secret, body)

    def standard(self, message_id: str, timestamp_s: int, body: bytes) -> str:
        return standard_signature(self._secret, message_id, timestamp_s, body)

    def sign_batch(self, messages: Sequence[tuple[str, int, bytes]]) -> list[tuple[str, str]]:
        return [(self.service(body), self.standard(name, timestamp_s, body)) for name, timestamp_s, body in messages]


class ReferenceSignerFactory:
    def create_signer(self, secret: str) -> ReferenceSigner:
        return ReferenceSigner(secret)
