"""Rules and their stored states."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from domain.kernel.ids import DeviceId, RuleId
from domain.rules.model import Rule, RuleTransition
from support.memory_storage.tables import Database, Table

RULES: Table[RuleId, Rule] = Table("rules")


class MemoryRuleRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, rule: Rule) -> Rule:
        stored = replace(rule, rule_no=self._database.next_value("rule_no"))
        self._database.writable_rows(RULES)[rule.rule_id] = stored
        return stored

    async def get(self, device_id: DeviceId, rule_id: RuleId) -> Rule | None:
        rule = self._database.rows(RULES).get(rule_id)
        return rule if rule is not None and rule.device_id == device_id else None

    async def find_by_number(self, rule_no: int) -> Rule | None:
        return next((rule for rule in self._database.rows(RULES).values() if rule.rule_no == rule_no), None)

    async def list_by_numbers(self, numbers: Collection[int]) -> Sequence[Rule]:
        return [rule for rule in self._database.rows(RULES).values() if rule.rule_no in set(numbers)]

    async def list_by_device(self, device_id: DeviceId) -> Sequence[Rule]:
        mine = [rule for rule in self._database.rows(RULES).values() if rule.device_id == device_id]
        return sorted(mine, key=lambda rule: (rule.priority, rule.rule_no))

    async def save(self, rule: Rule) -> None:
        rows = self._database.writable_rows(RULES)
        stored = rows.get(rule.rule_id)
        if stored is not None:
            rows[rule.rule_id] = replace(rule, rule_no=stored.rule_no, state=stored.state)

    async def rearm(self, rule_id: RuleId) -> None:
        rows = self._database.writable_rows(RULES)
        if rule_id in rows:
            rows[rule_id] = rows[rule_id].rearm()

    async def save_states(self, edges: Sequence[RuleTransition]) -> None:
        rows = self._database.writable_rows(RULES)
        by_no = {rule.rule_no: rule.rule_id for rule in rows.values()}
        for edge in edges:
            rule_id = by_no.get(edge.rule_no)
            if rule_id is not None:
                rows[rule_id] = replace(rows[rule_id], state=edge.state)

    async def delete(self, rule_id: RuleId) -> None:
        self._database.delete(RULES, [rule_id])

    async def list_enabled(self) -> Sequence[Rule]:
        enabled = [rule for rule in self._database.rows(RULES).values() if rule.enabled]
        return sorted(enabled, key=lambda rule: (rule.device_no, rule.priority, rule.rule_no))
