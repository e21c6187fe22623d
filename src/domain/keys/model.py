"""An API key has no permissions without a grant. Only a hash of its secret and a recognisable prefix are stored."""

from __future__ import annotations

from dataclasses import dataclass

from domain.kernel.dataclasses import fast_frozen
from domain.kernel.ids import AccountId, KeyId


@fast_frozen
@dataclass(frozen=True, slots=True)
class ApiKey:
    key_id: KeyId
    account_id: AccountId
    name: str
    prefix: str
    secret_hash: bytes
    enabled: bool
    last_used_ms: int | None
    created_ms: int
    created_by: str | None = None
    """The label of its maker; None for a key of an earlier version whose maker is not on record."""
