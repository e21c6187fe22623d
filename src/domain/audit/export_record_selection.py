"""Which records an export shows: all, those of a time, or the story of a command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from domain.audit.seal_and_chain_ports import AuditTx
from domain.events.hash_chain import ChainedEvent
from domain.kernel.canonical_json import quote
from domain.kernel.clock import HOUR_MS
from domain.kernel.errors import NotFound, ValidationFailed
from domain.kernel.ids import AccountId, IdPrefix

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
