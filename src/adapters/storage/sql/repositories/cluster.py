"""The partitions of a cluster and its members. Every change of a partition compares its epoch: a row that does not match is the
fence.

How far steady time has come: one row. PostgreSQL tells by its own clock how long ago that was: its instances may be on many
machines.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import BigInteger, BindParameter, bindparam, column, delete, func, select, table, text, update

from adapters.storage.sql.mapping import SqlRepository, to_json
from adapters.storage.sql.probes import session_name
from adapters.storage.sql.session import POSTGRES, SQLITE, Row
from adapters.storage.sql.statements import insert_or_ignore, listed, listed_integers
from adapters.storage.sql.tables import members, partitions
from domain.kernel.clock import SteadyTimeAdvance, StoredSteadyTime
from domain.partitions.model import (
    NOBODY,
    ClusterMember,
    InboundLogReachability,
    Partition,
    PartitionLogAdvance,
    PartitionLostError,
)

p, m = partitions.c, members.c

_EPOCH: BindParameter[int] = bindparam("at_epoch", type_=p.epoch.type)
_UNCHANGED = (p.part == bindparam("at_part"), p.epoch == _EPOCH)
ROW = select(p.part, p.epoch, p.position, p.owner, p.log_id)
CREATE = insert_or_ignore(partitions)
LIST = ROW.order_by(p.part)
FIND = ROW.where(p.part == bindparam("at_part"))
CLAIM = (
    update(partitions)
    .where(*_UNCHANGED)
    .values(owner=bindparam("at_owner"), log_id=bindparam("at_log"), epoch=p.epoch + 1)
    .returning(*ROW.selected_columns)
)
RELEASE = update(partitions).where(*_UNCHANGED).values(owner=NOBODY, epoch=p.epoch + 1).returning(p.part)
ADVANCE = (
    update(partitions)
    .where(*_UNCHANGED, p.position == bindparam("at_before", type_=p.position.type))
    .values(position=bindparam("at_after", type_=p.position.type))
    .returning(p.part)
)
LOCK_FOR_SHARE = select(p.part, p.epoch).where(p.part.in_(listed_integers())).order_by(p.part).with_for_update(read=True)
BEAT = text(
    "INSERT INTO members (instance, beats, log_reach) VALUES (:at_instance, 1, :at_reach) "
    "ON CONFLICT (instance) DO UPDATE SET beats = members.beats + 1, log_reach = excluded.log_reach"
)
LIST_MEMBERS = select(m.instance, m.beats, m.log_reach).order_by(m.instance)
END_SESSIONS = (
    select(func.pg_terminate_backend(column("pid")))
    .where(
        column("application_name").in_(listed()), column("usename") == func.current_user(), column("pid") != func.pg_backend_pid()
    )
    .select_from(table("pg_stat_activity"))
)
REMOVE_MEMBERS = delete(members).where(m.instance.in_(listed()))


class SqlPartitionOwnershipRepository(SqlRepository):
    async def create_missing(self, count: int) -> int:
        found = await self.list_all()
        if not found:
            rows = [{"part": number, "epoch": 0, "position": 0, "owner": NOBODY, "log_id": ""} for number in range(count)]
            await self._session.execute_many(CREATE, rows)
            found = await self.list_all()
        return len(found)

    async def list_all(self) -> Sequence[Partition]:
        return [_partition(row) for row in await self._session.read(LIST)]

    async def claim(self, row: Partition, instance: str, log_id: str) -> Partition | None:
        log_id = row.log_id or log_id
        found = await self._session.write(CLAIM, at_part=row.partition, at_epoch=row.epoch, at_owner=instance, at_log=log_id)
        return _partition(found[0]) if found else None

    async def release(self, partition: int, epoch: int) -> bool:
        return bool(await self._session.write(RELEASE, at_part=partition, at_epoch=epoch))

    async def advance(self, progress: PartitionLogAdvance) -> None:
        part, epoch, before, after = progress.partition, progress.epoch, progress.before, progress.after
        if await self._session.write(ADVANCE, at_part=part, at_epoch=epoch, at_before=before, at_after=after):
            return
        found = await self._session.read(FIND, at_part=part)
        if found:
            _partition(found[0]).advanced(progress)  # raises what is wrong with it
        raise PartitionLostError(f"Partition {part} changed while this instance stored its messages.")

    async def require_owned(self, epochs: Collection[tuple[int, int]]) -> None:
        among = to_json(sorted(partition for partition, _ in epochs))
        found = await self._session.read(LOCK_FOR_SHARE, at_listed=among)
        if changed := set(epochs) - {(int(part), int(epoch)) for part, epoch in found}:
            raise PartitionLostError(f"This instance does not own {len(changed)} of these partitions any more.")


class SqlClusterMemberRepository(SqlRepository):
    async def beat(self, instance: str, log_reach: InboundLogReachability) -> None:
        await self._session.write(BEAT, at_instance=instance, at_reach=int(log_reach))

    async def list_all(self) -> Sequence[ClusterMember]:
        rows = await self._session.read(LIST_MEMBERS)
        return [ClusterMember(instance, int(beats), InboundLogReachability(int(reach))) for instance, beats, reach in rows]

    async def remove(self, instances: Collection[str]) -> None:
        if instances:
            await self._session.write(REMOVE_MEMBERS, at_listed=to_json(sorted(instances)))

    async def end_sessions(self, instances: Collection[str]) -> int:
        if self._session.dialect != POSTGRES or not instances:
            return 0  # a file has no other sessions than this process's
        return len(await self._session.write(END_SESSIONS, at_listed=to_json(sorted(map(session_name, instances)))))


def _partition(row: Row) -> Partition:
    part, epoch, position, owner, log_id = row
    return Partition(int(part), int(epoch), int(position), str(owner), str(log_id))


_WALL_MS = {SQLITE: ":at_wall", POSTGRES: "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)"}
_GREATER = {SQLITE: "max", POSTGRES: "greatest"}
FIND_STEADY_TIME = {
    dialect: text(
        f"SELECT steady_ms, {wall_ms} - wall_ms, heard_ms, wall_offset_ms, confirmed_ms FROM steady_time "  # noqa: S608 - constants
        "WHERE row_id = 1"
    )
    for dialect, wall_ms in _WALL_MS.items()
}
ADVANCE_STEADY_TIME = {
    dialect: text(
        "INSERT INTO steady_time (row_id, steady_ms, wall_ms, heard_ms, wall_offset_ms) "  # noqa: S608 - constants
        f"VALUES (1, :at_steady, {wall_ms}, :at_heard, :at_offset) "
        f"ON CONFLICT (row_id) DO UPDATE SET steady_ms = {_GREATER[dialect]}(steady_time.steady_ms, excluded.steady_ms), "
        "wall_ms = excluded.wall_ms, heard_ms = coalesce(excluded.heard_ms, steady_time.heard_ms), "
        "wall_offset_ms = coalesce(excluded.wall_offset_ms, steady_time.wall_offset_ms) RETURNING steady_ms, confirmed_ms"
    ).bindparams(*(bindparam(name, type_=BigInteger()) for name in ("at_steady", "at_heard", "at_offset")))
    for dialect, wall_ms in _WALL_MS.items()
}
CONFIRM_WALL_TIME = text("UPDATE steady_time SET confirmed_ms = :at_confirmed WHERE row_id = 1").bindparams(
    bindparam("at_confirmed", type_=BigInteger())
)


class SqlSteadyTimeRepository(SqlRepository):
    async def find(self, wall_ms: int) -> StoredSteadyTime | None:
        rows = await self._session.read(FIND_STEADY_TIME[self._session.dialect], **self._wall(wall_ms))
        return StoredSteadyTime(*rows[0]) if rows else None

    async def advance(
        self, steady_ms: int, wall_ms: int, heard_ms: int | None = None, wall_offset_ms: int | None = None
    ) -> SteadyTimeAdvance:
        given = {"at_steady": steady_ms, "at_heard": heard_ms, "at_offset": wall_offset_ms}
        [row] = await self._session.write(ADVANCE_STEADY_TIME[self._session.dialect], **given, **self._wall(wall_ms))
        return SteadyTimeAdvance(*row)

    async def confirm_wall_time(self, wall_ms: int) -> None:
        await self._session.execute_many(CONFIRM_WALL_TIME, [{"at_confirmed": wall_ms}])

    def _wall(self, wall_ms: int) -> dict[str, int]:
        return {"at_wall": wall_ms} if self._session.dialect == SQLITE else {}
