"""The repository port of rules. The port to the engine is in `telemetry_engine_port.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from domain.commands.ports import AutomationTx
from domain.devices.ports import HasDevices
from domain.kernel.ids import DeviceId, RuleId
from domain.rules.model import Rule, RuleTransition
from domain.rules.reported_and_declared_metric_ports import HasReportedDeviceMetrics


class RuleRepository(Protocol):
    async def add(self, rule: Rule) -> Rule:
        """Assign `rule_no`: integers from 1 in order of creation."""

    async def get(self, device_id: DeviceId, rule_id: RuleId) -> Rule | None: ...

    async def find_by_number(self, rule_no: int) -> Rule | None: ...

    async def list_by_device(self, device_id: DeviceId) -> Sequence[Rule]:
        """By priority, then age."""

    async def save(self, rule: Rule) -> None:
        """Write everything except the rule state, which belongs to the engine, possibly of another instance."""

    async def rearm(self, rule_id: RuleId) -> None:
        """Reset the stored state as `Rule.rearm` does."""

    async def save_states(self, edges: Sequence[RuleTransition]) -> None:
        """Write the rule states that the engine changed."""

    async def delete(self, rule_id: RuleId) -> None: ...

    async def list_enabled(self) -> Sequence[Rule]:
        """Every enabled rule, by device number; read at startup."""


class HasRules(Protocol):
    @property
    def rules(self) -> RuleRepository: ...


class RuleTx(AutomationTx, HasDevices, HasReportedDeviceMetrics, HasRules, Protocol): ...
