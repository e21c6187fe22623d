"""Readings, the names of metrics, and the last values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set

from domain.telemetry.ports import MAX_TIME_MS, MessageKey, PackedRow, RowKey
from support.memory_storage.tables import Database, Table

READINGS: Table[tuple[int, int, int], bytes] = Table("readings")
METRIC_NAMES: Table[int, str] = Table("metric_names")
DEVICE_METRICS: Table[tuple[int, int], str | None] = Table("device_metrics")
DECLARED_METRICS: Table[tuple[int, int], None] = Table("declared_metrics")
"""Those of them that the device has not reported itself."""
LATEST: Table[int, tuple[int, bytes]] = Table("latest")
TOMBSTONES: Table[int, int] = Table("tombstones")


class MemoryReadingRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_many(self, rows: Sequence[PackedRow]) -> None:
        kept = self._database.writable_rows(READINGS)
        for device_no, at_ms, digest, packed in rows:
            kept.setdefault((device_no, at_ms, digest), packed)

    async def list_existing(self, keys: Sequence[RowKey]) -> Set[RowKey]:
        return {key for key in keys if key in self._database.rows(READINGS)}

    async def list_between(
        self, device_no: int, since_ms: int, until_ms: int, limit: int, *, newest_first: bool = True
    ) -> Sequence[tuple[int, bytes]]:
        rows = self._database.rows(READINGS)
        keys = sorted(key for key in rows if key[0] == device_no and since_ms <= key[1] < until_ms)
        return [(key[1], rows[key]) for key in (reversed(keys) if newest_first else keys)][:limit]

    async def list_page(
        self, device_no: int, since_ms: int, until_ms: int, limit: int, after: MessageKey | None, *, newest_first: bool = True
    ) -> Sequence[tuple[int, int, bytes]]:
        rows = self._database.rows(READINGS)
        keys = sorted((key for key in rows if key[0] == device_no and since_ms <= key[1] < until_ms), reverse=newest_first)
        if after is not None:
            keys = [key for key in keys if (key[1:] < after if newest_first else key[1:] > after)]
        return [(key[1], key[2], rows[key]) for key in keys[:limit]]

    async def assign_metric_numbers(self, names: Sequence[str]) -> Sequence[tuple[int, str]]:
        kept = self._database.writable_rows(METRIC_NAMES)
        numbers = {name: number for number, name in kept.items()}
        for name in names:
            if name not in numbers:
                numbers[name] = max(kept, default=0) + 1
                kept[numbers[name]] = name
        return [(numbers[name], name) for name in dict.fromkeys(names)]

    async def list_metric_names(self) -> Sequence[tuple[int, str]]:
        return sorted(self._database.rows(METRIC_NAMES).items())

    async def upsert_device_metrics(self, metrics: Sequence[tuple[int, int, str | None]]) -> None:
        kept = self._database.writable_rows(DEVICE_METRICS)
        for device_no, metric_no, unit in metrics:
            kept[(device_no, metric_no)] = unit
            self._database.writable_rows(DECLARED_METRICS).pop((device_no, metric_no), None)

    async def declare_device_metrics(self, device_no: int, metrics: Collection[int]) -> None:
        kept = self._database.writable_rows(DEVICE_METRICS)
        for metric_no in metrics:
            if (device_no, metric_no) not in kept:
                kept[(device_no, metric_no)] = None
                self._database.writable_rows(DECLARED_METRICS)[(device_no, metric_no)] = None

    async def list_reported_metrics(self, device_no: int) -> Collection[str]:
        declared = self._database.rows(DECLARED_METRICS)
        return {name for number, name, _ in await self.list_device_metrics(device_no) if (device_no, number) not in declared}

    async def list_device_metrics(self, device_no: int) -> Sequence[tuple[int, str, str | None]]:
        names = self._database.rows(METRIC_NAMES)
        mine = [(key[1], unit) for key, unit in self._database.rows(DEVICE_METRICS).items() if key[0] == device_no]
        return sorted(((no, names[no], unit) for no, unit in mine if no in names), key=lambda metric: metric[1])

    async def list_metrics_of_devices(self, device_nos: Collection[int]) -> Mapping[tuple[int, int], tuple[str, str | None]]:
        names = self._database.rows(METRIC_NAMES)
        metrics = self._database.rows(DEVICE_METRICS)
        return {key: (names[key[1]], unit) for key, unit in metrics.items() if key[0] in device_nos}

    async def upsert_checkpoints(self, checkpoints: Sequence[tuple[int, int, bytes]]) -> None:
        kept = self._database.writable_rows(LATEST)
        for device_no, at_ms, packed in checkpoints:
            kept[device_no] = (at_ms, packed)

    async def list_checkpoints(self) -> Sequence[tuple[int, int, bytes]]:
        return [(device_no, *value) for device_no, value in sorted(self._database.rows(LATEST).items())]

    async def find_checkpoint(self, device_no: int) -> tuple[int, bytes] | None:
        return self._database.rows(LATEST).get(device_no)

    async def list_newer_than_checkpoint(self, limit: int, after: tuple[int, int, int] | None) -> Sequence[PackedRow]:
        rows, latest = self._database.rows(READINGS), self._database.rows(LATEST)
        tombstones = self._database.rows(TOMBSTONES)
        newer = [key for key in rows if key[0] not in tombstones and (key[0] not in latest or key[1] > latest[key[0]][0])]
        return [(*key, rows[key]) for key in sorted(newer) if after is None or key > after][:limit]

    async def delete_batch(self, device_no: int, limit: int, before_ms: int = MAX_TIME_MS) -> int:
        mine = sorted(key for key in self._database.rows(READINGS) if key[0] == device_no and key[1] < before_ms)
        return self._database.delete(READINGS, mine[:limit])

    async def delete_next_batch(self, device_no: int, limit: int, after: MessageKey | None) -> tuple[int, MessageKey | None]:
        mine = sorted(key for key in self._database.rows(READINGS) if key[0] == device_no and (after is None or key[1:] > after))
        deleted = self._database.delete(READINGS, mine[:limit])
        return deleted, mine[deleted - 1][1:] if deleted else after

    async def delete_messages(self, device_no: int, keys: Sequence[MessageKey]) -> None:
        self._database.delete(READINGS, [(device_no, *key) for key in keys if (device_no, *key) in self._database.rows(READINGS)])

    async def list_devices_with_rows_before(
        self, before_ms: int, first_device: int, limit: int, *, in_ranges: bool = False
    ) -> Sequence[int]:
        old = {key[0] for key in self._database.rows(READINGS) if key[1] < before_ms and key[0] >= first_device}
        return sorted(old)[:limit]
