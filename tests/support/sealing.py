"""Seals the event log in tests."""

from __future__ import annotations

from typing import Any

from adapters.crypto.key_ring import KeyRing
from adapters.crypto.tokens import Ed25519AuditSealKeyProvider
from domain.audit.seals import AuditSealService
from support.manual_clock import ManualClock

RING = KeyRing.generate()
KEYS = Ed25519AuditSealKeyProvider(ring=RING)


async def seal(uow: Any, at_ms: int, ring: Any = RING) -> int:
    """A round of seals of this time; returns how many accounts were sealed."""
    return await AuditSealService(uow=uow, clock=ManualClock(at_ms), keys=Ed25519AuditSealKeyProvider(ring=ring)).seal()
