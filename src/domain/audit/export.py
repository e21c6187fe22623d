"""Exports an account's log, or an excerpt of it, as lines of JSON that can be verified without this service.

The kinds of lines and their fields are in `docs/reference/audit-format.md`. The records of a part of the log come before the seal
that covers them. An excerpt shows the records of a time, or the story of a command. It has only the parts with chosen records; of
the other records of these parts it has the digest, so that the chain can be followed without showing them. All seals up to the
newest one follow, which proves them.

Law: whoever has only the file cannot make less of it. The last line is signed over all lines before it, with what was chosen and
how many records are shown, hidden beside them, and left out; so no record is hidden later, and no log made an excerpt.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from domain.audit.seals import AuditSeal, AuditSealSignerProvider, AuditTx, ChainHeads, heads_of
from domain.events.hash_chain import CHAIN_START, ChainedEvent, digest_of, record_json
from domain.kernel.caller import Role, SessionCaller, require_role
from domain.kernel.canonical_json import canonical_json, quote
from domain.kernel.clock import HOUR_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.errors import NotFound, ValidationFailed
from domain.kernel.ids import AccountId, IdPrefix
from domain.kernel.unit_of_work import UnitOfWork

_CLOCK_STEP_MS: Final = HOUR_MS
"""By how much the time of a record and of its seal may differ because a clock was set."""
_MAX_RECORDS_OF_A_STORY: Final = 1_000
_LINKS: Final = ("executionId", "approvalId")
"""Fields of a record's data that name the command it belongs to."""


@dataclass(frozen=True, slots=True)
class AuditSelection:
    """`since_ms` inclusive, `until_ms` exclusive; `story_of`: the id of an execution or an approval. Without any: all."""

    since_ms: int | None = None
    until_ms: int | None = None
    story_of: str | None = None

    def __post_init__(self) -> None:
        """Raises ValidationFailed."""
        if self.story_of is None:
            return
        if self.since_ms is not None or self.until_ms is not None:
            raise ValidationFailed.for_field("commandId", "cannot be given together with a time.")
        if not self.story_of.startswith((f"{IdPrefix.EXECUTION}_", f"{IdPrefix.APPROVAL}_")):
            raise ValidationFailed.for_field("commandId", "must be the id of an execution or of an approval.")

    @property
    def is_excerpt(self) -> bool:
        return self != EVERYTHING

    def to_json(self) -> dict[str, Any]:
        return {"since": self.since_ms, "until": self.until_ms, "commandId": self.story_of}

    def includes_time(self, at_ms: int) -> bool:
        return (self.since_ms is None or at_ms >= self.since_ms) and (self.until_ms is None or at_ms < self.until_ms)

    def overlaps(self, begin_ms: int | None, end_ms: int | None) -> bool:
        """Whether records that were sealed between these times (None: not limited) may be of this selection's time."""
        begins_too_late = self.until_ms is not None and begin_ms is not None and begin_ms - _CLOCK_STEP_MS >= self.until_ms
        ends_too_early = self.since_ms is not None and end_ms is not None and end_ms + _CLOCK_STEP_MS < self.since_ms
        return not begins_too_late and not ends_too_early


EVERYTHING: Final = AuditSelection()


@dataclass(frozen=True, slots=True)
class AuditSelectionMatcher:
    """`records` of a story; None: those of the selection's time."""

    selection: AuditSelection
    records: Sequence[ChainedEvent] | None = None

    def includes(self, record: ChainedEvent) -> bool:
        if self.records is None:
            return self.selection.includes_time(record.event.at_ms)
        return any(each.event.position == record.event.position for each in self.records)

    def wants(self, part: AuditLogRange) -> bool:
        """Whether records of this part may be among them."""
        if self.records is None:
            return self.selection.overlaps(part.begin_ms, part.end_ms)
        return any(part.contains(record) for record in self.records)


async def choose_records(tx: AuditTx, account_id: AccountId, selection: AuditSelection) -> AuditSelectionMatcher:
    """Raises NotFound if no record mentions the command."""
    if selection.story_of is None:
        return AuditSelectionMatcher(selection)
    found: dict[int, ChainedEvent] = {}
    names = [selection.story_of]
    for name in names:  # grows while records of the story name more ids: the approval of an execution, and its execution
        for record in await tx.audit_log.list_records(account_id, after=0, limit=_MAX_RECORDS_OF_A_STORY, mentioning=quote(name)):
            found[record.event.position] = record
            linked = [record.event.payload.get(field) for field in _LINKS]
            names += [each for each in linked if isinstance(each, str) and each not in names]
    if not found:
        raise NotFound("No record of the log is about this command. It may be older than the log, or of another account.")
    return AuditSelectionMatcher(selection, list(found.values()))


FORMAT: Final = "latchboard-audit-1"
END_TYPE: Final = "latchboard-audit-end-1"
"""Part of what is signed, so that no other document passes as the end of an export."""
_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class AuditLogRange:
    """Of the log between two seals; the last part ends with the records that are not sealed yet."""

    begin: ChainHeads
    end: ChainHeads
    begin_ms: int | None = None
    end_ms: int | None = None

    def contains(self, record: ChainedEvent) -> bool:
        writer = record.event.writer
        return self.begin.get(writer, CHAIN_START).sequence < record.sequence <= self.end.get(writer, CHAIN_START).sequence

    @property
    def positions(self) -> tuple[int, int]:
        """All its records have positions above the first and up to the second."""
        grown = [writer for writer, head in self.end.items() if head.sequence > self.begin.get(writer, CHAIN_START).sequence]
        begin = min((self.begin.get(writer, CHAIN_START).position for writer in grown), default=0)
        return begin, max((self.end[writer].position for writer in grown), default=0)

    @property
    def size(self) -> int:
        """How many records it has."""
        return _count(self.end) - _count(self.begin)


def _count(heads: ChainHeads) -> int:
    return sum(head.sequence for head in heads.values())


@dataclass(slots=True)
class _SignedLines:
    """The digest over the lines of an export, each with its line end, and the counts of its records."""

    shown: int = 0
    hidden: int = 0
    """Of the parts that it has; only their digests are there."""
    left_out: int = 0
    """Of the parts that it does not have."""
    _digest: Any = field(default_factory=hashlib.sha256)

    def add(self, line: str) -> str:
        self._digest.update(line.encode() + b"\n")
        return line

    @property
    def digest(self) -> str:
        return str(self._digest.hexdigest())


@service
class AuditExportGenerator:
    uow: UnitOfWork[AuditTx]
    clock: Clock
    keys: AuditSealSignerProvider

    def lines_for(self, caller: SessionCaller, selection: AuditSelection, *, after_seal: int | None = None) -> AsyncIterator[str]:
        """The export of the caller's account. Raises PermissionDenied `ROLE_REQUIRED`."""
        require_role(caller, Role.ADMIN)
        return self.lines(caller.account_id, selection, after_seal=after_seal)

    async def lines(
        self, account_id: AccountId, selection: AuditSelection = EVERYTHING, *, after_seal: int | None = None
    ) -> AsyncIterator[str]:
        """The lines of the export, without line ends. With `after_seal` it begins after that seal, where an earlier export
        ended. Raises NotFound if there is no such seal, or no record is chosen."""
        async with self.uow.read() as tx:
            last = await self._first_seal(tx, account_id, after_seal)
            chosen = await choose_records(tx, account_id, selection)
        exported: dict[str, Any] = {"accountId": account_id, "exportedAt": self.clock.now_ms()}
        exported["selection"] = selection.to_json() if selection.is_excerpt else None
        signed = _SignedLines()
        yield signed.add(canonical_json({"audit": {"format": FORMAT, **exported}}))
        started = not selection.is_excerpt
        if last is not None and started:
            yield signed.add(seal_line(last))
        async for part, seal in self._parts(account_id, last):
            if chosen.wants(part):
                if not started and last is not None:
                    yield signed.add(seal_line(last))
                started = True
                async for record in list_part(self.uow, account_id, part):
                    is_shown = chosen.includes(record)
                    signed.shown += is_shown
                    signed.hidden += not is_shown
                    yield signed.add(record_line(record, shown=is_shown))
            else:
                signed.left_out += part.size
            if started and seal is not None:
                yield signed.add(seal_line(seal))
            last = seal
        yield self._end_line(exported, signed)

    def _end_line(self, exported: dict[str, Any], signed: _SignedLines) -> str:
        key = self.keys.newest()
        counts = {"records": signed.shown, "hidden": signed.hidden, "leftOut": signed.left_out, "digest": signed.digest}
        content = canonical_json({"type": END_TYPE, **exported, **counts, "keyId": key.key_id, "publicKey": key.public_key})
        return f'{{"end":{content},"signature":"{key.sign(content.encode())}"}}'

    async def _first_seal(self, tx: AuditTx, account_id: AccountId, after_seal: int | None) -> AuditSeal | None:
        """The seal after which the export begins; None: with the first record of the account."""
        anchor = await tx.audit_log.find_anchor(account_id)
        if after_seal is None or (anchor is None and after_seal == 0):
            return anchor
        found = await tx.audit_log.list_seals(account_id, after=after_seal - 1, limit=1)
        if not found or found[0].number != after_seal or (anchor is not None and after_seal < anchor.number):
            raise NotFound(f"There is no seal {after_seal} any more or yet. Leave the number out to export the log that is kept.")
        return found[0]

    async def _parts(
        self, account_id: AccountId, last: AuditSeal | None
    ) -> AsyncIterator[tuple[AuditLogRange, AuditSeal | None]]:
        """Those after this seal, each with the seal that covers it; None for the records that are not sealed yet."""
        begin, begin_ms, after = ({}, None, 0) if last is None else (_heads(last), last.sealed_ms, last.number)
        while True:
            async with self.uow.read() as tx:
                page = await tx.audit_log.list_seals(account_id, after=after, limit=_PAGE)
            for seal in page:
                part = AuditLogRange(begin, _heads(seal), begin_ms, seal.sealed_ms)
                yield part, seal
                begin, begin_ms, after = part.end, seal.sealed_ms, seal.number
            if len(page) < _PAGE:
                break
        async with self.uow.read() as tx:
            tail = AuditLogRange(begin, await tx.audit_log.heads(account_id), begin_ms)
        yield tail, None


async def list_part(uow: UnitOfWork[AuditTx], account_id: AccountId, part: AuditLogRange) -> AsyncIterator[ChainedEvent]:
    """By position."""
    after, last = part.positions
    while after < last:
        async with uow.read() as tx:
            page = await tx.audit_log.list_records(account_id, after=after, limit=_PAGE)
        for record in page:
            if part.contains(record):
                yield record
        if len(page) < _PAGE:
            return
        after = page[-1].event.position


def record_line(record: ChainedEvent, *, shown: bool = True) -> str:
    content = record_json(record.event, record.sequence)
    if shown:
        return f'{{"hash":"{record.hash}","record":{content}}}'
    elided = {"writer": record.event.writer, "sequence": record.sequence, "digest": digest_of(content).hex()}
    return canonical_json({"hash": record.hash, "elided": elided})


def seal_line(seal: AuditSeal) -> str:
    return f'{{"seal":{seal.content},"signature":"{seal.signature}"}}'


def _heads(seal: AuditSeal) -> ChainHeads:
    return heads_of(json.loads(seal.content))
