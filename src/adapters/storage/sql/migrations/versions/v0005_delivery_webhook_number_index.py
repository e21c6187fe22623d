"""An index of deliveries by webhook and number, so that deleting a million of them continues where the last batch ended."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_index("ix_deliveries__webhook_id_no", "deliveries", ["webhook_id", "no"], unique=False)
    op.drop_index("ix_deliveries__webhook_id", table_name="deliveries")
