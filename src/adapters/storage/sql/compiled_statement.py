"""SQLAlchemy Core, compiled once per statement; the driver runs it directly, without SQLAlchemy's engine in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.engine import Dialect
from sqlalchemy.sql.expression import ClauseElement

from adapters.storage.sql.sql_session_port import LOOK_UP


class CompiledStatement:
    """SQL with the order of its parameters."""

    __slots__ = ("_defaults", "_parameter_names", "_statement", "is_look_up", "sql")

    def __init__(self, statement: ClauseElement, keys: Sequence[str], dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=list(keys))
        self._statement = statement  # a reference, so that no other statement gets the same id()
        self.sql = str(compiled)
        self.is_look_up = LOOK_UP.items() <= statement.get_execution_options().items()  # type: ignore[attr-defined]
        self._parameter_names: Sequence[str] = compiled.positiontup or ()  # type: ignore[attr-defined]
        self._defaults: Mapping[str, Any] = {k: v for k, v in compiled.params.items() if k not in keys}

    def bind(self, params: Mapping[str, Any]) -> tuple[Any, ...]:
        if self._defaults:
            params = {**self._defaults, **params}
        return tuple([params[name] for name in self._parameter_names])


class StatementCompiler:
    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._compiled: dict[tuple[int, tuple[str, ...]], CompiledStatement] = {}

    def __call__(self, statement: ClauseElement, params: Mapping[str, Any]) -> CompiledStatement:
        key = (id(statement), tuple(params))
        found = self._compiled.get(key)
        if found is None:
            found = self._compiled[key] = CompiledStatement(statement, key[1], self._dialect)
        return found
