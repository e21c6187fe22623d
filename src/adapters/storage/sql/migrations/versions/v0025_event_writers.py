"""Writer numbers of the event log, so that transactions which write to it commit side by side (decision 0018).

On PostgreSQL all 32 numbers begin at the newest position: every event of an older version is before the next one of each. The
counters get a row per number.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"

NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
WRITERS = 32
COUNTERS = {"event_totals": ("account_id",), "event_counts": ("account_id", "kind", "device_id")}


def _writer_column() -> sa.Column[int]:
    return sa.Column("writer", NUMBER, nullable=False, server_default=sa.text("0"))


def upgrade() -> None:
    op.create_table(
        "event_writers",
        sa.Column("writer", NUMBER, nullable=False),
        sa.Column("position", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("writer", name="pk_event_writers"),
    )
    op.add_column("events", _writer_column())
    if op.get_bind().dialect.name == "postgresql":
        for table, keys in COUNTERS.items():
            op.add_column(table, _writer_column())
            op.drop_constraint(f"pk_{table}", table, type_="primary")
            op.create_primary_key(f"pk_{table}", table, [*keys, "writer"])
        op.execute(
            "INSERT INTO event_writers SELECT number, (SELECT coalesce(max(position), 0) FROM events) "  # noqa: S608
            f"FROM generate_series(0, {WRITERS - 1}) AS number"
        )
        return
    for table, keys in COUNTERS.items():
        _rebuild_on_sqlite(table, keys)
    op.create_index("ix_event_counts__account_id_device_id", "event_counts", ["account_id", "device_id"], unique=False)


def _rebuild_on_sqlite(table: str, keys: tuple[str, ...]) -> None:
    op.execute(f"ALTER TABLE {table} RENAME TO {table}_before")
    op.create_table(
        table,
        *[sa.Column(key, sa.Text(), nullable=False) for key in keys],
        _writer_column(),
        sa.Column("total", NUMBER, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.account_id"], name=f"fk_{table}__account_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint(*keys, "writer", name=f"pk_{table}"),
    )
    columns = ", ".join([*keys, "total"])
    op.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {table}_before")  # noqa: S608 - our names
    op.drop_table(f"{table}_before")
