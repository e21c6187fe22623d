"""INSERT with ON CONFLICT, written once for SQLite and PostgreSQL.

It is SQLAlchemy's construct for SQLite. The one for PostgreSQL would import that dialect, 2.5 MiB that SQLite does not
need; its compiler writes both alike, but expects one attribute more.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.dialects.sqlite import Insert, insert
from sqlalchemy.dialects.sqlite.dml import OnConflictDoNothing, OnConflictDoUpdate
from sqlalchemy.ext.compiler import compiles

__all__ = ["Insert", "insert"]


@compiles(OnConflictDoNothing, "postgresql")
def _write_do_nothing(clause: Any, compiler: Any, **options: Any) -> str:
    clause.constraint_target = None  # the conflict is named by columns, not by a constraint
    return str(compiler.visit_on_conflict_do_nothing(clause, **options))


@compiles(OnConflictDoUpdate, "postgresql")
def _write_do_update(clause: Any, compiler: Any, **options: Any) -> str:
    clause.constraint_target = None
    return str(compiler.visit_on_conflict_do_update(clause, **options))
