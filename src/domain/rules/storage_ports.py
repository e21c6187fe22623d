"""What the rules part needs from the database. (The engine that evaluates them is the port in `ports.py`.)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from domain.commands.ports import AutomationTx
from domain.devices.ports import HasDevices
from domain.kernel.ids import DeviceId, RuleId
from domain.rules.model import Rule, RuleTransition


class RuleRepository(Protocol):
    async def add(self, rule: Rule) -> Rule:
        """Gives the rule its `rule_no`: integers from 1 in order of creation."""
        ...

    async def get(self, device_id: DeviceId, rule_id: RuleId) -> Rule | None: ...

    async def find_by_number(self, rule_no: int) -> Rule | None: ...

    async def list_by_device(self, device_id: DeviceId) -> Sequence[Rule]:
        """By priority, then age."""
        ...

    async def save(self, rule: Rule) -> None:
        """All but its state: that is the engine's, which may live in another instance and have moved on meanwhile."""
        ...

    async def rearm(self, rule_id: RuleId) -> None:
        """As `Rule.rearmed`: it neither matches nor waits; when it last fired stays."""
        ...

    async def save_states(self, edges: Sequence[RuleTransition]) -> None:
        """Write what the engine changed (matched, held since, last fired) of many rules."""
        ...

    async def delete(self, rule_id: RuleId) -> None: ...

    async def list_enabled(self) -> Sequence[Rule]:
        """Every enabled rule, by device number, at start."""
        ...


class MetricCatalog(Protocol):
    """Which metrics a device has reported; the telemetry part's readings repository is one."""

    async def list_device_metrics(self, device_no: int) -> Sequence[tuple[int, str, str | None]]:
        """(metric number, name, unit), by name."""
        ...


class HasRules(Protocol):
    @property
    def rules(self) -> RuleRepository: ...


class HasMetricCatalog(Protocol):
    @property
    def readings(self) -> MetricCatalog: ...


class RuleTx(AutomationTx, HasDevices, HasMetricCatalog, HasRules, Protocol): ...
