"""Port: where a stream of the audit log goes, line by line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class AuditExportLine:
    """A line as an export has it, of a record or a seal. `kind`: the event's type, or `audit_seal`."""

    kind: str
    at_ms: int
    text: str


class AuditSink(Protocol):
    async def deliver(self, lines: Sequence[AuditExportLine]) -> None:
        """Returns when the receiver has them all. Raises AuditSinkUnavailableError, after which it may have some of them, and
        AuditSinkRefusedError."""


class AuditSinkUnavailableError(Exception):
    """It is worth trying again later. The message says what happened."""


class AuditSinkRefusedError(Exception):
    """Trying again does not help. The message says what to change."""
