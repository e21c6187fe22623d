"""The tables of revision 0001. Frozen: later changes are other revisions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def create_partial_index(
    name: str, table: str, columns: list[str], where: str, *, on_sqlite: str | None = None, unique: bool = False
) -> None:
    """An index of the rows that match `where`, which SQLite may need in another form."""
    op.create_index(
        name, table, columns, unique=unique, sqlite_where=sa.text(on_sqlite or where), postgresql_where=sa.text(where)
    )
