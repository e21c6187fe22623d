"""Dictionaries that are never changed in place: a transaction copies a shelf when it first writes to it.

So a reader that has the old dictionaries in hand has a snapshot, and rolling back means throwing the copies away. Values are
frozen dataclasses, which both may share. A dictionary keeps the order of insertion, which is what "oldest first" means here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar, cast

from adapters.storage.refusals import Closed, ReadOnly

K = TypeVar("K")
V = TypeVar("V")


class Shelf(Generic[K, V]):
    """The name of a dictionary, with the types of what is in it."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


COUNTERS: Shelf[str, int] = Shelf("counters")

Pages = dict[str, dict[Any, Any]]


class Book:
    """One transaction's view of all shelves."""

    def __init__(self, pages: Pages, *, writable: bool) -> None:
        self.pages = dict(pages)
        self._copied: set[str] = set()
        self._writable = writable
        self._closed = False

    def close(self) -> None:
        self._closed = True

    def rows(self, shelf: Shelf[K, V]) -> Mapping[K, V]:
        if self._closed:
            raise Closed
        return cast("Mapping[K, V]", self.pages.get(shelf.name, {}))

    def edit(self, shelf: Shelf[K, V]) -> dict[K, V]:
        """The shelf's dictionary, to be written to. Raises ReadOnly in a reading transaction."""
        if self._closed:
            raise Closed
        if not self._writable:
            raise ReadOnly
        if shelf.name not in self._copied:
            self.pages[shelf.name] = dict(self.pages.get(shelf.name, {}))
            self._copied.add(shelf.name)
        return cast("dict[K, V]", self.pages[shelf.name])

    def next(self, counter: str) -> int:
        """Integers from 1, never the same one twice."""
        counters = self.edit(COUNTERS)
        counters[counter] = counters.get(counter, 0) + 1
        return counters[counter]

    def drop(self, shelf: Shelf[K, V], keys: list[K]) -> int:
        """Delete these keys; how many went."""
        if not keys:
            self.edit(shelf)
            return 0
        rows = self.edit(shelf)
        return sum(rows.pop(key, None) is not None for key in keys)
