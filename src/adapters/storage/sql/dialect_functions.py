"""Functions that SQLite and PostgreSQL write differently: a statement that uses them is written once."""

from __future__ import annotations

from typing import Any

from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class json_elements(FunctionElement[Any]):
    """The elements of a JSON array: rows with the column `value`, which on PostgreSQL is text."""

    inherit_cache = True


class greatest(FunctionElement[Any]):
    inherit_cache = True


class least(FunctionElement[Any]):
    inherit_cache = True


_WRITTEN = {
    json_elements: ("json_each({})", "json_array_elements_text(CAST({} AS json))"),
    greatest: ("max({})", "greatest({})"),
    least: ("min({})", "least({})"),
}
"""On SQLite, and on PostgreSQL."""


def _write(element: FunctionElement[Any], compiler: SQLCompiler, **options: Any) -> str:
    on_sqlite, on_postgres = _WRITTEN[type(element)]
    arguments = compiler.process(element.clauses, **options)
    return (on_sqlite if compiler.dialect.name == "sqlite" else on_postgres).format(arguments)


for _function in _WRITTEN:
    compiles(_function)(_write)
