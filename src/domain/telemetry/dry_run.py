"""Dry runs of a rule: against given readings, or over stored telemetry.

A dry run over history uses the same engine code that runs live, in a new instance with one device and one rule, so the result is
what would happen. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from domain.devices.lookup import get_device
from domain.devices.model import Device
from domain.kernel.caller import SessionCaller
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.errors import ValidationFailed
from domain.kernel.ids import DeviceId, RuleId
from domain.kernel.unit_of_work import GIVE_WAY_EVERY, UnitOfWork, give_way
from domain.rules.model import EngineRule, InstantDryRunResult, MetricValue, RuleState, check_metrics_known
from domain.rules.ports import RawTelemetryBatch, TelemetryEngine, UnpackedReading
from domain.rules.service import get_rule
from domain.telemetry.history import ReadingHistory
from domain.telemetry.model import HistoryTimeRange
from domain.telemetry.ports import MessageKey, TelemetryTx

MAX_MESSAGES = 100_000
PAGE_MESSAGES = 500
"""The engine unpacks them at once."""
MANY_READINGS = 500
MAX_FIRINGS = 1_000

TelemetryMessages = list[tuple[int, int, bytes]]
TelemetryPayloadEncoder = Callable[[int, Mapping[str, MetricValue]], bytes]
"""Encodes the readings of one instant (Unix ms) as a native telemetry payload."""


@dataclass(frozen=True, slots=True)
class HistoryDryRunResult:
    """`fired_ms`: when the action would have run (Unix ms). `is_complete` is False if a limit ended the run early."""

    fired_ms: tuple[int, ...]
    message_count: int
    is_complete: bool
    final_evaluation: InstantDryRunResult


@service
class RuleDryRunService:
    uow: UnitOfWork[TelemetryTx]
    clock: Clock
    engine: TelemetryEngine
    create_engine: Callable[[], TelemetryEngine]
    make_batch: Callable[[TelemetryMessages], RawTelemetryBatch]
    encode: TelemetryPayloadEncoder
    stored: ReadingHistory = field(default_factory=ReadingHistory)

    async def run_on_readings(
        self, caller: SessionCaller, device_id: DeviceId, rule_id: RuleId, readings: Mapping[str, MetricValue]
    ) -> InstantDryRunResult:
        async with self.uow.read() as tx:
            device = await get_device(tx, caller.account_id, device_id)
            rule = await get_rule(tx, device_id, rule_id)
        return self.engine.dry_run(device.device_no, rule.to_spec(), readings, self.clock.now_ms())

    async def run_on_history(
        self, caller: SessionCaller, device_id: DeviceId, rule_id: RuleId, span: HistoryTimeRange
    ) -> HistoryDryRunResult:
        _check_span(span)
        async with self.uow.read() as tx:
            device = await get_device(tx, caller.account_id, device_id)
            rule = await get_rule(tx, device_id, rule_id)
        return await self._run(device, replace(rule.to_spec(), enabled=True, state=RuleState()), span)

    async def run_draft_on_history(
        self, caller: SessionCaller, device_id: DeviceId, spec: EngineRule, span: HistoryTimeRange
    ) -> HistoryDryRunResult:
        """The same for a rule that is not saved. Raises ValidationFailed for a metric that the device has never reported."""
        _check_span(span)
        async with self.uow.read() as tx:
            device = await get_device(tx, caller.account_id, device_id)
            known = {name for _, name, _ in await tx.readings.list_device_metrics(device.device_no)}
        check_metrics_known(known, spec.conditions, spec.clear_conditions)
        return await self._run(device, spec, span)

    async def _run(self, device: Device, spec: EngineRule, span: HistoryTimeRange) -> HistoryDryRunResult:
        async with self.uow.read() as tx:
            names = {number: name for number, name, _ in await tx.readings.list_device_metrics(device.device_no)}
        engine = self.create_engine()
        engine.add_metric_names(list(names.items()))
        engine.set_rules(device.device_no, [replace(spec, since_ms=None)])
        run = _RuleDryRunReplay(engine, self.make_batch, self.encode, device.device_no, names)
        complete = await self._replay_history(run, device, span)
        evaluation = engine.dry_run(device.device_no, spec, {}, span.until_ms if complete else run.last_message_ms)
        return HistoryDryRunResult(tuple(run.fired_ms[:MAX_FIRINGS]), run.message_count, complete, evaluation)

    async def _replay_history(self, run: _RuleDryRunReplay, device: Device, span: HistoryTimeRange) -> bool:
        """Replay stored messages; each page is a short read of its own. Returns whether the whole range was replayed."""
        after: MessageKey | None = None
        while run.message_count < MAX_MESSAGES and len(run.fired_ms) < MAX_FIRINGS:
            async with self.uow.read() as tx:
                rows, after = await self.stored.read_page(tx, device, span, PAGE_MESSAGES, after, newest_first=False)
            await run.feed_rows(rows)
            if after is None:
                run.run_due_timers(span.until_ms)
                return True
        return False


@dataclass(slots=True)
class _RuleDryRunReplay:
    """Feeds stored readings to an engine instant by instant, in the order of their own times."""

    engine: TelemetryEngine
    make_batch: Callable[[TelemetryMessages], RawTelemetryBatch]
    encode: TelemetryPayloadEncoder
    device_no: int
    names: Mapping[int, str]
    fired_ms: list[int] = field(default_factory=list)
    message_count: int = 0
    last_message_ms: int = 0
    """Time of the last replayed message, Unix ms."""

    async def feed_rows(self, rows: Sequence[tuple[int, bytes]]) -> None:
        instants: dict[int, dict[str, MetricValue]] = {}
        for index, unpacked in enumerate(self.engine.unpack_readings(rows)):
            if index % MANY_READINGS == 0:
                await give_way()
            at_ms, number, value = unpacked[0], unpacked[1], _reading_value(unpacked)
            if number in self.names:
                instants.setdefault(at_ms, {})[self.names[number]] = value
        for index, (at_ms, values) in enumerate(instants.items()):
            if index % GIVE_WAY_EVERY == 0:
                await give_way()
            batch = self.make_batch([(self.device_no, at_ms, self.encode(at_ms, values))])
            self.fired_ms += [fired.at_ms for fired in self.engine.ingest(batch).rule_firings]
            self.last_message_ms = at_ms
        self.message_count += len(rows)

    def run_due_timers(self, until_ms: int) -> None:
        """Run every timer that is due at or before `until_ms`."""
        while (due_ms := self.engine.next_timer_ms()) is not None and due_ms <= until_ms:
            self.fired_ms += [fired.at_ms for fired in self.engine.tick(due_ms).rule_firings]
            if self.engine.next_timer_ms() == due_ms:
                return  # the engine made no progress: avoid an endless loop


def _check_span(span: HistoryTimeRange) -> None:
    if span.since_ms >= span.until_ms:
        raise ValidationFailed.for_field("from", "must be before `to` (both Unix milliseconds).")


def _reading_value(unpacked: UnpackedReading) -> MetricValue:
    _, _, value, text, _ = unpacked
    if value is None:
        return text or ""
    return bool(value) if text in ("true", "false") else value
