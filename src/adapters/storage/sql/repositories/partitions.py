"""The partitions of a cluster and its members. Every change of a partition compares its epoch: a row that does not match is the
fence."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import BindParameter, bindparam, delete, select, text, update

from adapters.storage.sql.mapper import insert_or_ignore, json_integer_list, json_list, to_json
from adapters.storage.sql.session import DbSession, Row
from adapters.storage.sql.tables import members, partitions
from domain.partitions.model import NOBODY, ClusterMember, LogAdvance, Partition, PartitionLost

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
    .returning(p.part, p.epoch, p.position, p.owner, p.log_id)
)
RELEASE = update(partitions).where(*_UNCHANGED).values(owner=NOBODY, epoch=p.epoch + 1).returning(p.part)
ADVANCE = (
    update(partitions)
    .where(*_UNCHANGED, p.position == bindparam("at_before", type_=p.position.type))
    .values(position=bindparam("at_after", type_=p.position.type))
    .returning(p.part)
)
LOCK_FOR_SHARE = {
    dialect: select(p.part, p.epoch).where(p.part.in_(among)).order_by(p.part).with_for_update(read=True)
    for dialect, among in json_integer_list().items()
}
BEAT = text("INSERT INTO members VALUES (:at_instance, 1) ON CONFLICT (instance) DO UPDATE SET beats = members.beats + 1")
LIST_MEMBERS = select(m.instance, m.beats).order_by(m.instance)
REMOVE_MEMBERS = {dialect: delete(members).where(m.instance.in_(among)) for dialect, among in json_list().items()}


class SqlPartitionRepository:
    def __init__(self, session: DbSession) -> None:
        self._session = session

    async def create_missing(self, count: int) -> int:
        found = await self.list_all()
        if not found:
            rows = [{"part": number, "epoch": 0, "position": 0, "owner": NOBODY, "log_id": ""} for number in range(count)]
            await self._session.execute_many(CREATE[self._session.dialect], rows)
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

    async def advance(self, progress: LogAdvance) -> None:
        part, epoch, before, after = progress.partition, progress.epoch, progress.before, progress.after
        if await self._session.write(ADVANCE, at_part=part, at_epoch=epoch, at_before=before, at_after=after):
            return
        found = await self._session.read(FIND, at_part=part)
        if found:
            _partition(found[0]).advanced(progress)  # raises what is wrong with it
        raise PartitionLost(f"Partition {part} changed while this instance stored its messages.")

    async def require_owned(self, epochs: Collection[tuple[int, int]]) -> None:
        listed = to_json(sorted(partition for partition, _ in epochs))
        found = await self._session.read(LOCK_FOR_SHARE[self._session.dialect], at_listed=listed)
        if changed := set(epochs) - {(int(part), int(epoch)) for part, epoch in found}:
            raise PartitionLost(f"This instance does not own {len(changed)} of these partitions any more.")


class SqlClusterMemberRepository:
    def __init__(self, session: DbSession) -> None:
        self._session = session

    async def beat(self, instance: str) -> None:
        await self._session.write(BEAT, at_instance=instance)

    async def list_all(self) -> Sequence[ClusterMember]:
        return [ClusterMember(instance, int(beats)) for instance, beats in await self._session.read(LIST_MEMBERS)]

    async def remove(self, instances: Collection[str]) -> None:
        if instances:
            await self._session.write(REMOVE_MEMBERS[self._session.dialect], at_listed=to_json(sorted(instances)))


def _partition(row: Row) -> Partition:
    part, epoch, position, owner, log_id = row
    return Partition(int(part), int(epoch), int(position), str(owner), str(log_id))
