"""Dead letters: messages from devices that the database refused, in the order in which they were set aside."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import bindparam, delete, func, insert, select, update
from sqlalchemy.sql.expression import ClauseElement

from adapters.storage.sql.entity_repository import SqlRepository
from adapters.storage.sql.row_mapper import RowMapper, enum_converter, to_json
from adapters.storage.sql.statement_builders import listed_integers
from adapters.storage.sql.tables import dead_letters
from domain.ingest.dead_letters import IngestDeadLetter, IngestDeadLetterState
from domain.kernel.ids import DeviceId

c = dead_letters.c
LETTER: RowMapper[IngestDeadLetter] = RowMapper(dead_letters, IngestDeadLetter, {"state": enum_converter(IngestDeadLetterState)})

ADD = insert(dead_letters)
LIST = LETTER.select().order_by(c.letter_id.desc()).limit(bindparam("at_limit"))
LIST_BY_DEVICE = LIST.where(c.device_id == bindparam("at_device"))
FIND = LETTER.select().where(c.letter_id == bindparam("at_id"))
COUNT = select(func.count()).select_from(dead_letters)
LIST_FOR_REPLAY = (
    LETTER.select().where(c.state == IngestDeadLetterState.REPLAY.value).order_by(c.letter_id).limit(bindparam("at_limit"))
)
MARK_ALL = update(dead_letters).values(state=IngestDeadLetterState.REPLAY.value).returning(c.letter_id)
MARK = MARK_ALL.where(c.letter_id.in_(listed_integers()))
SET_ASIDE_AGAIN = (
    update(dead_letters)
    .where(c.letter_id == bindparam("at_id"))
    .values(state=IngestDeadLetterState.SET_ASIDE.value, reason=bindparam("reason"))
)
DELETE_ALL = delete(dead_letters).returning(c.letter_id)
DELETE = DELETE_ALL.where(c.letter_id.in_(listed_integers()))
_NEWEST_TO_DELETE = select(c.letter_id).order_by(c.letter_id.desc()).limit(1).offset(bindparam("at_keep")).scalar_subquery()
DELETE_OLDEST = DELETE_ALL.where(c.letter_id <= _NEWEST_TO_DELETE)
DELETE_BATCH = DELETE_ALL.where(
    c.letter_id.in_(select(c.letter_id).where(c.device_no == bindparam("at_device")).limit(bindparam("at_limit")))
)


class SqlIngestDeadLetterRepository(SqlRepository):
    async def add_many(self, letters: Sequence[IngestDeadLetter]) -> None:
        await self._session.execute_many(ADD, [LETTER.values(letter, "letter_id") for letter in letters])

    async def list(self, limit: int, *, device_id: DeviceId | None = None) -> Sequence[IngestDeadLetter]:
        if device_id is None:
            return await self._list(LETTER, LIST, at_limit=limit)
        return await self._list(LETTER, LIST_BY_DEVICE, at_device=device_id, at_limit=limit)

    async def find(self, letter_id: int) -> IngestDeadLetter | None:
        return await self._first(LETTER, FIND, at_id=letter_id)

    async def count(self) -> int:
        return await self._number(COUNT)

    async def mark_for_replay(self, letter_ids: Collection[int] | None) -> int:
        return await self._change(MARK_ALL, MARK, letter_ids)

    async def list_for_replay(self, limit: int) -> Sequence[IngestDeadLetter]:
        return await self._list(LETTER, LIST_FOR_REPLAY, at_limit=limit)

    async def set_aside_again(self, letter_id: int, reason: str) -> None:
        await self._session.write(SET_ASIDE_AGAIN, at_id=letter_id, reason=reason)

    async def delete(self, letter_ids: Collection[int] | None) -> int:
        return await self._change(DELETE_ALL, DELETE, letter_ids)

    async def delete_oldest(self, keep: int) -> int:
        return await self._count_changed(DELETE_OLDEST, at_keep=keep)

    async def delete_batch(self, device_no: int, limit: int) -> int:
        return await self._count_changed(DELETE_BATCH, at_device=device_no, at_limit=limit)

    async def _change(self, every: ClauseElement, some: ClauseElement, letter_ids: Collection[int] | None) -> int:
        if letter_ids is None:
            return await self._count_changed(every)
        return await self._count_changed(some, at_listed=to_json(sorted(letter_ids)))
