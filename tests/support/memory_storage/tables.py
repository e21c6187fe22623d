"""Dictionaries that are never changed in place: a transaction copies a shelf when it first writes to it.

So a reader that has the old dictionaries in hand has a snapshot, and rolling back means throwing the copies away. Values are
frozen dataclasses, which both may share. A dictionary keeps the order of insertion, which is what "oldest first" means here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar, cast

from adapters.storage.errors import ReadOnlyTransactionError, TransactionClosedError

K = TypeVar("K")
V = TypeVar("V")


class Table(Generic[K, V]):
    """The name of a dictionary, with the types of what is in it."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


SEQUENCES: Table[str, int] = Table("counters")

Tables = dict[str, dict[Any, Any]]


class Database:
    """One transaction's view of all shelves."""

    def __init__(self, pages: Tables, *, writable: bool) -> None:
        self.tables = dict(pages)
        self._copied: set[str] = set()
        self._writable = writable
        self._closed = False

    def close(self) -> None:
        self._closed = True

    def rows(self, shelf: Table[K, V]) -> Mapping[K, V]:
        if self._closed:
            raise TransactionClosedError
        return cast("Mapping[K, V]", self.tables.get(shelf.name, {}))

    def writable_rows(self, shelf: Table[K, V]) -> dict[K, V]:
        """The shelf's dictionary, to be written to. Raises ReadOnly in a reading transaction."""
        if self._closed:
            raise TransactionClosedError
        if not self._writable:
            raise ReadOnlyTransactionError
        if shelf.name not in self._copied:
            self.tables[shelf.name] = dict(self.tables.get(shelf.name, {}))
            self._copied.add(shelf.name)
        return cast("dict[K, V]", self.tables[shelf.name])

    def next_value(self, counter: str) -> int:
        """Integers from 1, never the same one twice."""
        counters = self.writable_rows(SEQUENCES)
        counters[counter] = counters.get(counter, 0) + 1
        return counters[counter]

    def delete(self, shelf: Table[K, V], keys: list[K]) -> int:
        """Delete these keys; how many went."""
        if not keys:
            self.writable_rows(shelf)
            return 0
        rows = self.writable_rows(shelf)
        return sum(rows.pop(key, None) is not None for key in keys)
