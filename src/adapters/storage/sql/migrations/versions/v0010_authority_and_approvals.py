"""Who made a key and who changed a grant; the reason of a request and the note of its decision; the approval of an execution; the
event types that a webhook wants.

The maker of an existing key is taken from the event log, where it is still known there.
"""

from __future__ import annotations

import re

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

ADDED = (
    ("api_keys", "created_by"),
    ("grants", "changed_by"),
    ("approvals", "reason"),
    ("approvals", "note"),
    ("executions", "approval_id"),
    ("webhooks", "types"),
)
_KEY_CREATED = re.compile(r"\((\S+)…\) was created$")


def upgrade() -> None:
    for table, column in ADDED:
        op.add_column(table, sa.Column(column, sa.Text(), nullable=True))
    connection = op.get_bind()
    keys = connection.execute(sa.text("SELECT key_id, account_id, prefix FROM api_keys")).all()
    if not keys:
        return
    makers: dict[tuple[str, str], set[str]] = {}
    created = "SELECT account_id, description, source FROM events WHERE kind = 'key_created'"
    for account_id, description, source in connection.execute(sa.text(created)):
        found = _KEY_CREATED.search(description)
        if found:
            makers.setdefault((account_id, found[1]), set()).add(source)
    for key_id, account_id, prefix in keys:
        maker = makers.get((account_id, prefix), set())
        if len(maker) == 1:  # two keys with the same prefix cannot be told apart
            update = sa.text("UPDATE api_keys SET created_by = :maker WHERE key_id = :key_id")
            connection.execute(update, {"maker": next(iter(maker)), "key_id": key_id})
