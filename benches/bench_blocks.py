"""What it costs to hand messages to another instance: from a batch to a block for each partition, and back to a batch.

Run: pytest benches/bench_blocks.py -s
"""

from __future__ import annotations

import pytest

from adapters.engine import _native
from adapters.engine.native import NativeEngine
from bench_rules import METRICS, Cpu, messages

PARTITIONS = 64
BATCH = 2_048
COUNT = 100 * BATCH


def native_batches() -> list[_native.RawTelemetryBatch]:
    given = messages(10_000, COUNT)
    return [_native.RawTelemetryBatch(given[begin : begin + BATCH]) for begin in range(0, COUNT, BATCH)]


def test_from_batches_to_blocks(cpu: Cpu) -> None:
    given = native_batches()
    print(f"\n  {BATCH} messages in a batch, {PARTITIONS} partitions, {len(given[0].blocks(PARTITIONS)[0][1])} bytes in a block")
    cpu(lambda: [len(batch.blocks(PARTITIONS)) for batch in given], COUNT)


def test_from_blocks_to_batches(cpu: Cpu) -> None:
    """As an owner reads them: all waiting blocks of its partitions together."""
    blocks = [[block for _, block in batch.blocks(PARTITIONS)] for batch in native_batches()]
    assert sum(len(_native.RawTelemetryBatch.from_blocks(each)) for each in blocks) == COUNT
    cpu(lambda: [len(_native.RawTelemetryBatch.from_blocks(each)) for each in blocks], COUNT)


@pytest.mark.parametrize("engines", [1, PARTITIONS])
def test_one_engine_or_one_for_each_partition(cpu: Cpu, engines: int) -> None:
    """The same messages by 10,000 devices: all partitions in one engine, or each in an engine of its own."""
    owners = [NativeEngine() for _ in range(engines)]
    for owner in owners:
        owner.add_metric_names(list(enumerate(METRICS, 1)))
    parts: list[tuple[NativeEngine, _native.RawTelemetryBatch]] = []
    for batch in native_batches():
        blocks = batch.blocks(PARTITIONS)
        if engines == 1:
            parts.append((owners[0], _native.RawTelemetryBatch.from_blocks([block for _, block in blocks])))
        else:
            parts += [(owners[partition], _native.RawTelemetryBatch.from_blocks([block])) for partition, block in blocks]
    cpu(lambda: [len(owner.ingest(batch).rule_firings) for owner, batch in parts], COUNT)
