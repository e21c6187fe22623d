"""Denied requests are logged like granted ones, so that probing is visible in the account's log."""

from __future__ import annotations

from typing import Protocol

from domain.kernel.caller import ApiKeyCaller, SessionCaller
from domain.kernel.errors import DomainError


class DeniedRequestLog(Protocol):
    """Port: records the denied request of an authenticated caller. Never raises."""

    async def log_denied(
        self, caller: SessionCaller | ApiKeyCaller, act: str, error: DomainError, subject: dict[str, str], *, always: bool = False
    ) -> None:
        """`always`: log each denial, however many there are. `act` describes the attempt in words; `subject` holds the ids it
        concerned, by their JSON names."""
