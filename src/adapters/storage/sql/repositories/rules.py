"""Rules, and the state that the engine keeps for each.

What the database contains of the devices of one partition.

PostgreSQL has an index on the hash of a device's number, so the cost depends on the devices of the partition, not on the fleet.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from sqlalchemy import TextClause, bindparam, update

from adapters.storage.sql.mapping import (
    EmbeddedDataclassColumns,
    EntityStatements,
    RowMapper,
    SqlRepository,
    enum_converter,
    from_json,
    to_json,
)
from adapters.storage.sql.session import POSTGRES, SQLITE
from adapters.storage.sql.statements import for_update, listed_integers, text_with_bigints
from adapters.storage.sql.tables import PARTITION_HASH, rules
from domain.ingest.ports import HashRange
from domain.kernel.columnar_records import read_column
from domain.kernel.ids import DeviceId, RuleId
from domain.rules.model import Comparator, MatchMode, Rule, RuleAction, RuleCondition, RuleState, RuleTransition
from domain.telemetry.ports import PackedRow


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
        "action": (
            lambda action: to_json([action.command, action.params, action.channel]),
            lambda stored: RuleAction(*from_json(stored)),
        ),
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
GET = for_update(RULES.get[False].where(r.device_id == bindparam("at_device")))
FIND_BY_NUMBER = RULE.select().where(r.rule_no == bindparam("at_no"))
LIST_BY_NUMBERS = RULE.select().where(r.rule_no.in_(listed_integers()))
LIST = RULE.select().where(r.device_id == bindparam("at_device")).order_by(r.priority, r.rule_no)
REARM = RULES.save.values(matched=False, held_since_ms=None)
SAVE_STATE = update(rules).where(r.rule_no == bindparam("at_no"))
LIST_ENABLED = RULE.select().where(r.enabled).order_by(r.device_no, r.priority, r.rule_no)


class SqlRuleRepository(SqlRepository):
    async def add(self, rule: Rule) -> Rule:
        rows = await self._session.write(ADD, **RULE.values(rule, "rule_no"))
        return replace(rule, rule_no=rows[0][0])

    async def get(self, device_id: DeviceId, rule_id: RuleId) -> Rule | None:
        return await self._first(RULE, GET[self._session.locks_reads], at_id=rule_id, at_device=device_id)

    async def find_by_number(self, rule_no: int) -> Rule | None:
        return await self._first(RULE, FIND_BY_NUMBER, at_no=rule_no)

    async def list_by_numbers(self, numbers: Collection[int]) -> Sequence[Rule]:
        return await self._list(RULE, LIST_BY_NUMBERS, at_listed=to_json(sorted(numbers)))

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


_DEVICES = f"WITH d AS (SELECT device_no FROM devices WHERE {PARTITION_HASH} BETWEEN :at_low AND :at_high)"  # noqa: S608 - a constant
_PARAMETERS = ("at_low", "at_high", "at_device", "at_ts", "at_digest", "at_limit")


def _of_partition(sql: str) -> TextClause:
    """The statement with its devices as `d`."""
    whole = f"{_DEVICES} {sql}"
    return text_with_bigints(whole, *[name for name in _PARAMETERS if f":{name}" in whole])


LIST_CHECKPOINTS = _of_partition(
    "SELECT l.device_no, l.ts, l.packed FROM d JOIN device_latest AS l ON l.device_no = d.device_no ORDER BY l.device_no"
)
_NEWER = (
    "r.device_no = d.device_no AND r.ts > coalesce(l.ts, -1) "
    "AND (d.device_no > :at_device OR r.ts > :at_ts OR (r.ts = :at_ts AND r.digest > :at_digest))"
)
_WITH_CHECKPOINT = "SELECT r.device_no, r.ts, r.digest, r.packed FROM d LEFT JOIN device_latest AS l ON l.device_no = d.device_no"
_PAGE = "d.device_no >= :at_device ORDER BY r.device_no, r.ts, r.digest LIMIT :at_limit"
_ROWS_OF_DEVICE = f"SELECT * FROM readings AS r WHERE {_NEWER} ORDER BY r.ts, r.digest LIMIT :at_limit"  # noqa: S608 - constants
LIST_NEWER_THAN_CHECKPOINT = {
    SQLITE: _of_partition(f"{_WITH_CHECKPOINT} CROSS JOIN readings AS r WHERE {_NEWER} AND {_PAGE}"),
    # LIMIT in the subquery: the planner must look up each device's rows by their key, and not read the whole table.
    POSTGRES: _of_partition(f"{_WITH_CHECKPOINT} CROSS JOIN LATERAL ({_ROWS_OF_DEVICE}) AS r WHERE {_PAGE}"),
}
LIST_ENABLED_RULES = (
    RULE.select()
    .where(rules.c.enabled, rules.c.device_no.in_(_of_partition("SELECT device_no FROM d")))
    .order_by(rules.c.device_no, rules.c.priority, rules.c.rule_no)
)


class SqlPartitionEngineStateRepository(SqlRepository):
    async def list_checkpoints(self, hashes: HashRange) -> Sequence[tuple[int, int, bytes]]:
        low, high = hashes
        return [(row[0], row[1], row[2]) for row in await self._session.read(LIST_CHECKPOINTS, at_low=low, at_high=high)]

    async def list_newer_than_checkpoint(
        self, hashes: HashRange, limit: int, after: tuple[int, int, int] | None
    ) -> Sequence[PackedRow]:
        device, at_ms, digest = after or (0, -1, 0)
        rows = await self._session.read(
            LIST_NEWER_THAN_CHECKPOINT[self._session.dialect],
            at_low=hashes[0],
            at_high=hashes[1],
            at_device=device,
            at_ts=at_ms,
            at_digest=digest,
            at_limit=limit,
        )
        return [(row[0], row[1], row[2], row[3]) for row in rows]

    async def list_enabled_rules(self, hashes: HashRange) -> Sequence[Rule]:
        low, high = hashes
        return await self._list(RULE, LIST_ENABLED_RULES, at_low=low, at_high=high)
