"""Rules, and what the engine remembers of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import bindparam, delete, insert, select, update

from adapters.storage.sql.rows import from_json, to_json
from adapters.storage.sql.session import Row, Session
from adapters.storage.sql.tables import rules
from domain.kernel.ids import DeviceId, RuleId
from domain.rules.model import Action, Comparator, Condition, Match, Rule, RuleEdge, RuleState

r = rules.c

_SELECT = select(
    r.rule_id,
    r.rule_no,
    r.account_id,
    r.device_id,
    r.device_no,
    r.name,
    r.conditions,
    r.action,
    r.enabled,
    r.priority,
    r.match,
    r.clear_conditions,
    r.for_seconds,
    r.cooldown_seconds,
    r.created_by,
    r.matched,
    r.held_since_ms,
    r.last_fired_ms,
    r.disabled_reason,
    r.created_at,
    r.revision,
)
_ID = r.rule_id == bindparam("at_id")

ADD = insert(rules).returning(r.rule_no)
GET = _SELECT.where(_ID, r.device_id == bindparam("at_device"))
BY_NO = _SELECT.where(r.rule_no == bindparam("at_no"))
LIST = _SELECT.where(r.device_id == bindparam("at_device")).order_by(r.priority, r.rule_no)
SAVE = update(rules).where(_ID)
REARM = update(rules).where(_ID).values(matched=False, held_since_ms=None)
SAVE_STATE = update(rules).where(r.rule_no == bindparam("at_no"))
DELETE = delete(rules).where(_ID)
ALL_ENABLED = _SELECT.where(r.enabled).order_by(r.device_no, r.priority, r.rule_no)


def _conditions(stored: str) -> tuple[Condition, ...]:
    return tuple(Condition(metric, Comparator(sign), value) for metric, sign, value in from_json(stored))


def _stored(conditions: Sequence[Condition]) -> str:
    return to_json([(c.metric, c.comparator.value, c.value) for c in conditions])


def rule_of(row: Row) -> Rule:
    (rule_id, rule_no, account_id, device_id, device_no, name, conditions, action, enabled, priority, match) = row[:11]
    clear, for_seconds, cooldown_seconds, created_by, matched, held_since_ms, last_fired_ms = row[11:18]
    disabled_reason, created_at, revision = row[18:]
    return Rule(
        rule_id=rule_id,
        rule_no=rule_no,
        account_id=account_id,
        device_id=device_id,
        device_no=device_no,
        name=name,
        conditions=_conditions(conditions),
        action=Action(*from_json(action)),
        enabled=bool(enabled),
        priority=priority,
        match=Match(match),
        clear_conditions=_conditions(clear),
        for_seconds=for_seconds,
        cooldown_seconds=cooldown_seconds,
        created_by=created_by,
        state=RuleState(bool(matched), held_since_ms, last_fired_ms),
        disabled_reason=disabled_reason,
        created_at=created_at,
        revision=revision,
    )


def values_of(rule: Rule) -> dict[str, Any]:
    """All but the number and the state."""
    return {
        "rule_id": rule.rule_id,
        "account_id": rule.account_id,
        "device_id": rule.device_id,
        "device_no": rule.device_no,
        "name": rule.name,
        "conditions": _stored(rule.conditions),
        "action": to_json([rule.action.command, rule.action.params]),
        "enabled": rule.enabled,
        "priority": rule.priority,
        "match": rule.match.value,
        "clear_conditions": _stored(rule.clear_conditions),
        "for_seconds": rule.for_seconds,
        "cooldown_seconds": rule.cooldown_seconds,
        "created_by": rule.created_by,
        "disabled_reason": rule.disabled_reason,
        "created_at": rule.created_at,
        "revision": rule.revision,
    }


def state_of(state: RuleState | RuleEdge) -> dict[str, Any]:
    return {"matched": state.matched, "held_since_ms": state.held_since_ms, "last_fired_ms": state.last_fired_ms}


class SqlRules:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def add(self, rule: Rule) -> Rule:
        rows = await self._session.write(ADD, **values_of(rule), **state_of(rule.state))
        return replace(rule, rule_no=rows[0][0])

    async def get(self, device_id: DeviceId, rule_id: RuleId) -> Rule | None:
        rows = await self._session.read(GET, at_id=rule_id, at_device=device_id)
        return rule_of(rows[0]) if rows else None

    async def by_no(self, rule_no: int) -> Rule | None:
        rows = await self._session.read(BY_NO, at_no=rule_no)
        return rule_of(rows[0]) if rows else None

    async def list(self, device_id: DeviceId) -> Sequence[Rule]:
        return [rule_of(row) for row in await self._session.read(LIST, at_device=device_id)]

    async def save(self, rule: Rule) -> None:
        await self._session.write(SAVE, at_id=rule.rule_id, **values_of(rule))

    async def save_states(self, edges: Sequence[RuleEdge]) -> None:
        await self._session.many(SAVE_STATE, [{"at_no": edge.rule_no, **state_of(edge)} for edge in edges])

    async def rearm(self, rule_id: RuleId) -> None:
        await self._session.write(REARM, at_id=rule_id)

    async def delete(self, rule_id: RuleId) -> None:
        await self._session.write(DELETE, at_id=rule_id)

    async def all_enabled(self) -> Sequence[Rule]:
        return [rule_of(row) for row in await self._session.read(ALL_ENABLED)]
