"""The small account of `device_world` with rules, telemetry and an engine, wired as the program wires them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from adapters.engine.reference import ReferenceEngine
from adapters.mqtt.codec import ProfileCodec
from domain.devices.model import Device
from domain.kernel.caller import Role
from domain.rules.model import Action, Comparator, Condition, Rule
from domain.rules.service import RuleService
from domain.telemetry.batch import PlainBatch
from domain.telemetry.ingest import IngestService, Verdict
from domain.telemetry.rollup_service import RollupService
from domain.telemetry.service import TelemetryService
from domain.telemetry.stretches import StretchService
from domain.telemetry.trial import TrialService
from domain.telemetry.uplink import UplinkService
from support.device_world import DeviceWorld


class Announcements:
    def __init__(self) -> None:
        self.events: list[Any] = []

    async def announce(self, tx: object, events: Any) -> None:
        self.events += events


class Plans:
    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    async def on_sched_revs(self, tx: object, said: Sequence[tuple[Device, int]]) -> None:
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
        self.rules = RuleService(**shared, ids=self.ids, engine=self.engine, commands=self.commands, turnstile=asyncio.Lock())
        self.ingest = IngestService(
            ids=self.ids, clock=self.clock, engine=self.engine, commands=self.commands, announcer=self.announcer
        )
        self.telemetry = TelemetryService(**shared, engine=self.engine, gate=self.gate)
        self.stretches = StretchService(**shared, engine=self.engine, gate=self.gate)
        self.rollups = RollupService(**shared, engine=self.engine)
        self.trials = TrialService(
            **shared,
            engine=self.engine,
            fresh_engine=ReferenceEngine,
            make_batch=PlainBatch.of,
            encode=lambda at_ms, values: json.dumps({"ts": at_ms, "m": values}).encode(),
        )
        self.uplink = UplinkService(
            **shared, codec=ProfileCodec(), reports=self.reports, presence=self.presence, plans=self.plans
        )

    async def report(self, device: Device, **values: Any) -> Verdict:
        """One telemetry message, stored."""
        batch = PlainBatch.of([(device.device_no, self.clock.now_ms(), json.dumps(values).encode())])
        verdict = Verdict.of(self.engine.ingest(batch))
        await self.store(verdict)
        self.clock.forward(1_000)
        return verdict

    async def tick(self) -> None:
        await self.store(Verdict.of(self.engine.tick(self.clock.now_ms())))

    async def store(self, verdict: Verdict) -> None:
        async with self.uow.write() as tx:
            await self.ingest.store(tx, verdict)

    async def rule(self, device: Device, command: str = "OFF", above: float = 30, **fields: Any) -> Rule:
        wanted = {
            "name": f"{command} above {above}",
            "conditions": (Condition("temperature", Comparator.GREATER, float(above)),),
            "action": Action(command),
        }
        return await self.rules.create(self.session(Role.OWNER), device.device_id, wanted | fields)

    async def commands_of(self, device: Device) -> list[str]:
        """What was queued for the device, oldest first."""
        async with self.uow.read() as tx:
            return [execution.cmd for execution in reversed(await tx.executions.page(device.device_id, limit=100))]
