"""Runs a telemetry batch through the engine, and gives new metric names their numbers before it takes the messages with them.

The law: only the database assigns a number, so that several instances that store readings at the same time never use one number
for two names. The transaction is a short one of its own. A crash right after it leaves a number without readings, which is
harmless: the name gets the same number when a device sends it again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from domain.ingest.engine_result_writer import NOTHING, IngestResult
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.ports import BatchResult, RawTelemetryBatch, TelemetryEngine
from domain.telemetry.ports import HasReadings

AssignNames = Callable[[Sequence[str]], Awaitable[Mapping[str, Exception]]]
"""Tells the engine the numbers of these names. Returns the names that the database refuses, each with its error."""


async def assign_metric_numbers(engine: TelemetryEngine, uow: UnitOfWork[HasReadings], names: Sequence[str]) -> None:
    """Raises Unavailable when the database does not answer."""
    async with uow.write(caller=None) as tx:
        numbered = await tx.readings.assign_metric_numbers(names)
    engine.add_metric_names(numbered)


class TelemetryEngineBatchRunner:
    """Runs a batch through the engine in as many calls as new metric names require."""

    def __init__(self, engine: TelemetryEngine, assign_names: AssignNames) -> None:
        self._engine = engine
        self._assign_names = assign_names
        self._refused: dict[str, Exception] = {}
        self.results: list[BatchResult] = []
        self.skipped: list[tuple[IngestResult, Exception]] = []
        """What names the device of a message that the engine cannot take, because the database refuses one of its names."""

    async def run(self, batch: RawTelemetryBatch, now_ms: int) -> None:
        start = 0
        while start < len(batch):
            result = self._engine.ingest(batch, now_ms, start)
            self.results.append(result)
            start = result.consumed
            unknown = result.unknown_metric_names
            unassigned = [name for name in unknown if name not in self._refused]
            if unassigned:
                self._refused |= await self._assign_names(unassigned)
            elif unknown:
                named = replace(NOTHING, new_metrics=[(batch.messages()[start][0], 0, unknown[0], None)])
                self.skipped.append((named, self._refused[unknown[0]]))
                start += 1
