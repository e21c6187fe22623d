"""Column types: ids and JSON are text, instants are integers, states are words listed in a CHECK.

All constraints follow one naming convention, so that a migration can name what it changes on either database.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import BigInteger, CheckConstraint, Column, ForeignKey, Index, Integer, MetaData, Text, TextClause

NAMING_CONVENTION = {
    "ix": "ix_%(table_name)s__%(column_0_N_name)s",
    "uq": "uq_%(table_name)s__%(column_0_N_name)s",
    "ck": "ck_%(table_name)s__%(constraint_name)s",
    "fk": "fk_%(table_name)s__%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}

metadata = MetaData(naming_convention=NAMING_CONVENTION)

Int64 = BigInteger().with_variant(Integer, "sqlite")
"""64 bits on both databases. SQLite auto-increments only a column whose type is exactly INTEGER."""


def autoincrement_key(name: str) -> Column[int]:
    """An auto-incremented primary key: the order of insertion."""
    return Column(name, Int64, primary_key=True, autoincrement=True)


def integer_column(name: str, *, null: bool = False) -> Column[int]:
    return Column(name, Int64, nullable=null)


def text_column(name: str, *, null: bool = False, unique: bool = False) -> Column[str]:
    return Column(name, Text, nullable=null, unique=unique)


def foreign_key_column(name: str, target: str, *, null: bool = False, ondelete: str = "CASCADE") -> Column[str]:
    return Column(name, Text, ForeignKey(target, ondelete=ondelete), nullable=null)


WHERE = "where"
"""In the `info` of a partial index: its condition on PostgreSQL (`schema.py`)."""


def partial_index(
    name: str, *columns: str, where: TextClause, on_sqlite: TextClause | None = None, unique: bool = False
) -> Index:
    """An index of the rows that match `where`, which SQLite may need in another form."""
    return Index(name, *columns, unique=unique, sqlite_where=where if on_sqlite is None else on_sqlite, info={WHERE: where})


def one_of_check(column: str, values: Iterable[str]) -> CheckConstraint:
    return CheckConstraint(f"{column} IN ({sql_literals(values)})", name=f"{column}_known")


def sql_literals(values: Iterable[str]) -> str:
    """SQL literals for the values of the program's enumerations."""
    return ", ".join(f"'{value}'" for value in values)
