"""What the database contains of the devices of one partition.

PostgreSQL has an index on the hash of a device's number, so the cost depends on the devices of the partition, not on the fleet.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import TextClause

from adapters.storage.sql.entity_repository import SqlRepository
from adapters.storage.sql.repositories.rules import RULE
from adapters.storage.sql.sql_session_port import POSTGRES, SQLITE
from adapters.storage.sql.statement_builders import text_with_bigints
from adapters.storage.sql.tables import PARTITION_HASH, rules
from domain.ingest.restore import HashRange
from domain.rules.model import Rule
from domain.telemetry.ports import PackedRow

_DEVICES = f"WITH d AS (SELECT device_no FROM devices WHERE {PARTITION_HASH} BETWEEN :at_low AND :at_high)"  # noqa: S608 - a constant
_PARAMETERS = ("at_low", "at_high", "at_device", "at_ts", "at_digest", "at_limit")


def _of_partition(sql: str) -> TextClause:
    """The statement with its devices as `d`."""
    whole = f"{_DEVICES} {sql}"
    return text_with_bigints(whole, *[name for name in _PARAMETERS if f":{name}" in whole])


LIST_CHECKPOINTS = _of_partition(
    "SELECT l.device_no, l.ts, l.packed FROM d JOIN device_latest AS l ON l.device_no = d.device_no ORDER BY l.device_no"
)
_NEWER = (
    "r.device_no = d.device_no AND r.ts > coalesce(l.ts, -1) "
    "AND (d.device_no > :at_device OR r.ts > :at_ts OR (r.ts = :at_ts AND r.digest > :at_digest))"
)
_WITH_CHECKPOINT = "SELECT r.device_no, r.ts, r.digest, r.packed FROM d LEFT JOIN device_latest AS l ON l.device_no = d.device_no"
_PAGE = "d.device_no >= :at_device ORDER BY r.device_no, r.ts, r.digest LIMIT :at_limit"
_ROWS_OF_DEVICE = f"SELECT * FROM readings AS r WHERE {_NEWER} ORDER BY r.ts, r.digest LIMIT :at_limit"  # noqa: S608 - constants
LIST_NEWER_THAN_CHECKPOINT = {
    SQLITE: _of_partition(f"{_WITH_CHECKPOINT} CROSS JOIN readings AS r WHERE {_NEWER} AND {_PAGE}"),
    # LIMIT in the subquery: the planner must look up each device's rows by their key, and not read the whole table.
    POSTGRES: _of_partition(f"{_WITH_CHECKPOINT} CROSS JOIN LATERAL ({_ROWS_OF_DEVICE}) AS r WHERE {_PAGE}"),
}
LIST_ENABLED_RULES = (
    RULE.select()
    .where(rules.c.enabled, rules.c.device_no.in_(_of_partition("SELECT device_no FROM d")))
    .order_by(rules.c.device_no, rules.c.priority, rules.c.rule_no)
)


class SqlPartitionEngineStateRepository(SqlRepository):
    async def list_checkpoints(self, hashes: HashRange) -> Sequence[tuple[int, int, bytes]]:
        low, high = hashes
        return [(row[0], row[1], row[2]) for row in await self._session.read(LIST_CHECKPOINTS, at_low=low, at_high=high)]

    async def list_newer_than_checkpoint(
        self, hashes: HashRange, limit: int, after: tuple[int, int, int] | None
    ) -> Sequence[PackedRow]:
        device, at_ms, digest = after or (0, -1, 0)
        rows = await self._session.read(
            LIST_NEWER_THAN_CHECKPOINT[self._session.dialect],
            at_low=hashes[0],
            at_high=hashes[1],
            at_device=device,
            at_ts=at_ms,
            at_digest=digest,
            at_limit=limit,
        )
        return [(row[0], row[1], row[2], row[3]) for row in rows]

    async def list_enabled_rules(self, hashes: HashRange) -> Sequence[Rule]:
        low, high = hashes
        return await self._list(RULE, LIST_ENABLED_RULES, at_low=low, at_high=high)
