"""Dictionaries that are never changed in place: a transaction copies a table when it first writes to it.

A reader with the old dictionaries has a snapshot, and a rollback drops the copies. Values are frozen dataclasses, which both may
share. A dictionary keeps the order of insertion, which means "oldest first" here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar, cast

from adapters.storage.errors import ReadOnlyTransactionError, TransactionClosedError
from domain.kernel.clock import TimeSpan
from domain.kernel.cursors import Position

K = TypeVar("K")
V = TypeVar("V")


class Table(Generic[K, V]):
    """The name of a dictionary, with the types of its keys and values."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


SEQUENCES: Table[str, int] = Table("counters")

Tables = dict[str, dict[Any, Any]]


class Database:
    """One transaction's view of all tables."""

    def __init__(self, tables: Tables, *, writable: bool) -> None:
        self.tables = dict(tables)
        self._copied: set[str] = set()
        self._writable = writable
        self._closed = False

    def close(self) -> None:
        self._closed = True

    def rows(self, table: Table[K, V]) -> Mapping[K, V]:
        if self._closed:
            raise TransactionClosedError
        return cast("Mapping[K, V]", self.tables.get(table.name, {}))

    def writable_rows(self, table: Table[K, V]) -> dict[K, V]:
        """The table's dictionary, for writing. Raises ReadOnlyTransactionError in a reading transaction."""
        if self._closed:
            raise TransactionClosedError
        if not self._writable:
            raise ReadOnlyTransactionError
        if table.name not in self._copied:
            self.tables[table.name] = dict(self.tables.get(table.name, {}))
            self._copied.add(table.name)
        return cast("dict[K, V]", self.tables[table.name])

    def next_value(self, counter: str) -> int:
        """Unique integers from 1."""
        counters = self.writable_rows(SEQUENCES)
        counters[counter] = counters.get(counter, 0) + 1
        return counters[counter]

    def delete(self, table: Table[K, V], keys: list[K]) -> int:
        """Delete these keys; returns the number of deleted rows."""
        if not keys:
            self.writable_rows(table)
            return 0
        rows = self.writable_rows(table)
        return sum(rows.pop(key, None) is not None for key in keys)


def newest_first(entries: Iterable[V], limit: int, before: Position | None, created: TimeSpan) -> list[V]:
    """What was created in this time, and is older than this (`created_ms`, `seq`)."""

    def place(entry: Any) -> tuple[int, int]:
        return entry.created_ms, entry.seq

    chosen = [each for each in entries if created.contains(place(each)[0]) and (before is None or place(each) < before)]
    return sorted(chosen, key=place, reverse=True)[:limit]
