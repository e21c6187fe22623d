"""Reads what is new in an account's log, in batches, for a stream to a sink that is resumed from a stored cursor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from domain.audit.export import AuditLogRange, list_part, record_line, seal_line
from domain.audit.seals import AuditSeal, AuditTx, ChainHeads
from domain.events.hash_chain import CHAIN_START, ChainedEvent, EventChainHead
from domain.kernel.dataclasses import service
from domain.kernel.ids import AccountId
from domain.kernel.unit_of_work import UnitOfWork


@dataclass(frozen=True, slots=True)
class AuditExportLine:
    """A line as an export has it, of a record or a seal. `kind`: the event's type, or `audit_seal`."""

    kind: str
    at_ms: int
    text: str


class AuditSink(Protocol):
    """Port: where a stream of the audit log goes, line by line."""

    async def deliver(self, lines: Sequence[AuditExportLine]) -> None:
        """Returns when the receiver has them all. Raises AuditSinkUnavailableError, after which it may have some of them, and
        AuditSinkRefusedError."""


class AuditSinkUnavailableError(Exception):
    """It is worth trying again later. The message says what happened."""


class AuditSinkRefusedError(Exception):
    """Trying again does not help. The message says what to change."""


class AuditRecordsLostError(Exception):
    """The database does not have records that were delivered: it is an older one. The message says which."""


MAX_BATCH: Final = 500
SEAL_KIND: Final = "audit_seal"


@dataclass(frozen=True, slots=True)
class AuditCursor:
    """What has been delivered: the last record of each writer, and the number of the last seal. `life`: of the database that
    they are from."""

    heads: ChainHeads = field(default_factory=dict)
    seal: int = 0
    life: str = ""

    def to_json(self) -> dict[str, Any]:
        heads = {str(writer): [head.sequence, head.position, head.hash] for writer, head in sorted(self.heads.items())}
        return {"life": self.life, "seal": self.seal, "writers": heads}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> AuditCursor:
        """Raises KeyError, TypeError or ValueError."""
        heads = {
            int(writer): EventChainHead(int(sequence), str(hashed), int(position))
            for writer, (sequence, position, hashed) in stored["writers"].items()
        }
        return cls(heads, int(stored["seal"]), str(stored.get("life", "")))


@dataclass(frozen=True, slots=True)
class AuditBatch:
    """`cursor` holds once the lines are delivered. `lost` names records that retention deleted before they were read."""

    lines: Sequence[AuditExportLine]
    cursor: AuditCursor
    lost: Sequence[str] = ()


@service
class AuditStreamReader:
    uow: UnitOfWork[AuditTx]
    _compared: str | None = field(default=None, init=False)
    """The life whose log was compared with the cursor."""

    async def read(self, account_id: AccountId, after: AuditCursor) -> AuditBatch:
        """At most `MAX_BATCH` records, and seals only after every record that they cover. No lines: nothing is new. Raises
        AuditRecordsLostError."""
        async with self.uow.read() as tx:
            life = (await tx.life.get()).life
            part = AuditLogRange(after.heads, await tx.audit_log.heads(account_id))
            lost = _cut_off(after.heads, part.end)
            if not lost and self._compared != life:
                lost = await _find_replaced(tx, account_id, after, life)
            if lost:
                raise AuditRecordsLostError("; ".join(lost))
            self._compared, after = life, replace(after, life=life)
            seals = await tx.audit_log.list_seals(account_id, after=after.seal, limit=MAX_BATCH)
        records: list[ChainedEvent] = []
        async for record in list_part(self.uow, account_id, part):
            records.append(record)
            if len(records) == MAX_BATCH:
                return _batch(after, records, [])
        return _batch(after, records, seals)


def _cut_off(sent: ChainHeads, stored: ChainHeads) -> Sequence[str]:
    """Chains that end before what was delivered of them."""
    short = [(writer, head.sequence, stored.get(writer, CHAIN_START).sequence) for writer, head in sorted(sent.items())]
    return [f"{has + 1} to {until} of writer {writer}" for writer, until, has in short if has < until]


async def _find_replaced(tx: AuditTx, account_id: AccountId, after: AuditCursor, life: str) -> Sequence[str]:
    """Delivered records in whose place the log has others. What retention has deleted cannot be compared; in another life than
    the cursor's that counts as lost."""
    found = []
    for writer, head in sorted(after.heads.items()):
        at_place = await tx.audit_log.list_records(account_id, after=head.position - 1, limit=1)
        is_there = bool(at_place) and at_place[0].event.position == head.position
        if at_place[0].hash != head.hash if is_there else after.life != life:
            found.append(f"up to {head.sequence} of writer {writer}")
    return found


def _batch(after: AuditCursor, records: Sequence[ChainedEvent], seals: Sequence[AuditSeal]) -> AuditBatch:
    heads, lost = dict(after.heads), []
    for record in records:
        writer = record.event.writer
        expected = heads.get(writer, CHAIN_START).sequence + 1
        if writer in heads and record.sequence > expected:
            lost.append(f"{expected} to {record.sequence - 1} of writer {writer}")
        heads[writer] = EventChainHead(record.sequence, record.hash, record.event.position)
    lines = [AuditExportLine(record.event.kind, record.event.at_ms, record_line(record)) for record in records]
    lines += [AuditExportLine(SEAL_KIND, seal.sealed_ms, seal_line(seal)) for seal in seals]
    return AuditBatch(lines, AuditCursor(heads, seals[-1].number if seals else after.seal, after.life), lost)
