"""The small account of `device_world` with rules, telemetry and an engine, wired as the program wires them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from adapters.mqtt.firmware_codec import FirmwareDeviceCodec
from domain.devices.model import Device
from domain.ingest.device_messages import DeviceMessageService
from domain.ingest.telemetry import IngestResult, IngestService
from domain.kernel.caller import Role
from domain.rules.model import Comparator, Rule, RuleAction, RuleCondition
from domain.rules.service import RuleService
from domain.telemetry.engine.batch import InMemoryTelemetryBatch
from domain.telemetry.engine.reference import ReferenceEngine
from domain.telemetry.queries.downsampling import DownsamplingService
from domain.telemetry.queries.latest_and_history import TelemetryQueryService
from domain.telemetry.queries.rule_dry_run import RuleDryRunService
from domain.telemetry.rollup_service import RollupService
from support.device_world import DeviceWorld


class Announcements:
    def __init__(self) -> None:
        self.events: list[Any] = []

    async def publish_transient(self, tx: object, events: Any) -> None:
        self.events += events


class Plans:
    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    async def on_plan_revisions(self, tx: object, said: Sequence[tuple[Device, int]]) -> None:
        self.told += [(device.device_id, rev) for device, rev in said]

    def on_online(self, tx: object, device: Device) -> None:
        pass


class TelemetryWorld(DeviceWorld):
    def __init__(self) -> None:
        super().__init__()
        self.engine = ReferenceEngine()
        self.announcer = Announcements()
        self.plans = Plans()
        shared: dict[str, Any] = {"uow": self.uow, "clock": self.clock}
        self.rules = RuleService(
            **shared, ids=self.ids, engine=self.engine, commands=self.commands, engine_commit_lock=asyncio.Lock()
        )
        self.ingest = IngestService(
            ids=self.ids, clock=self.clock, engine=self.engine, commands=self.commands, publisher=self.announcer
        )
        self.telemetry = TelemetryQueryService(**shared, engine=self.engine, authorizer=self.gate)
        self.downsampling = DownsamplingService(**shared, engine=self.engine, authorizer=self.gate)
        self.rollups = RollupService(**shared, engine=self.engine)
        self.trials = RuleDryRunService(
            **shared,
            engine=self.engine,
            create_engine=ReferenceEngine,
            make_batch=InMemoryTelemetryBatch.of,
            encode=lambda at_ms, values: json.dumps({"ts": at_ms, "m": values}).encode(),
        )
        self.uplink = DeviceMessageService(
            **shared, codec=FirmwareDeviceCodec(), reports=self.reports, presence=self.presence, plans=self.plans
        )

    async def report(self, device: Device, **values: Any) -> IngestResult:
        """One telemetry message, stored."""
        batch = InMemoryTelemetryBatch.of([(device.device_no, self.clock.now_ms(), json.dumps(values).encode())])
        verdict = IngestResult.of(self.engine.ingest(batch))
        await self.store(verdict)
        self.clock.forward(1_000)
        return verdict

    async def tick(self) -> None:
        await self.store(IngestResult.of(self.engine.tick(self.clock.now_ms())))

    async def store(self, verdict: IngestResult) -> None:
        async with self.uow.write() as tx:
            await self.ingest.store(tx, verdict)

    async def rule(self, device: Device, command: str = "OFF", above: float = 30, **fields: Any) -> Rule:
        wanted = {
            "name": f"{command} above {above}",
            "conditions": (RuleCondition("temperature", Comparator.GREATER, float(above)),),
            "action": RuleAction(command),
        }
        return await self.rules.create(self.session(Role.OWNER), device.device_id, wanted | fields)

    async def commands_of(self, device: Device) -> list[str]:
        """What was queued for the device, oldest first."""
        async with self.uow.read() as tx:
            return [execution.cmd for execution in reversed(await tx.executions.page(device.device_id, limit=100))]
