"""What a rule would have done: against readings given by hand, or over the telemetry that is stored.

A trial over history runs the very engine that runs live, in a fresh copy that knows one device and one rule: its answer cannot
differ from what would happen. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from domain.devices.lookup import device_of
from domain.devices.model import Device
from domain.kernel.caller import Session
from domain.kernel.clock import Clock
from domain.kernel.errors import Invalid
from domain.kernel.ids import DeviceId, RuleId
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.model import DryRun, Rule, RuleSpec, RuleState, Value
from domain.rules.ports import TelemetryBatch, TelemetryEngine, Unpacked
from domain.rules.service import rule_of
from domain.telemetry.paging import Span, page
from domain.telemetry.ports import Place, TelemetryTx

MAX_MESSAGES = 100_000
PAGE_MESSAGES = 1_000
MAX_FIRINGS = 1_000

Messages = list[tuple[int, int, bytes]]


class Encoder(Protocol):
    """Readings of one instant as a native telemetry payload."""

    def __call__(self, at_ms: int, values: Mapping[str, Value]) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Trial:
    """`fired_ms`: when the action would have run. `complete` is False when a bound cut it short; `messages` were looked at."""

    fired_ms: tuple[int, ...]
    messages: int
    complete: bool
    last: DryRun


class TrialService:
    def __init__(
        self,
        *,
        uow: UnitOfWork[TelemetryTx],
        clock: Clock,
        engine: TelemetryEngine,
        fresh_engine: Callable[[], TelemetryEngine],
        make_batch: Callable[[Messages], TelemetryBatch],
        encode: Encoder,
    ) -> None:
        self._uow = uow
        self._clock = clock
        self._engine = engine
        self._fresh_engine = fresh_engine
        self._make_batch = make_batch
        self._encode = encode

    async def on_readings(self, caller: Session, device_id: DeviceId, rule_id: RuleId, readings: Mapping[str, Value]) -> DryRun:
        async with self._uow.read() as tx:
            device = await device_of(tx, caller.account_id, device_id)
            rule = await rule_of(tx, device_id, rule_id)
        return self._engine.dry_run(device.device_no, rule.spec(), readings, self._clock.now_ms())

    async def on_history(self, caller: Session, device_id: DeviceId, rule_id: RuleId, span: Span) -> Trial:
        if span.since_ms >= span.until_ms:
            raise Invalid.field("from", "must be before `to` (both Unix milliseconds).")
        async with self._uow.read() as tx:
            device = await device_of(tx, caller.account_id, device_id)
            rule = await rule_of(tx, device_id, rule_id)
            names = {number: name for number, name, _ in await tx.readings.metrics(device.device_no)}
        engine = self._fresh_engine()
        engine.put_rules(device.device_no, [_armed(rule)])
        run = _Run(engine, self._make_batch, self._encode, device.device_no, names)
        complete = await self._feed(run, device, span)
        verdict = engine.dry_run(device.device_no, _armed(rule), {}, span.until_ms if complete else run.reached_ms)
        return Trial(tuple(run.fired_ms[:MAX_FIRINGS]), run.messages, complete, verdict)

    async def _feed(self, run: _Run, device: Device, span: Span) -> bool:
        """A page is its own short read: a long trial holds nobody up."""
        after: Place | None = None
        while run.messages < MAX_MESSAGES and len(run.fired_ms) < MAX_FIRINGS:
            async with self._uow.read() as tx:
                rows, after = await page(tx, device.device_no, span, PAGE_MESSAGES, after, newest_first=False)
            run.take(rows)
            if after is None:
                run.tick(span.until_ms)
                return True
        return False


class _Run:
    """One trial's private engine, fed instant by instant in the order of the readings' own times."""

    def __init__(
        self,
        engine: TelemetryEngine,
        make_batch: Callable[[Messages], TelemetryBatch],
        encode: Encoder,
        device_no: int,
        names: Mapping[int, str],
    ) -> None:
        self._engine = engine
        self._make_batch = make_batch
        self._encode = encode
        self._device_no = device_no
        self._names = names
        self.fired_ms: list[int] = []
        self.messages = 0
        self.reached_ms = 0
        """The time of the last message looked at."""

    def take(self, rows: Sequence[tuple[int, bytes]]) -> None:
        instants: dict[int, dict[str, Value]] = {}
        for unpacked in self._engine.unpack(rows):
            at_ms, number, value = unpacked[0], unpacked[1], _value(unpacked)
            if number in self._names:
                instants.setdefault(at_ms, {})[self._names[number]] = value
        for at_ms, values in instants.items():
            self.tick(at_ms)
            batch = self._make_batch([(self._device_no, at_ms, self._encode(at_ms, values))])
            self.fired_ms += [fired.at_ms for fired in self._engine.ingest(batch).fired]
            self.reached_ms = at_ms
        self.messages += len(rows)

    def tick(self, until_ms: int) -> None:
        """Let every timer run that is due before `until_ms`."""
        while (due_ms := self._engine.next_timer_ms()) is not None and due_ms <= until_ms:
            self.fired_ms += [fired.at_ms for fired in self._engine.tick(due_ms).fired]
            if self._engine.next_timer_ms() == due_ms:
                return  # an engine that does not move on would keep us here for ever


def _armed(rule: Rule) -> RuleSpec:
    return replace(rule.spec(), enabled=True, state=RuleState())


def _value(unpacked: Unpacked) -> Value:
    _, _, value, text = unpacked
    if value is None:
        return text or ""
    return bool(value) if text in ("true", "false") else value
