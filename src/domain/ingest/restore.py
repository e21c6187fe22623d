"""Restores the engine, at startup or when an instance takes over a partition: metric names, checkpoints, the rows stored after
them, then rules with their states.

Rules come last: a replayed row updates values and evaluates no rule. Whatever the database contains from after now was written
while the service's clock was ahead, or the clock is behind now: it counts as now.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from domain.ingest.ports import IngestTx
from domain.kernel.unit_of_work import UnitOfWork
from domain.partitions.model import hash_range
from domain.rules.model import EngineRule, Rule
from domain.rules.ports import TelemetryEngine
from domain.telemetry.ports import PackedRow, RowKey

PAGE_ROWS = 10_000


@dataclass(slots=True)
class EngineRestore:
    """Gives an engine what the database contains."""

    engine: TelemetryEngine
    now_ms: int
    replayed_rows: int = 0
    devices_with_rules: set[int] = field(default_factory=set)
    """By number."""
    unreadable_devices: set[int] = field(default_factory=set)
    """Numbers of devices that lost latest values, because stored bytes are unreadable."""

    def checkpoints(self, checkpoints: Sequence[tuple[int, int, bytes]]) -> None:
        for device_no, _, latest in checkpoints:
            with self._skip_if_unreadable(device_no):
                self.engine.restore(device_no, latest, self.now_ms)

    async def rows(self, list_page: Callable[[RowKey | None], Awaitable[Sequence[PackedRow]]]) -> None:
        after: RowKey | None = None
        while rows := await list_page(after):
            for device_no, at_ms, _, packed in rows:
                with self._skip_if_unreadable(device_no):
                    self.engine.replay(device_no, at_ms, packed, self.now_ms)
            self.replayed_rows += len(rows)
            after = rows[-1][:3]

    def rules(self, rules: Sequence[Rule]) -> None:
        by_device: dict[int, list[EngineRule]] = defaultdict(list)
        for rule in rules:
            spec = rule.to_spec()
            by_device[rule.device_no].append(replace(spec, state=spec.state.not_after(self.now_ms)))
        self.devices_with_rules.update(by_device)
        for device_no, specs in by_device.items():
            self.engine.set_rules(device_no, specs)

    @contextmanager
    def _skip_if_unreadable(self, device_no: int) -> Iterator[None]:
        """One damaged row must not prevent the startup of all other devices."""
        try:
            yield
        except ValueError:
            self.unreadable_devices.add(device_no)


async def restore_engine(engine: TelemetryEngine, uow: UnitOfWork[IngestTx], now_ms: int) -> EngineRestore:
    restore = EngineRestore(engine, now_ms)
    async with uow.read() as tx:
        engine.add_metric_names(await tx.readings.list_metric_names())
        restore.checkpoints(await tx.readings.list_checkpoints())
        await restore.rows(partial(tx.readings.list_newer_than_checkpoint, PAGE_ROWS))
        rules = await tx.rules.list_enabled()
    restore.rules(rules)
    return restore


async def restore_partition(
    engine: TelemetryEngine, uow: UnitOfWork[IngestTx], partition: int, partitions: int, now_ms: int
) -> EngineRestore:
    """`restore_engine` for the devices of a partition that this instance has just taken over. Replaces what the engine has of
    them: without owning them it may have read some of their messages for the API."""
    hashes = hash_range(partition, partitions)
    restore = EngineRestore(engine, now_ms)
    async with uow.read() as tx:
        names = await tx.readings.list_metric_names()
        checkpoints = await tx.partition_states.list_checkpoints(hashes)
        engine.drop_partition(partition, partitions)
        engine.add_metric_names(names)
        restore.checkpoints(checkpoints)
        await restore.rows(partial(tx.partition_states.list_newer_than_checkpoint, hashes, PAGE_ROWS))
        rules = await tx.partition_states.list_enabled_rules(hashes)
    restore.rules(rules)
    return restore


async def find_rules(uow: UnitOfWork[IngestTx], device_no: int) -> Sequence[EngineRule] | None:
    """The rules of a device with their stored states; None if the device was deleted."""
    async with uow.read() as tx:
        devices = await tx.devices.list_by_numbers({device_no})
        return [rule.to_spec() for rule in await tx.rules.list_by_device(devices[0].device_id)] if devices else None
