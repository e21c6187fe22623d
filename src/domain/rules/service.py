"""Use cases of rules: create, edit, delete, and the changes by which the engine learns of them.

The engine is told after the commit, and only while no batch is on its way from the engine to the database (the turnstile).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from domain.commands.model import Definition
from domain.devices.lookup import device_of
from domain.devices.model import Device
from domain.kernel.caller import Role, Session, require_role
from domain.kernel.clock import Clock
from domain.kernel.errors import Conflict, NotFound
from domain.kernel.facts import EventKind, Fact, Json
from domain.kernel.ids import DeviceId, IdSource, Prefix, RuleId
from domain.kernel.turnstile import Turnstile
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules import policy
from domain.rules.model import Rule, RuleSpec
from domain.rules.ports import TelemetryEngine
from domain.rules.store import RulesTx


class UnattendedCheck(Protocol):
    """What the commands part decides about a command that will run with nobody present."""

    async def check_unattended(
        self, tx: RulesTx, caller: Session, device: Device, cmd: str, params: Json, now_ms: int
    ) -> Definition: ...

    async def definitions(self, tx: RulesTx, device: Device) -> Sequence[Definition]: ...


@dataclass(frozen=True, slots=True)
class Context:
    """What a rule on this device may be made of."""

    metrics: tuple[str, ...]
    commands: tuple[Definition, ...]


class RuleService:
    def __init__(
        self,
        *,
        uow: UnitOfWork[RulesTx],
        clock: Clock,
        ids: IdSource,
        engine: TelemetryEngine,
        commands: UnattendedCheck,
        turnstile: Turnstile,
        timer_bell: Callable[[], None] = lambda: None,
    ) -> None:
        """`timer_bell` is rung when the engine's next deadline may have become an earlier one."""
        self._uow = uow
        self._clock = clock
        self._ids = ids
        self._engine = engine
        self._commands = commands
        self._turnstile = turnstile
        self._timer_bell = timer_bell

    async def list(self, caller: Session, device_id: DeviceId) -> Sequence[Rule]:
        async with self._uow.read() as tx:
            await device_of(tx, caller.account_id, device_id)
            return await tx.rules.list(device_id)

    async def get(self, caller: Session, device_id: DeviceId, rule_id: RuleId) -> Rule:
        async with self._uow.read() as tx:
            await device_of(tx, caller.account_id, device_id)
            return await rule_of(tx, device_id, rule_id)

    async def context(self, caller: Session, device_id: DeviceId) -> Context:
        async with self._uow.read() as tx:
            device = await device_of(tx, caller.account_id, device_id)
            metrics = await tx.readings.metrics(device.device_no)
            commands = await self._commands.definitions(tx, device)
        usable = tuple(definition for definition in commands if not definition.requires_approval)
        return Context(tuple(name for _, name, _ in metrics), usable)

    async def create(self, caller: Session, device_id: DeviceId, fields: Mapping[str, Any]) -> Rule:
        """`fields` are Rule's own, as the caller chose them. Raises Invalid, NotFound, Refused, Conflict `TOO_MANY_RULES`."""
        require_role(caller, Role.MEMBER)
        now_ms = self._clock.now_ms()
        async with self._turnstile, self._uow.write() as tx:
            device = await device_of(tx, caller.account_id, device_id)
            present = await tx.rules.list(device_id)
            if len(present) >= policy.MAX_RULES_PER_DEVICE:
                raise Conflict(
                    f"A device takes at most {policy.MAX_RULES_PER_DEVICE} rules. Delete one first.", code="TOO_MANY_RULES"
                )
            rule = Rule(
                rule_id=RuleId(self._ids.new(Prefix.RULE)),
                rule_no=0,
                account_id=device.account_id,
                device_id=device.device_id,
                device_no=device.device_no,
                created_by=caller.membership_id,
                created_at=now_ms,
                **fields,
            )
            await self._check(tx, caller, device, rule, now_ms)
            rule = await tx.rules.add(rule)
            await self._changed(tx, caller, device, rule, "rule_created", now_ms)
        return rule

    async def edit(self, caller: Session, device_id: DeviceId, rule_id: RuleId, changes: Mapping[str, Any]) -> Rule:
        require_role(caller, Role.MEMBER)
        now_ms = self._clock.now_ms()
        async with self._turnstile, self._uow.write() as tx:
            device = await device_of(tx, caller.account_id, device_id)
            before = await rule_of(tx, device_id, rule_id)
            rule = policy.edited(before, changes)
            rule = replace(rule, created_by=caller.membership_id)  # it runs as whoever saved it last, and never with more
            await self._check(tx, caller, device, rule, now_ms)
            await tx.rules.save(rule)
            if policy.rearms(before, rule):
                await tx.rules.rearm(rule.rule_id)
            await self._changed(tx, caller, device, rule, "rule_updated", now_ms)
        return rule

    async def delete(self, caller: Session, device_id: DeviceId, rule_id: RuleId) -> None:
        require_role(caller, Role.MEMBER)
        now_ms = self._clock.now_ms()
        async with self._turnstile, self._uow.write() as tx:
            device = await device_of(tx, caller.account_id, device_id)
            rule = await rule_of(tx, device_id, rule_id)
            await tx.rules.delete(rule_id)
            await self._changed(tx, caller, device, rule, "rule_deleted", now_ms)

    async def reload(self, device_id: DeviceId) -> None:
        """Another instance changed this device's rules: the engine takes them from the database."""
        async with self._turnstile, self._uow.read() as tx:
            device = await tx.devices.find(device_id)
            if device is not None:
                self._put(device.device_no, [rule.spec() for rule in await tx.rules.list(device_id)])

    async def _check(self, tx: RulesTx, caller: Session, device: Device, rule: Rule, now_ms: int) -> None:
        known = {name for _, name, _ in await tx.readings.metrics(device.device_no)}
        policy.check(rule, known)
        await self._commands.check_unattended(tx, caller, device, rule.action.command, rule.action.params, now_ms)

    async def _changed(self, tx: RulesTx, caller: Session, device: Device, rule: Rule, kind: EventKind, now_ms: int) -> None:
        fact = Fact(
            account_id=device.account_id,
            kind=kind,
            description=f"{kind.replace('_', ' ').capitalize()}: {rule.name}",
            at_ms=now_ms,
            source=caller.label,
            device_id=device.device_id,
            data={"ruleId": rule.rule_id},
            address=caller.address,
        )
        await tx.record(fact)
        specs = [kept.spec() for kept in await tx.rules.list(device.device_id)]
        tx.after_commit(lambda: self._put(device.device_no, specs))

    def _put(self, device_no: int, specs: Sequence[RuleSpec]) -> None:
        self._engine.put_rules(device_no, specs)
        self._timer_bell()


async def rule_of(tx: RulesTx, device_id: DeviceId, rule_id: RuleId) -> Rule:
    rule = await tx.rules.get(device_id, rule_id)
    if rule is None:
        raise NotFound.of("rule", rule_id)
    return rule
