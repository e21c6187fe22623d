"""How an instance asks the others about its lease while the database is away."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PeerLeaseAndCredentialQuery:
    """Whether the others renew, and which credentials they have changed in the last `period_ms`."""

    period_ms: int


@dataclass(frozen=True, slots=True)
class PeerLeaseAndCredentialReply:
    renewed_ms_ago: int
    """Since the start of the last beat that the database has confirmed."""
    changed: Sequence[str] | None
    """Devices; None: more than the instance keeps."""


class PeerLeasePoller(Protocol):
    async def poll_leases(
        self, question: PeerLeaseAndCredentialQuery, expected: Collection[str]
    ) -> Mapping[str, PeerLeaseAndCredentialReply]:
        """Instance → answer, of all instances that answer within a moment, this one included: its own answer proves that the bus
        carries messages. `expected` are those that should."""
