"""The port of the log of what devices send, by partition."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from domain.kernel.errors import DomainError, Unavailable

MISSING = "missing"


class InboundLogDamagedError(DomainError):
    """The log does not contain what it has confirmed: entries are missing, or it is another log. Only an operator can decide."""

    code = "LOG_DAMAGED"


class AppendUnconfirmedError(Unavailable):
    """The log did not confirm an entry in time. It may be stored nevertheless."""

    code = "APPEND_UNCONFIRMED"


@dataclass(frozen=True, slots=True)
class InboundLogEntry:
    """`position` counts the entries of one partition from 1, without gaps."""

    position: int
    body: bytes


class InboundLog(Protocol):
    """A replicated log for each partition. What `append` has confirmed survives the loss of any single node."""

    async def open(self) -> None:
        """Connect and create what is missing. Raises Unavailable."""

    async def close(self) -> None: ...

    async def log_ids(self, partitions: Collection[int]) -> Mapping[int, str]:
        """Partition → what identifies its log, of those logs that answer. A log that was deleted and made again has another id;
        one that does not exist has the id MISSING."""

    async def last_positions(self) -> Mapping[int, int]:
        """Partition → position of its last entry, of those logs that answer. Raises Unavailable."""

    async def append(self, partition: int, body: bytes, entry_id: str) -> int:
        """Store the entry on a majority of the nodes and return its position. Repeating a call with the same `entry_id`
        within two minutes stores nothing. Raises AppendUnconfirmedError."""

    async def read(self, partition: int, after: int, limit: int, wait_s: float) -> Sequence[InboundLogEntry]:
        """At most `limit` entries that follow `after`, in order; empty if there is none within `wait_s`. The newest ones may come
        with the next call only: a node that is behind the others may answer.

        Raises InboundLogDamagedError if the entry after `after` is missing although later ones exist, or if the log ends before
        `after`; Unavailable when the log does not answer."""

    async def trim(self, partition: int, up_to: int) -> None:
        """Delete the entries up to and including this position. Raises Unavailable."""
