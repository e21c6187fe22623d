"""Several engines on one database never use one metric number for two names, whatever their devices report at the same time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adapters.engine.native import NativeEngine, make_batch
from adapters.storage.sql import SqlDatabase
from app.workers import ingest as splitting_batch_writer
from app.workers.ingest import SplittingBatchWriter
from domain.ingest.device_messages import DecodedBatch
from domain.ingest.pipeline import AssignNames, EngineClock, EvaluatedBatch, IngestPipeline, assign_metric_numbers
from domain.kernel.backoff import Backoff
from domain.kernel.errors import Unavailable
from domain.rules.ports import BatchResult
from support import postgres
from support.empty_database import empty_postgres, empty_sqlite
from support.engine import T0
from support.manual_clock import ManualClock
from support.storage import open_storage

ENGINES = 4


async def evaluate(engine: NativeEngine, assign_names: AssignNames, messages: list[tuple[int, int, bytes]]) -> EvaluatedBatch:
    """What the pipeline makes of telemetry; nothing else of it is used."""
    clock = EngineClock(engine=engine, clock=ManualClock(T0), on_step=lambda step_ms: None)
    unused: Any = dict.fromkeys(("uow", "link", "device_messages", "ingest", "on_devices_ready", "on_devices_subscribed"))
    pipeline = IngestPipeline(engine=engine, engine_clock=clock, make_batch=make_batch, **unused)
    batch: Any = SimpleNamespace(telemetry=make_batch(messages))
    return await pipeline.evaluate(batch, DecodedBatch(), assign_names)


class Instance:
    """An engine with its own connections to the database."""

    def __init__(self, url: str) -> None:
        self.engine = NativeEngine()
        self.database = SqlDatabase(url)

    async def assign(self, names: Sequence[str]) -> dict[str, Exception]:
        await assign_metric_numbers(self.engine, self.database.uow, names)
        return {}

    async def report(self, device_no: int, **values: float) -> None:
        messages = [(device_no, T0 + index, json.dumps({k: v}).encode()) for index, (k, v) in enumerate(values.items())]
        evaluated = await evaluate(self.engine, self.assign, messages)
        async with self.database.uow.write() as tx:
            await tx.readings.add_many([row for result in evaluated.results for row in result.rows])

    async def read(self, device_no: int) -> dict[str, float | None]:
        async with self.database.uow.read() as tx:
            names = dict(await tx.readings.list_metric_names())
            rows = await tx.readings.list_between(device_no, 0, T0 + 1, 1_000)
        return {names[number]: value for _, number, value, _, _ in self.engine.unpack_readings(rows)}


@pytest.mark.parametrize("kind", ["sqlite", *(["postgres"] if postgres.available() else [])])
async def test_engines_that_report_new_metrics_at_once_read_each_others_readings(kind: str, tmp_path: Path) -> None:
    url = await empty_postgres() if kind == "postgres" else empty_sqlite(tmp_path / "latchboard.db")
    instances = [Instance(url) for _ in range(ENGINES if kind == "postgres" else 1)]
    for instance in instances:
        await instance.database.start()
    try:
        sent = {
            no: {f"m{no}_{n}": no + n / 10 for n in range(9)} | {f"shared{n}": n + no for n in range(9)} for no in range(1, 9)
        }
        await asyncio.gather(*[instances[no % len(instances)].report(no, **values) for no, values in sent.items()])
        for reader in instances:
            assert {no: await reader.read(no) for no in sent} == sent
        async with instances[0].database.uow.read() as tx:
            numbers = [number for number, _ in await tx.readings.list_metric_names()]
        assert numbers == list(range(1, 8 * 9 + 9 + 1))
    finally:
        for instance in instances:
            await instance.database.stop()


class RefusingPipeline:
    """Assigns numbers; the database is away at first, and refuses a name."""

    def __init__(self, engine: NativeEngine) -> None:
        self._engine = engine
        self.attempts: list[list[str]] = []

    async def assign_names(self, names: Sequence[str]) -> None:
        self.attempts.append(list(names))
        if len(self.attempts) == 1:
            raise Unavailable("away")
        if "bad" in names:
            raise ValueError("no thanks")
        self._engine.add_metric_names([(1 + len(name), name) for name in names])


async def test_a_message_with_a_name_that_the_database_refuses_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting_batch_writer, "RETRY_BACKOFF", Backoff((0.0,)))
    engine = NativeEngine()
    pipeline: Any = RefusingPipeline(engine)
    messages = [(no, T0, b'{"%s": 1}' % name) for no, name in enumerate((b"a", b"bad", b"bb", b"bad", b"ccc"))]
    evaluated = await evaluate(engine, SplittingBatchWriter(pipeline=pipeline).assign_names, messages)
    assert pipeline.attempts == [["a", "bad", "bb", "ccc"]] * 2 + [["a", "bad"], ["a"], ["bad"], ["bb", "ccc"]]
    assert [row[0] for result in evaluated.results for row in result.rows] == [0, 2, 4]
    assert [(each.part.device_nos, str(each.error)) for each in evaluated.unnamed] == [({1}, "no thanks"), ({3}, "no thanks")]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_crash_after_the_numbers_were_assigned_leaves_numbers_that_are_used_later(kind: str, tmp_path: Path) -> None:
    async with open_storage(kind, tmp_path) as uow:
        await assign_metric_numbers(NativeEngine(), uow, ["t", "h"])
        engine, results = NativeEngine(), list[BatchResult]()
        await assign_metric_numbers(engine, uow, ["h"])
        results = [engine.ingest(make_batch([(1, T0, b'{"h": 1, "t": 2}')]))]
        assert results[0].unknown_metric_names == ["t"]
        await assign_metric_numbers(engine, uow, ["t"])
        assert engine.ingest(make_batch([(1, T0, b'{"h": 1, "t": 2}')])).new_metrics == [(1, 2, "h", None), (1, 1, "t", None)]
