"""Records that are kept as columns: one list for each field, and an object for a record only when somebody reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar, overload

Record = TypeVar("Record", bound=NamedTuple)


class ColumnarRecords(Sequence[Record]):
    """A sequence of named tuples. It equals a list of the same tuples; each access builds what it returns."""

    __slots__ = ("_count", "_read", "_record")

    def __init__(self, record: type[Record], count: int, read: Callable[[str], Sequence[Any]]) -> None:
        """`read` gives the field with this name of all records."""
        self._record = record
        self._count = count
        self._read = read

    def column(self, field: str) -> Sequence[Any]:
        """This field of all records. Raises ValueError for a name that is no field."""
        return self._read(field)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Record]:
        return map(self._record, *map(self._read, self._record._fields))

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        return list(self)[index]

    def __eq__(self, other: object) -> bool:
        return list(self) == (list(other) if isinstance(other, ColumnarRecords) else other)

    __hash__ = None  # type: ignore[assignment]  # as a list

    def __repr__(self) -> str:
        return repr(list(self))


def read_column(records: Sequence[Record], field: str) -> Sequence[Any]:
    """This field of all records, whichever way they are kept."""
    if isinstance(records, ColumnarRecords):
        return records.column(field)
    return [getattr(record, field) for record in records]
