"""Rules, and the state that the engine keeps for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import bindparam, delete, insert, select, update

from adapters.storage.sql.db_session import DbSession, Row
from adapters.storage.sql.row_mapper import from_json, to_json
from adapters.storage.sql.tables import rules
from domain.kernel.columnar_records import read_column
from domain.kernel.ids import DeviceId, RuleId
from domain.rules.model import Comparator, MatchMode, Rule, RuleAction, RuleCondition, RuleState, RuleTransition

r = rules.c

SELECT_RULES = select(
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
GET = SELECT_RULES.where(_ID, r.device_id == bindparam("at_device"))
FIND_BY_NUMBER = SELECT_RULES.where(r.rule_no == bindparam("at_no"))
LIST = SELECT_RULES.where(r.device_id == bindparam("at_device")).order_by(r.priority, r.rule_no)
SAVE = update(rules).where(_ID)
REARM = update(rules).where(_ID).values(matched=False, held_since_ms=None)
SAVE_STATE = update(rules).where(r.rule_no == bindparam("at_no"))
DELETE = delete(rules).where(_ID)
LIST_ENABLED = SELECT_RULES.where(r.enabled).order_by(r.device_no, r.priority, r.rule_no)


def _conditions_from_json(stored: str) -> tuple[RuleCondition, ...]:
    return tuple(RuleCondition(metric, Comparator(sign), value) for metric, sign, value in from_json(stored))


def _conditions_to_json(conditions: Sequence[RuleCondition]) -> str:
    return to_json([(c.metric, c.comparator.value, c.value) for c in conditions])


def rule_from_row(row: Row) -> Rule:
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
        conditions=_conditions_from_json(conditions),
        action=RuleAction(*from_json(action)),
        enabled=bool(enabled),
        priority=priority,
        match=MatchMode(match),
        clear_conditions=_conditions_from_json(clear),
        for_seconds=for_seconds,
        cooldown_seconds=cooldown_seconds,
        created_by=created_by,
        state=RuleState(bool(matched), held_since_ms, last_fired_ms),
        disabled_reason=disabled_reason,
        created_at=created_at,
        revision=revision,
    )


def rule_values(rule: Rule) -> dict[str, Any]:
    """All columns except the number and the state."""
    return {
        "rule_id": rule.rule_id,
        "account_id": rule.account_id,
        "device_id": rule.device_id,
        "device_no": rule.device_no,
        "name": rule.name,
        "conditions": _conditions_to_json(rule.conditions),
        "action": to_json([rule.action.command, rule.action.params]),
        "enabled": rule.enabled,
        "priority": rule.priority,
        "match": rule.match.value,
        "clear_conditions": _conditions_to_json(rule.clear_conditions),
        "for_seconds": rule.for_seconds,
        "cooldown_seconds": rule.cooldown_seconds,
        "created_by": rule.created_by,
        "disabled_reason": rule.disabled_reason,
        "created_at": rule.created_at,
        "revision": rule.revision,
    }


_STATE_FIELDS = ("rule_no", "matched", "held_since_ms", "last_fired_ms")
_STATE_PARAMETERS = ("at_no", *_STATE_FIELDS[1:])


def state_values(state: RuleState) -> dict[str, Any]:
    return {"matched": state.matched, "held_since_ms": state.held_since_ms, "last_fired_ms": state.last_fired_ms}


class SqlRuleRepository:
    def __init__(self, session: DbSession) -> None:
        self._session = session

    async def add(self, rule: Rule) -> Rule:
        rows = await self._session.write(ADD, **rule_values(rule), **state_values(rule.state))
        return replace(rule, rule_no=rows[0][0])

    async def get(self, device_id: DeviceId, rule_id: RuleId) -> Rule | None:
        rows = await self._session.read(GET, at_id=rule_id, at_device=device_id)
        return rule_from_row(rows[0]) if rows else None

    async def find_by_number(self, rule_no: int) -> Rule | None:
        rows = await self._session.read(FIND_BY_NUMBER, at_no=rule_no)
        return rule_from_row(rows[0]) if rows else None

    async def list_by_device(self, device_id: DeviceId) -> Sequence[Rule]:
        return [rule_from_row(row) for row in await self._session.read(LIST, at_device=device_id)]

    async def save(self, rule: Rule) -> None:
        await self._session.write(SAVE, at_id=rule.rule_id, **rule_values(rule))

    async def save_states(self, edges: Sequence[RuleTransition]) -> None:
        columns = zip(*(read_column(edges, field) for field in _STATE_FIELDS), strict=True)
        await self._session.execute_many(SAVE_STATE, [dict(zip(_STATE_PARAMETERS, state, strict=True)) for state in columns])

    async def rearm(self, rule_id: RuleId) -> None:
        await self._session.write(REARM, at_id=rule_id)

    async def delete(self, rule_id: RuleId) -> None:
        await self._session.write(DELETE, at_id=rule_id)

    async def list_enabled(self) -> Sequence[Rule]:
        return [rule_from_row(row) for row in await self._session.read(LIST_ENABLED)]
