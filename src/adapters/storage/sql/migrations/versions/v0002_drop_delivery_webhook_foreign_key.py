"""Drops the foreign key from deliveries to webhooks: a worker deletes the deliveries of a deleted webhook in batches."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.drop_constraint("fk_deliveries__webhook_id", "deliveries", type_="foreignkey")
    else:
        _rebuild_table()


def _rebuild_table() -> None:
    """SQLite cannot drop a constraint, so the table is rebuilt as its manual says (foreign keys are off on this connection)."""
    bind = op.get_bind()
    [(made,)] = bind.exec_driver_sql("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = 'deliveries'").fetchall()
    indexes = bind.exec_driver_sql(
        "SELECT sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'deliveries' AND sql IS NOT NULL"
    ).fetchall()
    lines = [line for line in made.split("\n") if not line.strip().startswith("CONSTRAINT fk_deliveries__webhook_id")]
    without = "\n".join(lines).replace("deliveries", "deliveries_anew", 1).replace(", \n)", "\n)")
    op.execute(without)
    op.execute("INSERT INTO deliveries_anew SELECT * FROM deliveries")
    op.execute(
        "UPDATE sqlite_sequence SET seq = (SELECT seq FROM sqlite_sequence WHERE name = 'deliveries') "
        "WHERE name = 'deliveries_anew' AND EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'deliveries')"
    )
    op.execute("DROP TABLE deliveries")
    op.execute("ALTER TABLE deliveries_anew RENAME TO deliveries")
    for (index,) in indexes:
        op.execute(index)
