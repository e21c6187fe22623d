"""The schema of version 1.0, with which the chain begins.

It makes nothing: a new database is made from the tables (`schema.py`) and stamped with the newest revision. A database of 1.0 is
at this one, and `v0002` follows it.
"""

from __future__ import annotations

revision = "v0001"
down_revision = None


def upgrade() -> None:
    """Nothing comes before it."""
