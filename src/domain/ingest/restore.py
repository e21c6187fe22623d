"""Restores the engine at startup: metric names, checkpoints, the rows stored after them, then rules with their states."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from domain.devices.ports import HasDevices
from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.engine_port import TelemetryEngine
from domain.rules.model import RuleSpec
from domain.rules.storage_ports import HasRules
from domain.telemetry.ports import HasReadings

PAGE_ROWS = 10_000


class RestoreTx(HasReadings, HasRules, Protocol): ...


class DeviceRulesTx(HasDevices, HasRules, Protocol): ...


@dataclass(slots=True)
class RestoreReport:
    """Rows replayed, and the numbers of devices that lost latest values because stored bytes are unreadable."""

    replayed_rows: int = 0
    unreadable_devices: set[int] = field(default_factory=set)

    @contextmanager
    def skip_if_unreadable(self, device_no: int) -> Iterator[None]:
        """One damaged row must not prevent the startup of all other devices."""
        try:
            yield
        except ValueError:
            self.unreadable_devices.add(device_no)


async def restore_engine(engine: TelemetryEngine, uow: UnitOfWork[RestoreTx], now_ms: int) -> RestoreReport:
    """Set the rules last: a replayed row updates values and evaluates no rule. Whatever the database contains from after `now_ms`
    was written while the service's clock was ahead, or the clock is behind now: it counts as now."""
    report = RestoreReport()
    async with uow.read() as tx:
        engine.add_metric_names(await tx.readings.list_metric_names())
        for device_no, _, latest in await tx.readings.list_checkpoints():
            with report.skip_if_unreadable(device_no):
                engine.restore(device_no, latest, now_ms)
        after: tuple[int, int, int] | None = None
        while rows := await tx.readings.list_newer_than_checkpoint(PAGE_ROWS, after):
            for device_no, at_ms, _, packed in rows:
                with report.skip_if_unreadable(device_no):
                    engine.replay(device_no, at_ms, packed, now_ms)
            report.replayed_rows += len(rows)
            after = rows[-1][:3]
        by_device: dict[int, list[RuleSpec]] = defaultdict(list)
        for rule in await tx.rules.list_enabled():
            spec = rule.to_spec()
            by_device[rule.device_no].append(replace(spec, state=spec.state.not_after(now_ms)))
    for device_no, specs in by_device.items():
        engine.set_rules(device_no, specs)
    return report


async def find_rules(uow: UnitOfWork[DeviceRulesTx], device_no: int) -> Sequence[RuleSpec] | None:
    """The rules of a device with their stored states; None if the device was deleted."""
    async with uow.read() as tx:
        devices = await tx.devices.list_by_numbers({device_no})
        return [rule.to_spec() for rule in await tx.rules.list_by_device(devices[0].device_id)] if devices else None
