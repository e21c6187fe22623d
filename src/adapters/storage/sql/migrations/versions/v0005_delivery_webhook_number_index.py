"""The deliveries of a webhook by number, so that taking a million of them away goes on where it was.

Revision: 0005, after 0004.
"""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_deliveries__webhook_id_no", "deliveries", ["webhook_id", "no"], unique=False)
    op.drop_index("ix_deliveries__webhook_id", table_name="deliveries")
