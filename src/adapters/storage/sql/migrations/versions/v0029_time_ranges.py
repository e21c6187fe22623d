"""Readings and roll-ups in partitions by time on PostgreSQL (decision 0024): expired ones are dropped, and no row is deleted.

What is stored stays where it is: the table becomes the partition before the bound, a day after its newest row. It is read twice,
for the bound and for PostgreSQL's check; nothing is copied. SQLite has no partitions.
"""

from __future__ import annotations

from typing import NamedTuple

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"


class _TableToPartition(NamedTuple):
    table: str
    column: str
    width: int
    now: str
    others: str
    keys: str


DAY = "extract(epoch FROM now())::bigint / 86400"
DIVIDED = (
    _TableToPartition("readings", "ts", 86_400_000, f"{DAY} * 86400000", "digest bigint NOT NULL, ", "device_no, ts, digest"),
    _TableToPartition("rollups", "hour", 24 * 7, f"{DAY} * 24", "", "device_no, hour"),
)


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("SET LOCAL enable_seqscan = on")  # to read a whole table
        for each in DIVIDED:
            _divide(each)


def _divide(each: _TableToPartition) -> None:
    table, key = each.table, f"pk_{each.table}"
    newest = f"SELECT greatest(coalesce(max({each.column}), 0), {each.now}) FROM {table}"  # noqa: S608 - our names
    bound = (int(op.get_bind().execute(sa.text(newest)).scalar_one()) // each.width + 1) * each.width
    op.execute(f"ALTER TABLE {table} RENAME TO {table}_before")
    op.execute(f"ALTER INDEX {key} RENAME TO {table}_before_pkey")
    op.execute(
        f"CREATE TABLE {table} (device_no bigint NOT NULL, {each.column} bigint NOT NULL, {each.others}packed bytea NOT NULL, "
        f"CONSTRAINT {key} PRIMARY KEY ({each.keys})) PARTITION BY RANGE ({each.column})"
    )
    op.execute(f"ALTER TABLE {table} ATTACH PARTITION {table}_before FOR VALUES FROM (MINVALUE) TO ({bound})")
    op.execute(f"CREATE TABLE {table}_after PARTITION OF {table} FOR VALUES FROM ({bound}) TO (MAXVALUE)")
