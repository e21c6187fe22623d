"""Dead letters, in the order in which they were set aside."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from domain.ingest.ports import IngestDeadLetter, IngestDeadLetterState
from domain.kernel.ids import DeviceId
from support.memory_storage.tables import Database, Table

DEAD_LETTERS: Table[int, IngestDeadLetter] = Table("dead_letters")


class MemoryIngestDeadLetterRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_many(self, letters: Sequence[IngestDeadLetter]) -> None:
        kept = self._database.writable_rows(DEAD_LETTERS)
        for letter in letters:
            letter_id = self._database.next_value("dead_letters")
            kept[letter_id] = replace(letter, letter_id=letter_id)

    async def list(self, limit: int, *, device_id: DeviceId | None = None) -> Sequence[IngestDeadLetter]:
        rows = reversed([*self._database.rows(DEAD_LETTERS).values()])
        return [letter for letter in rows if device_id in (None, letter.device_id)][:limit]

    async def find(self, letter_id: int) -> IngestDeadLetter | None:
        return self._database.rows(DEAD_LETTERS).get(letter_id)

    async def count(self) -> int:
        return len(self._database.rows(DEAD_LETTERS))

    async def mark_for_replay(self, letter_ids: Collection[int] | None) -> int:
        kept = self._database.writable_rows(DEAD_LETTERS)
        marked = [each for each in kept if letter_ids is None or each in letter_ids]
        for letter_id in marked:
            kept[letter_id] = replace(kept[letter_id], state=IngestDeadLetterState.REPLAY)
        return len(marked)

    async def list_for_replay(self, limit: int) -> Sequence[IngestDeadLetter]:
        rows = self._database.rows(DEAD_LETTERS).values()
        return [letter for letter in rows if letter.state is IngestDeadLetterState.REPLAY][:limit]

    async def set_aside_again(self, letter_id: int, reason: str) -> None:
        kept = self._database.writable_rows(DEAD_LETTERS)
        if letter_id in kept:
            kept[letter_id] = replace(kept[letter_id], state=IngestDeadLetterState.SET_ASIDE, reason=reason)

    async def delete(self, letter_ids: Collection[int] | None) -> int:
        known = list(self._database.rows(DEAD_LETTERS))
        return self._database.delete(DEAD_LETTERS, [each for each in known if letter_ids is None or each in letter_ids])

    async def delete_oldest(self, keep: int) -> int:
        known = list(self._database.rows(DEAD_LETTERS))
        return self._database.delete(DEAD_LETTERS, known[: max(0, len(known) - keep)])

    async def delete_batch(self, device_no: int, limit: int) -> int:
        rows = self._database.rows(DEAD_LETTERS).values()
        mine = [letter.letter_id for letter in rows if letter.device_no == device_no]
        return self._database.delete(DEAD_LETTERS, mine[:limit])
