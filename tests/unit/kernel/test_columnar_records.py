"""Named tuples that are kept as columns."""

from __future__ import annotations

import pytest

from domain.kernel.columnar_records import ColumnarRecords, read_column
from domain.rules.model import RuleFiring

FIRINGS = [RuleFiring(1, 10, 5), RuleFiring(2, 20, 6)]
COLUMNS = {"device_no": [1, 2], "rule_no": [10, 20], "at_ms": [5, 6]}


def columns(read: list[str] | None = None) -> ColumnarRecords[RuleFiring]:
    def column(field: str) -> list[int]:
        if read is not None:
            read.append(field)
        return COLUMNS[field]

    return ColumnarRecords(RuleFiring, 2, column)


def test_it_is_a_sequence_of_the_records() -> None:
    assert columns() == FIRINGS
    assert columns() == columns()
    assert columns() != FIRINGS[:1]
    assert (len(columns()), columns()[1], columns()[:1]) == (2, FIRINGS[1], FIRINGS[:1])
    assert isinstance(next(iter(columns())), RuleFiring)
    assert repr(columns()) == repr(FIRINGS)
    with pytest.raises(TypeError):
        hash(columns())


def test_a_column_is_read_alone() -> None:
    read: list[str] = []
    assert read_column(columns(read), "rule_no") == [10, 20]
    assert read == ["rule_no"]
    assert read_column(FIRINGS, "rule_no") == [10, 20]
