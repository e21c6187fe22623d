"""Refused acts belong on the record as granted ones do: whoever tries doors is to be seen."""

from __future__ import annotations

from typing import Protocol

from domain.kernel.caller import ApiKeyCaller, Session
from domain.kernel.errors import DomainError


class DeniedRequestLog(Protocol):
    """Port: where a known caller's refused act is put on the record. Never raises."""

    async def log_denied(self, caller: Session | ApiKeyCaller, act: str, error: DomainError, subject: dict[str, str]) -> None:
        """`act` says in words what was tried, `subject` on what: ids by their name on the wire."""
        ...
