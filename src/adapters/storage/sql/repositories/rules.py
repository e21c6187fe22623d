"""Rules, and the state that the engine keeps for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import bindparam, update

from adapters.storage.sql.entity_repository import EntityStatements, SqlRepository
from adapters.storage.sql.row_mapper import EmbeddedDataclassColumns, RowMapper, enum_converter, from_json, to_json
from adapters.storage.sql.tables import rules
from domain.kernel.columnar_records import read_column
from domain.kernel.ids import DeviceId, RuleId
from domain.rules.model import Comparator, MatchMode, Rule, RuleAction, RuleCondition, RuleState, RuleTransition


def _conditions_from_json(stored: str) -> tuple[RuleCondition, ...]:
    return tuple(RuleCondition(metric, Comparator(sign), value) for metric, sign, value in from_json(stored))


def _conditions_to_json(conditions: Sequence[RuleCondition]) -> str:
    return to_json([(c.metric, c.comparator.value, c.value) for c in conditions])


_CONDITIONS = (_conditions_to_json, _conditions_from_json)
RULE = RowMapper(
    rules,
    Rule,
    {
        "conditions": _CONDITIONS,
        "action": (lambda action: to_json([action.command, action.params]), lambda stored: RuleAction(*from_json(stored))),
        "match": enum_converter(MatchMode),
        "clear_conditions": _CONDITIONS,
    },
    nested={"state": EmbeddedDataclassColumns(RuleState)},
)
_STATE_FIELDS = ("rule_no", "matched", "held_since_ms", "last_fired_ms")
_STATE_PARAMETERS = ("at_no", *_STATE_FIELDS[1:])
RULES = EntityStatements(RULE, "rule_id", unchanged=_STATE_FIELDS)

r = rules.c
ADD = RULES.add.returning(r.rule_no)
GET = RULES.get[False].where(r.device_id == bindparam("at_device"))
FIND_BY_NUMBER = RULE.select().where(r.rule_no == bindparam("at_no"))
LIST = RULE.select().where(r.device_id == bindparam("at_device")).order_by(r.priority, r.rule_no)
REARM = RULES.save.values(matched=False, held_since_ms=None)
SAVE_STATE = update(rules).where(r.rule_no == bindparam("at_no"))
LIST_ENABLED = RULE.select().where(r.enabled).order_by(r.device_no, r.priority, r.rule_no)


class SqlRuleRepository(SqlRepository):
    async def add(self, rule: Rule) -> Rule:
        rows = await self._session.write(ADD, **RULE.values(rule, "rule_no"))
        return replace(rule, rule_no=rows[0][0])

    async def get(self, device_id: DeviceId, rule_id: RuleId) -> Rule | None:
        return await self._first(RULE, GET, at_id=rule_id, at_device=device_id)

    async def find_by_number(self, rule_no: int) -> Rule | None:
        return await self._first(RULE, FIND_BY_NUMBER, at_no=rule_no)

    async def list_by_device(self, device_id: DeviceId) -> Sequence[Rule]:
        return await self._list(RULE, LIST, at_device=device_id)

    async def save(self, rule: Rule) -> None:
        await self._session.write(RULES.save, at_id=rule.rule_id, **RULE.values(rule, *RULES.unchanged))

    async def save_states(self, edges: Sequence[RuleTransition]) -> None:
        columns = zip(*(read_column(edges, field) for field in _STATE_FIELDS), strict=True)
        await self._session.execute_many(SAVE_STATE, [dict(zip(_STATE_PARAMETERS, state, strict=True)) for state in columns])

    async def rearm(self, rule_id: RuleId) -> None:
        await self._session.write(REARM, at_id=rule_id)

    async def delete(self, rule_id: RuleId) -> None:
        await self._session.write(RULES.delete, at_id=rule_id)

    async def list_enabled(self) -> Sequence[Rule]:
        return await self._list(RULE, LIST_ENABLED)
