"""Use cases of rules: create, read, edit, delete, and make the metrics known that rules may name.

The engine's rules are replaced after the commit, and only while no batch is between engine and database (`EngineCommitLock`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from domain.commands.model import CommandDefinition
from domain.commands.submission import CommandSubmissionService, action_fault
from domain.devices.lookup import get_device
from domain.devices.model import Device
from domain.kernel.caller import Role, SessionCaller, require_role
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import EventKind, event_of
from domain.kernel.errors import Conflict, NotFound, ValidationFailed
from domain.kernel.ids import DeviceId, IdAndSecretGenerator, IdPrefix, RuleId
from domain.kernel.unit_of_work import EngineCommitLock, UnitOfWork
from domain.rules.model import MAX_RULES_PER_DEVICE, EngineRule, Rule, apply_changes, check_rule, needs_rearm
from domain.rules.ports import RulesTx, TelemetryEngine

MAX_METRICS_PER_DEVICE = 128


@dataclass(frozen=True, slots=True)
class RuleContext:
    """The metrics and commands that a rule of a device can use."""

    metrics: tuple[str, ...]
    commands: tuple[CommandDefinition, ...]


@service
class RuleService:
    """`wake_timers` is called when the engine's next deadline may have moved forward."""

    uow: UnitOfWork[RulesTx]
    clock: Clock
    ids: IdAndSecretGenerator
    engine: TelemetryEngine
    commands: CommandSubmissionService
    engine_commit_lock: EngineCommitLock
    wake_timers: Callable[[], None] = lambda: None

    def with_unit_of_work(self, uow: UnitOfWork[RulesTx]) -> RuleService:
        """The same use cases inside a transaction that is open already, and that holds the engine's commit lock."""
        return replace(self, uow=uow, engine_commit_lock=nullcontext())

    async def list(self, caller: SessionCaller, device_id: DeviceId) -> Sequence[Rule]:
        async with self.uow.read() as tx:
            await get_device(tx, caller.account_id, device_id)
            return await tx.rules.list_by_device(device_id)

    async def get(self, caller: SessionCaller, device_id: DeviceId, rule_id: RuleId) -> Rule:
        async with self.uow.read() as tx:
            await get_device(tx, caller.account_id, device_id)
            return await get_rule(tx, device_id, rule_id)

    async def list_reported_metrics(self, caller: SessionCaller, device_id: DeviceId) -> Collection[str]:
        """Rules that need others wait: `Rule.list_missing`."""
        async with self.uow.read() as tx:
            device = await get_device(tx, caller.account_id, device_id)
            return await tx.readings.list_reported_metrics(device.device_no)

    async def get_context(self, caller: SessionCaller, device_id: DeviceId) -> RuleContext:
        async with self.uow.read() as tx:
            device = await get_device(tx, caller.account_id, device_id)
            metrics = await tx.readings.list_device_metrics(device.device_no)
            commands = await self.commands.effective_definitions(tx, device)
        usable = tuple(definition for definition in commands if not definition.requires_approval)
        return RuleContext(tuple(name for _, name, _ in metrics), usable)

    async def create(self, caller: SessionCaller, device_id: DeviceId, fields: Mapping[str, Any]) -> Rule:
        """`fields`: fields of `Rule` by name. Raises ValidationFailed, NotFound, PermissionDenied, Conflict `TOO_MANY_RULES`."""
        now_ms = self.clock.now_ms()
        async with self.engine_commit_lock, self.uow.write(caller, Role.MEMBER) as tx:
            return await self.create_in(tx, caller, await get_device(tx, caller.account_id, device_id), fields, now_ms)

    async def create_in(
        self,
        tx: RulesTx,
        caller: SessionCaller,
        device: Device,
        fields: Mapping[str, Any],
        now_ms: int,
        *,
        unless_named: bool = False,
    ) -> Rule:
        """`create` as a part of the caller's transaction, which holds the engine's commit lock. When it raises, it has written
        nothing. `unless_named`: raises Conflict `RULE_EXISTS` if the device has a rule of this name."""
        await self.commands.authorize_replay(tx, caller, device, [(fields["action"].command, fields["action"].channel)], now_ms)
        present = await tx.rules.list_by_device(device.device_id)
        if unless_named and any(rule.name == fields["name"] for rule in present):
            raise Conflict(f"The device has a rule {fields['name']!r} already; it was not changed.", code="RULE_EXISTS")
        if len(present) >= MAX_RULES_PER_DEVICE:
            raise Conflict(f"A device can have at most {MAX_RULES_PER_DEVICE} rules. Delete one first.", code="TOO_MANY_RULES")
        rule = Rule(
            rule_id=RuleId(self.ids.new_id(IdPrefix.RULE)),
            rule_no=0,
            account_id=device.account_id,
            device_id=device.device_id,
            device_no=device.device_no,
            created_by=caller.membership_id,
            created_ms=now_ms,
            **fields,
        )
        await self._check_rule(tx, caller, device, rule, now_ms)
        rule = await tx.rules.add(rule)
        await self._emit_change(tx, caller, device, rule, "rule_created", now_ms)
        return rule

    async def update(self, caller: SessionCaller, device_id: DeviceId, rule_id: RuleId, changes: Mapping[str, Any]) -> Rule:
        now_ms = self.clock.now_ms()
        async with self.engine_commit_lock, self.uow.write(caller, Role.MEMBER) as tx:
            device = await get_device(tx, caller.account_id, device_id)
            before = await get_rule(tx, device_id, rule_id)
            rule = apply_changes(before, changes)
            rule = replace(rule, created_by=caller.membership_id)  # it runs with the permissions of the member who saved it last
            await self._check_rule(tx, caller, device, rule, now_ms)
            await tx.rules.save(rule)
            is_rearmed = needs_rearm(before, rule)
            if is_rearmed:
                await tx.rules.rearm(rule.rule_id)
            await self._emit_change(tx, caller, device, rule, "rule_updated", now_ms, is_rearmed=is_rearmed)
        return rule

    async def delete(self, caller: SessionCaller, device_id: DeviceId, rule_id: RuleId) -> None:
        now_ms = self.clock.now_ms()
        async with self.engine_commit_lock, self.uow.write(caller, Role.MEMBER) as tx:
            device = await get_device(tx, caller.account_id, device_id)
            rule = await get_rule(tx, device_id, rule_id)
            await tx.rules.delete(rule_id)
            await self._emit_change(tx, caller, device, rule, "rule_deleted", now_ms)

    async def declare_metrics(self, caller: SessionCaller, device_id: DeviceId, names: Collection[str]) -> tuple[str, ...]:
        """Make metrics known before the device has reported them, so that rules may name them. None is forgotten. All that are
        known then, by name. Raises PermissionDenied below Member; NotFound, ValidationFailed."""
        require_role(caller, Role.MEMBER)
        async with self.uow.write(caller, Role.MEMBER) as tx:
            device = await get_device(tx, caller.account_id, device_id)
            _, known = await declare_metrics(tx, caller, device, names, self.clock.now_ms())
        return known

    async def reload_device(self, device_id: DeviceId) -> None:
        """Load the device's rules from the database into the engine, after another instance has changed them."""
        async with self.engine_commit_lock, self.uow.read() as tx:
            device = await tx.devices.find(device_id)
            if device is not None:
                self._replace_engine_rules(
                    device.device_no, [rule.to_spec() for rule in await tx.rules.list_by_device(device_id)]
                )

    async def _check_rule(self, tx: RulesTx, caller: SessionCaller, device: Device, rule: Rule, now_ms: int) -> None:
        known = {name for _, name, _ in await tx.readings.list_device_metrics(device.device_no)}
        check_rule(rule, known)
        try:
            action = rule.action
            await self.commands.check_unattended(tx, caller, device, action.command, action.params, action.channel, now_ms)
        except ValidationFailed as error:
            raise action_fault("action", error) from None

    async def _emit_change(
        self,
        tx: RulesTx,
        caller: SessionCaller,
        device: Device,
        rule: Rule,
        kind: EventKind,
        now_ms: int,
        *,
        is_rearmed: bool = False,
    ) -> None:
        text = f"{kind.replace('_', ' ').capitalize()}: {rule.name}"
        tx.emit(event_of(caller, kind, text, now_ms, device, ruleId=rule.rule_id))
        rearmed = rule.rule_id if is_rearmed else None
        rules = await tx.rules.list_by_device(device.device_id)
        specs = [each.to_spec(now_ms if each.rule_id == rearmed else None) for each in rules]
        tx.after_commit(lambda: self._replace_engine_rules(device.device_no, specs))

    def _replace_engine_rules(self, device_no: int, specs: Sequence[EngineRule]) -> None:
        self.engine.set_rules(device_no, specs)
        self.wake_timers()


async def get_rule(tx: RulesTx, device_id: DeviceId, rule_id: RuleId) -> Rule:
    rule = await tx.rules.get(device_id, rule_id)
    if rule is None:
        raise NotFound.for_resource("rule", rule_id)
    return rule


async def declare_metrics(
    tx: RulesTx, caller: SessionCaller, device: Device, names: Collection[str], now_ms: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What was known before, and what is known now, by name. Raises ValidationFailed."""
    before = tuple(name for _, name, _ in await tx.readings.list_device_metrics(device.device_no))
    new = sorted(set(names) - set(before))
    if not new:
        return before, before
    if len(before) + len(new) > MAX_METRICS_PER_DEVICE:
        raise ValidationFailed.for_field("metrics", f"a device has at most {MAX_METRICS_PER_DEVICE} metrics.")
    numbers = await tx.readings.assign_metric_numbers(new)
    await tx.readings.declare_device_metrics(device.device_no, [number for number, _ in numbers])
    text = f"Metrics made known: {', '.join(new)}"
    tx.emit(event_of(caller, "device_updated", text, now_ms, device))
    return before, tuple(sorted({*before, *new}))
