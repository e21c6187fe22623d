"""The account of `device_world` with rules, telemetry and an engine, wired as in the program."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from domain.devices.model import Device
from domain.ingest.pipeline import assign_metric_numbers
from domain.ingest.results import EngineResultWriter, IngestResult
from domain.kernel.caller import Role
from domain.rules.model import Comparator, Rule, RuleAction, RuleCondition
from domain.rules.service import RuleService
from domain.telemetry.downsampling import DownsamplingQueryService
from domain.telemetry.dry_run import RuleDryRunService
from domain.telemetry.history import TelemetryQueryService
from domain.telemetry.reference_engine import PythonTelemetryBatch, ReferenceTelemetryEngine
from domain.telemetry.rollups import RollupService
from support.device_world import DeviceWorld


class FakeEventPublisher:
    def __init__(self) -> None:
        self.events: list[Any] = []
        self.to_feed: list[Any] = []

    def publish_store_time(self, tx: object, store_time_s: int) -> None: ...

    def publish_to_feed(self, tx: object, events: Any) -> None:
        self.to_feed += events

    async def publish_transient(self, tx: object, events: Any) -> None:
        self.events += events


class TelemetryWorld(DeviceWorld):
    def __init__(self) -> None:
        super().__init__()
        self.engine = ReferenceTelemetryEngine()
        self.publisher = FakeEventPublisher()
        shared: dict[str, Any] = {"uow": self.uow, "clock": self.clock}
        self.rules = RuleService(
            **shared, ids=self.ids, engine=self.engine, commands=self.commands, engine_commit_lock=asyncio.Lock()
        )
        self.ingest = EngineResultWriter(clock=self.clock, engine=self.engine, commands=self.commands, publisher=self.publisher)
        self.telemetry = TelemetryQueryService(
            **shared, engine=self.engine, create_engine=ReferenceTelemetryEngine, authorizer=self.gate
        )
        self.follower = TelemetryQueryService(
            **shared,
            engine=ReferenceTelemetryEngine(),
            create_engine=ReferenceTelemetryEngine,
            authorizer=self.gate,
            is_stored_elsewhere=lambda device_no: True,
        )
        """Reads what another instance stores."""
        self.downsampling = DownsamplingQueryService(**shared, engine=self.engine, authorizer=self.gate)
        self.rollups = RollupService(**shared, engine=self.engine)
        self.rule_dry_runs = RuleDryRunService(
            **shared,
            engine=self.engine,
            create_engine=ReferenceTelemetryEngine,
            make_batch=PythonTelemetryBatch.of,
            encode=lambda at_ms, values: json.dumps({"ts": at_ms, "m": values}).encode(),
        )

    async def report(self, device: Device, **values: Any) -> IngestResult:
        """Ingest one telemetry message and advance the clock by a second."""
        result = await self.ingest_all([(device.device_no, self.clock.now_ms(), json.dumps(values).encode())])
        await self.store(result)
        self.clock.forward(1_000)
        return result

    async def ingest_all(self, messages: list[tuple[int, int, bytes]]) -> IngestResult:
        """Of messages the first of which has all the new metrics."""
        batch = PythonTelemetryBatch.of(messages)
        result = self.engine.ingest(batch)
        if result.unknown_metric_names:
            await assign_metric_numbers(self.engine, self.uow, result.unknown_metric_names)
            result = self.engine.ingest(batch)
        return IngestResult.of(result)

    async def tick(self) -> None:
        await self.store(IngestResult.of(self.engine.tick(self.clock.now_ms())))

    async def store(self, result: IngestResult) -> None:
        async with self.uow.write() as tx:
            await self.ingest.store(tx, result)

    async def rule(self, device: Device, command: str = "OFF", above: float = 30, **fields: Any) -> Rule:
        wanted = {
            "name": f"{command} above {above}",
            "conditions": (RuleCondition("temperature", Comparator.GREATER, float(above)),),
            "action": RuleAction(command),
        }
        return await self.rules.create(self.session(Role.OWNER), device.device_id, wanted | fields)

    async def commands_of(self, device: Device) -> list[str]:
        """The commands queued for the device, oldest first."""
        async with self.uow.read() as tx:
            return [execution.cmd for execution in reversed(await tx.executions.page(device.device_id, limit=100))]
