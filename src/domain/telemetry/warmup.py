"""At start the engine is brought to where it was: names, last values, rules with their states, then the rows that came after."""

from __future__ import annotations

from collections import defaultdict

from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.model import RuleSpec
from domain.rules.ports import TelemetryEngine
from domain.telemetry.ports import TelemetryTx

PAGE_ROWS = 10_000


async def warm_up(engine: TelemetryEngine, uow: UnitOfWork[TelemetryTx]) -> int:
    """How many rows were replayed. Rules come last: a replayed row updates values and drives no rule."""
    replayed = 0
    async with uow.read() as tx:
        engine.set_metrics(await tx.readings.names())
        for device_no, _, latest in await tx.readings.latest():
            engine.restore(device_no, latest)
        after: tuple[int, int, int] | None = None
        while rows := await tx.readings.newer_than_latest(PAGE_ROWS, after):
            for device_no, at_ms, _, packed in rows:
                engine.replay(device_no, at_ms, packed)
            replayed += len(rows)
            after = rows[-1][:3]
        by_device: dict[int, list[RuleSpec]] = defaultdict(list)
        for rule in await tx.rules.all_enabled():
            by_device[rule.device_no].append(rule.spec())
    for device_no, specs in by_device.items():
        engine.put_rules(device_no, specs)
    return replayed
