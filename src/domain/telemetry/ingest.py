"""What a batch from the engine means for the database: one transaction for readings, rule states, commands and events.

The engine has already moved on when this begins. So a transaction that fails is tried again with the same results until it
holds (its owner does that); the devices' messages stay unacknowledged meanwhile. Nothing here runs once per message: rows go to
the database as the engine built them, and only fired rules, new metrics and watched devices are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from domain.commands.model import Execution, TriggeredBy
from domain.devices.model import Device, DeviceStatus
from domain.events.model import TELEMETRY, Event
from domain.kernel.caller import System
from domain.kernel.clock import Clock
from domain.kernel.errors import DomainError
from domain.kernel.facts import EventKind, Fact, Json
from domain.kernel.ids import EventId, IdSource, Prefix
from domain.rules.model import Fired, Rule, RuleEdge, Suppressed
from domain.rules.policy import LOOP_LIMIT, LoopGuard
from domain.rules.ports import Ingested, TelemetryEngine, Watched
from domain.telemetry.ports import TelemetryTx
from domain.telemetry.rollup_service import HourMarks


class UnattendedCommands(Protocol):
    async def run_unattended(
        self, tx: TelemetryTx, caller: System, device: Device, cmd: str, params: Json, *, source: TriggeredBy, now_ms: int
    ) -> Execution: ...


class Announcer(Protocol):
    """Tells feed and webhooks of events that are not kept in the log."""

    async def announce(self, tx: TelemetryTx, events: Sequence[Event]) -> None: ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """An engine result with each of its lists built once, so that a second try costs nothing more."""

    rows: Sequence[tuple[int, int, int, bytes]]
    hours: Sequence[tuple[int, int]]
    new_names: Sequence[tuple[int, str]]
    new_metrics: Sequence[tuple[int, int, str, str | None]]
    edges: Sequence[RuleEdge]
    fired: Sequence[Fired]
    suppressed: Sequence[Suppressed]
    watched: Sequence[Watched]

    @classmethod
    def of(cls, ingested: Ingested) -> Verdict:
        return cls(
            ingested.rows,
            ingested.hours,
            ingested.new_names,
            ingested.new_metrics,
            ingested.edges,
            ingested.fired,
            ingested.suppressed,
            ingested.watched,
        )

    def by_device(self) -> list[Verdict]:
        """What a tick brought, a device at a time: one that cannot be stored is then nobody else's problem."""
        lists: tuple[Sequence[RuleEdge | Fired | Suppressed], ...] = (self.edges, self.fired, self.suppressed)
        devices = sorted({one.device_no for each in lists for one in each})
        return [
            replace(
                self,
                edges=[one for one in self.edges if one.device_no == device_no],
                fired=[one for one in self.fired if one.device_no == device_no],
                suppressed=[one for one in self.suppressed if one.device_no == device_no],
            )
            for device_no in devices
        ]

    @property
    def is_empty(self) -> bool:
        return not (self.rows or self.edges or self.fired or self.suppressed or self.new_metrics or self.new_names)


class IngestService:
    def __init__(
        self,
        *,
        ids: IdSource,
        clock: Clock,
        engine: TelemetryEngine,
        commands: UnattendedCommands,
        announcer: Announcer,
    ) -> None:
        self._ids = ids
        self._clock = clock
        self._marks = HourMarks()
        self._engine = engine
        self._commands = commands
        self._announcer = announcer
        self._guard = LoopGuard()

    async def store(self, tx: TelemetryTx, verdict: Verdict) -> None:
        """Write all of it in the caller's transaction."""
        if verdict.new_names:
            await tx.readings.add_names(verdict.new_names)
        if verdict.new_metrics:
            await tx.readings.add_metrics([(device, metric, unit) for device, metric, _, unit in verdict.new_metrics])
        if verdict.rows:
            await tx.readings.add(verdict.rows)
            await self._mark(tx, verdict.hours)
        if verdict.edges:
            await tx.rules.save_states(verdict.edges)
        if verdict.fired:
            await self._fire_all(tx, verdict.fired)
        for suppressed in verdict.suppressed:
            await self._report_suppressed(tx, suppressed)
        if verdict.watched:
            await self._announce(tx, verdict.watched)

    async def _mark(self, tx: TelemetryTx, hours: Sequence[tuple[int, int]]) -> None:
        now_ms = self._clock.now_ms()
        fresh = self._marks.fresh(hours, now_ms)
        if fresh:
            await tx.rollups.mark(fresh, now_ms)
            tx.after_commit(lambda: self._marks.remember(fresh))

    async def _fire_all(self, tx: TelemetryTx, fired: Sequence[Fired]) -> None:
        circling = self._guard.circling(fired)
        for one in fired:
            await self._fire(tx, one, one in circling)
        tx.after_commit(lambda: self._guard.count(fired, circling))

    async def _fire(self, tx: TelemetryTx, fired: Fired, circles: bool) -> None:
        rule = await tx.rules.by_no(fired.rule_no)
        device = None if rule is None else await tx.devices.find(rule.device_id)
        if rule is None or device is None or not rule.enabled:
            return  # deleted since: its last word does not count
        if circles:
            await self._switch_off(tx, rule, fired.at_ms)
            return
        await tx.record(_rule_fact(rule, "rule_matched", f"Rule {rule.name!r} matched: {rule.action.command}", fired.at_ms))
        if device.status is not DeviceStatus.ACTIVE:
            return
        caller = System(rule.account_id, "rule", rule.rule_id, on_behalf_of=rule.created_by)
        try:
            await self._commands.run_unattended(
                tx, caller, device, rule.action.command, rule.action.params, source=TriggeredBy.RULE, now_ms=fired.at_ms
            )
        except DomainError as refusal:
            said = f"Rule {rule.name!r} could not run {rule.action.command}: {refusal.message}"
            await tx.record(_rule_fact(rule, "rule_skipped", said, fired.at_ms, code=refusal.code))

    async def _switch_off(self, tx: TelemetryTx, rule: Rule, at_ms: int) -> None:
        reason = f"It fired more than {LOOP_LIMIT} times within a minute. Add hysteresis or a cooldown, then enable it again."
        await tx.rules.save(replace(rule, enabled=False, disabled_reason=reason, revision=rule.revision + 1))
        await tx.record(_rule_fact(rule, "rule_disabled", f"Rule {rule.name!r} was disabled. {reason}", at_ms))
        specs = [kept.spec() for kept in await tx.rules.list(rule.device_id)]
        tx.after_commit(lambda: self._engine.put_rules(rule.device_no, specs))

    async def _report_suppressed(self, tx: TelemetryTx, suppressed: Suppressed) -> None:
        rule = await tx.rules.by_no(suppressed.rule_no)
        if rule is None or suppressed.winner_no is None:
            return  # held back by its own cooldown: expected, and no news
        winner = await tx.rules.by_no(suppressed.winner_no)
        by = "another rule" if winner is None else f"rule {winner.name!r}"
        said = f"Rule {rule.name!r} matched, but {by} fired at the same moment and goes first."
        await tx.record(_rule_fact(rule, "rule_suppressed", said, suppressed.at_ms))

    async def _announce(self, tx: TelemetryTx, watched: Sequence[Watched]) -> None:
        found = await tx.devices.numbered({device_no for device_no, *_ in watched})
        devices = {device.device_no: device for device in found}
        events = [
            self._telemetry(devices[device_no], at_ms, metric, value, text, unit)
            for device_no, at_ms, metric, value, text, unit in watched
            if device_no in devices
        ]
        if events:
            await self._announcer.announce(tx, events)

    def _telemetry(
        self, device: Device, at_ms: int, metric: str, value: float | None, text: str | None, unit: str | None
    ) -> Event:
        event_id = EventId(self._ids.new(Prefix.EVENT))
        return Event(
            position=0,
            event_id=event_id,
            account_id=device.account_id,
            device_id=device.device_id,
            device_name=device.name,
            kind=TELEMETRY,
            description=f"{metric} = {value if text is None else text}",
            at_ms=at_ms,
            source="device",
            address="",
            payload={
                "type": TELEMETRY,
                "eventId": event_id,
                "accountId": device.account_id,
                "deviceId": device.device_id,
                "timestamp": at_ms,
                "metric": metric,
                "value": value,
                "valueText": text,
                "unit": unit,
            },
        )


def _rule_fact(rule: Rule, kind: EventKind, description: str, at_ms: int, *, code: str | None = None) -> Fact:
    data: dict[str, Json] = {"ruleId": rule.rule_id, "command": rule.action.command}
    if code is not None:
        data["code"] = code
    return Fact(
        account_id=rule.account_id,
        kind=kind,
        description=description,
        at_ms=at_ms,
        source=f"rule:{rule.rule_id}",
        device_id=rule.device_id,
        data=data,
    )
