"""Stores what the engine returns for a batch, a tick of its timers or a step of the clock: readings, rule states, commands and
events, in the caller's transaction.

The engine has already moved on when this begins, so the caller retries a failed transaction with the same results until it
commits; the messages stay unacknowledged meanwhile. Nothing here runs once per message: rows go to the database as the engine
built them, and only fired rules, new metrics and devices with subscribers are handled one by one.

The law: batches are stored one at a time, in the order of their store times. The database holds the newest store time and never
decreases it, so neither a restart, nor another leader, nor a step of the clock breaks the order. A device repeats a message whose
acknowledgement was lost; it has the same row, so it is announced once.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field, fields, replace
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, cast

from domain.commands.model import DEFAULT_TTL_MS, AutomationCommand, CommandRequest, TriggeredBy
from domain.commands.submission import CommandSubmissionService
from domain.devices.model import Device, DeviceStatus
from domain.events.dispatcher import EventDispatcher
from domain.events.model import Event
from domain.ingest.ports import IngestTx
from domain.kernel.caller import SystemCaller
from domain.kernel.clock import MINUTE_MS, SECOND_MS, Clock
from domain.kernel.columnar_records import read_column
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import DomainEvent, EventKind, event_of
from domain.kernel.errors import DomainError
from domain.kernel.ids import EventId
from domain.partitions.ownership import OwnedPartitions
from domain.rules.loop_guard import MAX_FIRINGS_PER_MINUTE, RuleLoopGuard
from domain.rules.model import Rule, RuleFiring, RuleSuppression, RuleTransition
from domain.rules.ports import BatchResult, Checkpoint, TelemetryEngine, TelemetryRow, WatchedReading
from domain.telemetry.model import reading_event
from domain.telemetry.ports import LATE_AFTER_MS, LateMark, RowKey
from domain.telemetry.rollups import DueRollupMarkCache


@dataclass(frozen=True, slots=True)
class IngestResult:
    """An engine result with its lists built once, so that a retry does not build them again; what rules did stays in columns."""

    rows: Sequence[tuple[int, int, int, bytes]]
    rollup_hours: Sequence[tuple[int, int]]
    new_metrics: Sequence[tuple[int, int, str, str | None]]
    rule_transitions: Sequence[RuleTransition]
    rule_firings: Sequence[RuleFiring]
    rule_suppressions: Sequence[RuleSuppression]
    watched_readings: Sequence[WatchedReading]
    checkpoints: Sequence[Checkpoint] = ()

    @classmethod
    def of(cls, result: BatchResult) -> IngestResult:
        return cls(*_COPIED(result))

    @property
    def device_nos(self) -> set[int]:
        """The devices whose messages, or whose timers, made this result."""
        rows = chain[tuple[object, ...]](self.rows, self.new_metrics, self.watched_readings, self.rule_suppressions)
        fired, changed = (read_column(records, "device_no") for records in (self.rule_firings, self.rule_transitions))
        return {*map(_device_no, rows), *fired, *changed}

    def split(self) -> list[IngestResult]:
        """Parts that are stored one by one, in this order, so that a refused one does not affect the others: of each device its
        new metrics, its readings, its rules. Readings bring their metrics along."""
        metrics = {device_no: replace(NOTHING, **new) for device_no, new in self._by_device("new_metrics").items()}
        of_readings = self._by_device("rows", "watched_readings", "rollup_hours", "checkpoints")
        readings = [replace(metrics.get(device_no, NOTHING), **found) for device_no, found in of_readings.items()]
        of_rules = self._by_device("rule_transitions", "rule_firings", "rule_suppressions")
        return [*metrics.values(), *readings, *(replace(NOTHING, **found) for found in of_rules.values())]

    def in_steps(self, size: int) -> list[IngestResult]:
        """The same in parts with about `size` records of rules each, those first that fired first; all that rules of one device
        did is in one part. A part is stored in a moment, so others can write in between, and the first commands go out while the
        rest is stored."""
        if len(self.rule_firings) + len(self.rule_transitions) + len(self.rule_suppressions) <= size:
            return [self]
        by_device = self._by_device("rule_transitions", "rule_firings", "rule_suppressions").values()
        oldest_first = sorted(by_device, key=lambda found: min((one.at_ms for one in found.get("rule_firings", ())), default=0))
        rest = replace(self, rule_transitions=(), rule_firings=(), rule_suppressions=())
        parts = [] if rest.is_empty and not rest.watched_readings else [rest]
        step: dict[str, list[Any]] = {}
        for found in oldest_first:
            for name, records in found.items():
                step.setdefault(name, []).extend(records)
            if sum(map(len, step.values())) >= size:
                parts.append(replace(NOTHING, **step))
                step = {}
        return [*parts, replace(NOTHING, **step)] if step else parts

    def _by_device(self, *names: str) -> dict[int, dict[str, Any]]:
        """The parts of these fields, by the device number that their rows begin with."""
        found: dict[int, dict[str, Any]] = {}
        for name in names:
            for row in getattr(self, name):
                found.setdefault(_device_no(row), {}).setdefault(name, []).append(row)
        return found

    @property
    def is_empty(self) -> bool:
        return not (self.rows or self.rule_transitions or self.rule_firings or self.rule_suppressions or self.new_metrics)


NOTHING = IngestResult((), (), (), (), (), (), ())
_COPIED = attrgetter(*(each.name for each in fields(IngestResult)))


def _device_no(row: tuple[object, ...]) -> int:
    """All rows of a result begin with the device number."""
    return cast("int", row[0])


@service
class EngineResultWriter:
    """`owned`: the partitions of this instance of a cluster."""

    clock: Clock
    engine: TelemetryEngine
    commands: CommandSubmissionService
    publisher: EventDispatcher[Any]
    owned: OwnedPartitions | None = None
    _rollup_marks: DueRollupMarkCache = field(default_factory=DueRollupMarkCache, init=False)
    _loop_guard: RuleLoopGuard = field(default_factory=RuleLoopGuard, init=False)

    def __post_init__(self) -> None:
        self._announcer = ReadingAnnouncer(publisher=self.publisher)
        self._arrivals = ReadingArrivalRecorder(clock=self.clock)

    async def store_timers(self, tx: IngestTx, result: IngestResult) -> None:
        """What timers did. A batch of the log proves its ownership by the position that it advances; a timer has no position, so
        it names the epochs. Raises PartitionLostError."""
        if self.owned is not None:
            await tx.partitions.require_owned(self.owned.epochs_of(result.device_nos))
        await self.store(tx, result, queued_ms=self.clock.now_ms())

    async def store(self, tx: IngestTx, result: IngestResult, *, queued_ms: int | None = None) -> None:
        """Write the result in the caller's transaction. `queued_ms`: when the deadlines of its commands begin; None: when their
        rules fired."""
        if result.new_metrics:
            await tx.readings.upsert_device_metrics([(device, metric, unit) for device, metric, _, unit in result.new_metrics])
        announced = await self._announcer.prepare(tx, result) if result.watched_readings else ((), ())
        if result.rows:
            await tx.readings.add_many(result.rows)
            if result.checkpoints:
                await tx.readings.upsert_checkpoints(result.checkpoints)
            await self._mark_rollup_hours(tx, result.rollup_hours)
            self.publisher.publish_store_time(tx, await self._arrivals.record(tx, result.rows))
        if result.rule_transitions:
            await tx.rules.save_states(result.rule_transitions)
        if result.rule_firings:
            await self._run_fired_rules(tx, result.rule_firings, queued_ms)
        for suppressed in result.rule_suppressions:
            await self._emit_suppressed(tx, suppressed)
        await self._announcer.publish(tx, *announced)

    async def _mark_rollup_hours(self, tx: IngestTx, hours: Sequence[tuple[int, int]]) -> None:
        now_ms = self.clock.now_ms()
        unmarked = self._rollup_marks.find_unmarked(hours, now_ms)
        if unmarked:
            await tx.due_rollups.mark(unmarked, now_ms)
            tx.after_commit(lambda: self._rollup_marks.remember(unmarked))

    async def _run_fired_rules(self, tx: IngestTx, firings: Sequence[RuleFiring], queued_ms: int | None) -> None:
        """In a few statements for all rules that fired at one moment."""
        looping = self._loop_guard.find_looping(firings)
        numbers = {firing.rule_no for firing in firings}
        rules = {rule.rule_no: rule for rule in await tx.rules.list_by_numbers(numbers) if rule.enabled}
        found = await tx.devices.list_by_ids({rule.device_id for rule in rules.values()})
        devices = {device.device_id: device for device in found}
        for at_ms, group in groupby(firings, key=attrgetter("at_ms")):
            runs: list[tuple[Rule, Device]] = []
            for firing in group:
                rule = rules.get(firing.rule_no)
                if rule is None or rule.device_id not in devices:
                    continue  # deleted or disabled since it fired
                if looping and firing in looping:
                    await self._disable_rule(tx, rules.pop(firing.rule_no), at_ms)
                else:
                    runs.append((rule, devices[rule.device_id]))
            await self._run_rules(tx, runs, at_ms, at_ms if queued_ms is None else queued_ms)
        tx.after_commit(lambda: self._loop_guard.record_firings(firings, looping))

    async def _run_rules(self, tx: IngestTx, runs: Sequence[tuple[Rule, Device]], at_ms: int, queued_ms: int) -> None:
        for rule, _ in runs:
            tx.emit(_rule_event(rule, "rule_matched", f"Rule {rule.name!r} matched: {rule.action.command}", at_ms))
        active = [(rule, device) for rule, device in runs if device.status is DeviceStatus.ACTIVE]
        commands = [
            AutomationCommand(
                _rule_caller(rule),
                CommandRequest(device, rule.action.command, rule.action.params, DEFAULT_TTL_MS, channel=rule.action.channel),
                TriggeredBy.RULE,
            )
            for rule, device in active
        ]
        outcomes = await self.commands.run_unattended(tx, commands, queued_ms) if commands else ()
        for (rule, _), outcome in zip(active, outcomes, strict=True):
            if isinstance(outcome, DomainError):
                description = f"Rule {rule.name!r} could not run {rule.action.command}: {outcome.message}"
                tx.emit(_rule_event(rule, "rule_skipped", description, at_ms, code=outcome.code))

    async def _disable_rule(self, tx: IngestTx, rule: Rule, at_ms: int) -> None:
        reason = f"It fired more than {MAX_FIRINGS_PER_MINUTE} times within a minute. Add hysteresis or a cooldown, then enable it again."  # noqa: E501
        await tx.rules.save(replace(rule, enabled=False, disabled_reason=reason, revision=rule.revision + 1))
        tx.emit(_rule_event(rule, "rule_disabled", f"Rule {rule.name!r} was disabled. {reason}", at_ms))
        specs = [each.to_spec() for each in await tx.rules.list_by_device(rule.device_id)]
        tx.after_commit(lambda: self.engine.set_rules(rule.device_no, specs))

    async def _emit_suppressed(self, tx: IngestTx, suppressed: RuleSuppression) -> None:
        rule = await tx.rules.find_by_number(suppressed.rule_no)
        if rule is None or suppressed.winner_no is None:
            return  # suppressed by its own cooldown, which is no event
        winner = await tx.rules.find_by_number(suppressed.winner_no)
        winner_name = "another rule" if winner is None else f"rule {winner.name!r}"
        description = f"Rule {rule.name!r} matched, but {winner_name} fired at the same moment and has precedence."
        tx.emit(_rule_event(rule, "rule_suppressed", description, suppressed.at_ms))


def _rule_event(rule: Rule, kind: EventKind, text: str, at_ms: int, **code: str) -> DomainEvent:
    return event_of(
        _rule_caller(rule),
        kind,
        text,
        at_ms,
        rule.device_id,
        ruleId=rule.rule_id,
        command=rule.action.command,
        channel=rule.action.channel,
        **code,
    )


def _rule_caller(rule: Rule) -> SystemCaller:
    return SystemCaller(rule.account_id, "rule", rule.rule_id, on_behalf_of=rule.created_by)


MAX_TRACKED_RESULTS = 64


@service
class ReadingAnnouncer:
    """Announces the readings of devices with subscribers to feed and webhooks, each message once."""

    publisher: EventDispatcher[Any]
    _stored_before: dict[int, tuple[IngestResult, Set[RowKey]]] = field(default_factory=dict, init=False)
    """By `id` of a result whose transaction has not committed yet: its rows that were stored before the first attempt."""

    async def prepare(self, tx: IngestTx, result: IngestResult) -> tuple[list[Event], list[Event]]:
        """What to announce to feed and webhooks, and what to the feed alone, when the rows have been stored: nothing of a message
        that was stored before, because a device has sent it twice. When a retry finds a message that was not stored before the
        first attempt, that attempt has committed although the database did not say so: its deliveries are stored, but the feed
        has not got it."""
        watched = {reading[0] for reading in result.watched_readings}
        keys = [row[:3] for row in result.rows if row[0] in watched]
        stored = await tx.readings.list_existing(keys)
        if len(self._stored_before) >= MAX_TRACKED_RESULTS:
            self._stored_before.clear()  # results that were never committed
        _, stored_before = self._stored_before.setdefault(id(result), (result, stored))
        tx.after_commit(lambda: self._forget(result))
        new = {key[:2] for key in keys if key not in stored}
        committed = {key[:2] for key in keys if key in stored and key not in stored_before} - new
        found = await tx.devices.list_by_numbers(watched)
        devices = {device.device_no: device for device in found}
        events: dict[EventId, tuple[Event, tuple[int, int]]] = {}
        for device_no, at_ms, metric, value, text, unit in result.watched_readings:
            if device_no in devices:
                event = reading_event(devices[device_no], at_ms, metric, value, text, unit)
                events.setdefault(event.event_id, (event, (device_no, at_ms)))
        return (
            [event for event, place in events.values() if place in new],
            [event for event, place in events.values() if place in committed],
        )

    def _forget(self, result: IngestResult) -> None:
        self._stored_before.pop(id(result), None)

    async def publish(self, tx: IngestTx, new: Sequence[Event], feed_only: Sequence[Event]) -> None:
        if new:
            await self.publisher.publish_transient(tx, new)
        if feed_only:
            self.publisher.publish_to_feed(tx, feed_only)


@service
class ReadingArrivalRecorder:
    """Gives each stored batch its store time, and marks late uploads, so that a feed client that resumes finds what it missed."""

    clock: Clock
    _read_at_s: int | None = field(default=None, init=False)
    _store_time_s: int = field(default=0, init=False)
    _marked: dict[int, LateMark] = field(default_factory=dict, init=False)
    """By device number: the mark of the current minute."""

    async def record(self, tx: IngestTx, rows: Sequence[TelemetryRow]) -> int:
        """Call it in the transaction that stores the rows. Returns their store time, Unix seconds."""
        now_s = self.clock.now_ms() // SECOND_MS
        store_time_s = self._store_time_s
        if now_s != self._read_at_s:
            store_time_s = await tx.arrivals.advance_store_time(now_s)
        late = self._late_marks(rows, store_time_s)
        if late:
            await tx.arrivals.mark_late(late)
        tx.after_commit(lambda: self._remember(now_s, store_time_s, late))
        return store_time_s

    def _late_marks(self, rows: Sequence[TelemetryRow], store_time_s: int) -> list[LateMark]:
        """The marks that are not stored yet. Whole minutes, so that a device whose clock is slow is marked once a minute."""
        late_before_ms = store_time_s * SECOND_MS - LATE_AFTER_MS
        minute = store_time_s * SECOND_MS // MINUTE_MS
        marks: dict[int, LateMark] = {}
        for device_no, at_ms in [(row[0], row[1]) for row in rows if row[1] < late_before_ms]:
            mark = marks.get(device_no) or self._marked.get(device_no)
            from_ms = at_ms - at_ms % MINUTE_MS
            until_ms = from_ms + MINUTE_MS
            if mark is None or mark[1] != minute:
                marks[device_no] = (device_no, minute, from_ms, until_ms)
            elif from_ms < mark[2] or until_ms > mark[3]:
                marks[device_no] = (device_no, minute, min(from_ms, mark[2]), max(until_ms, mark[3]))
        return list(marks.values())

    def _remember(self, now_s: int, store_time_s: int, late: Sequence[LateMark]) -> None:
        if store_time_s * SECOND_MS // MINUTE_MS != self._store_time_s * SECOND_MS // MINUTE_MS:
            self._marked.clear()
        self._read_at_s, self._store_time_s = now_s, store_time_s
        self._marked.update((mark[0], mark) for mark in late)
