"""The first schema.

Revision: 0001, after nothing.
"""

from __future__ import annotations

from adapters.storage.sql.migrations.revision_0001 import fleet, people, records, work

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    people.create()
    fleet.create()
    work.create()
    records.create()
