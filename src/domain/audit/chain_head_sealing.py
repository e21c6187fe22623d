"""Seals the event log: signs the heads of all chains that have grown since the last round."""

from __future__ import annotations

import json
from dataclasses import field
from typing import Final

from domain.audit.seal_and_chain_ports import AuditTx
from domain.audit.seal_model import AuditSeal, AuditSealRound, AuditSealSignerProvider, ChainHeads, heads_of, seal_heads
from domain.kernel.clock import HOUR_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.unit_of_work import UnitOfWork

SEAL_INTERVAL_MS: Final = HOUR_MS


@service
class AuditSealService:
    uow: UnitOfWork[AuditTx]
    clock: Clock
    keys: AuditSealSignerProvider
    sealed: int = field(default=0, init=False)
    """Seals stored by this process."""
    last_sealed_ms: int | None = field(default=None, init=False)
    """As last read or written by this process."""

    async def next_due_ms(self) -> int:
        """When the next round is due. A clock that was set back makes it due at once, not in the far future."""
        async with self.uow.read() as tx:
            self.last_sealed_ms = await tx.audit_log.last_sealed_ms()
        now_ms = self.clock.now_ms()
        last_ms = self.last_sealed_ms
        return now_ms if last_ms is None or last_ms > now_ms else last_ms + SEAL_INTERVAL_MS

    async def seal(self) -> int:
        """Seal every account whose chains have grown; returns how many. Raises Conflict if another process does the same."""
        async with self.uow.read() as tx:  # one snapshot: the cursor covers no record that the heads do not
            log = await tx.events.end()
            heads, last = await tx.audit_log.heads_of_all(), await tx.audit_log.last_seals()
        key, now_ms = self.keys.newest(), self.clock.now_ms()
        seals = [
            seal_heads(account_id, found, last.get(account_id), now_ms, key)
            for account_id, found in heads.items()
            if _has_grown(found, last.get(account_id))
        ]
        async with self.uow.write(caller=None) as tx:
            await tx.audit_log.add_round(AuditSealRound(now_ms, log, seals))
        self.sealed += len(seals)
        self.last_sealed_ms = now_ms
        return len(seals)


def _has_grown(heads: ChainHeads, last: AuditSeal | None) -> bool:
    return last is None or heads_of(json.loads(last.content)) != heads
