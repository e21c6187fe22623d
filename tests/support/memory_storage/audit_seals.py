"""Audit seals, and what of the log they cover."""

from __future__ import annotations

from domain.audit.seals import AuditSeal
from domain.events.cursors import EventLogCursor
from domain.kernel.ids import AccountId
from support.memory_storage.tables import Database, Table

SEALS: Table[tuple[AccountId, int], AuditSeal] = Table("audit_seals")
ANCHORS: Table[AccountId, int] = Table("audit_anchors")
"""The number of the newest seal whose records retention deletes."""
ROUNDS: Table[int, EventLogCursor] = Table("audit_rounds")


def purge_seals(database: Database, sealed_ms: int) -> None:
    """Keep the newest seal of this time or before, and all later ones."""
    old = [seal for seal in database.rows(SEALS).values() if seal.sealed_ms <= sealed_ms]
    anchors = {seal.account_id: seal.number for seal in old}
    database.writable_rows(ANCHORS).update(anchors)
    database.delete(SEALS, [(seal.account_id, seal.number) for seal in old if seal.number < anchors[seal.account_id]])
