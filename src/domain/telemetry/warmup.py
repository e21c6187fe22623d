"""At start the engine is brought to where it was: names, last values, rules with their states, then the rows that came after."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from domain.kernel.unit_of_work import UnitOfWork
from domain.rules.model import RuleSpec
from domain.rules.ports import TelemetryEngine
from domain.telemetry.ports import TelemetryTx

PAGE_ROWS = 10_000


@dataclass(slots=True)
class WarmUp:
    """Rows replayed, and the numbers of devices whose last values are not all there, because bytes of theirs cannot be read."""

    replayed: int = 0
    unreadable: set[int] = field(default_factory=set)

    @contextmanager
    def reading(self, device_no: int) -> Iterator[None]:
        """One row that a disk has spoiled must not keep every other device waiting for ever."""
        try:
            yield
        except ValueError:
            self.unreadable.add(device_no)


async def warm_up(engine: TelemetryEngine, uow: UnitOfWork[TelemetryTx]) -> WarmUp:
    """Rules come last: a replayed row updates values and drives no rule."""
    done = WarmUp()
    async with uow.read() as tx:
        engine.set_metrics(await tx.readings.names())
        for device_no, _, latest in await tx.readings.latest():
            with done.reading(device_no):
                engine.restore(device_no, latest)
        after: tuple[int, int, int] | None = None
        while rows := await tx.readings.newer_than_latest(PAGE_ROWS, after):
            for device_no, at_ms, _, packed in rows:
                with done.reading(device_no):
                    engine.replay(device_no, at_ms, packed)
            done.replayed += len(rows)
            after = rows[-1][:3]
        by_device: dict[int, list[RuleSpec]] = defaultdict(list)
        for rule in await tx.rules.all_enabled():
            by_device[rule.device_no].append(rule.spec())
    for device_no, specs in by_device.items():
        engine.put_rules(device_no, specs)
    return done
