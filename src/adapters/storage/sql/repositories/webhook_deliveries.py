"""Webhook deliveries and their attempts. A delivery may be claimed from `ready_ms` on: when it is due, or when its lease ends."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from sqlalchemy import Table, TextClause, bindparam, delete, insert, or_, select, text

from adapters.storage.sql.mapping import RowMapper, SqlRepository, enum_converter, to_json
from adapters.storage.sql.session import POSTGRES, SQLITE
from adapters.storage.sql.statements import (
    BulkStatement,
    delete_batch,
    during,
    for_update,
    text_with_bigints,
    upsert,
    without_none,
)
from adapters.storage.sql.tables import attempts, deliveries, webhook_recoveries, webhooks
from adapters.storage.sql.tables.events import FINISHED_DELIVERY, PENDING_DELIVERY, UNDELIVERED_DELIVERY
from domain.kernel.clock import ANY_TIME, TimeSpan
from domain.kernel.ids import DeliveryId, WebhookId
from domain.webhooks.model import DeliveryAttempt, WebhookDelivery, WebhookDeliveryState, WebhookRecovery

DELIVERY = RowMapper(deliveries, WebhookDelivery, {"state": enum_converter(WebhookDeliveryState)})
ATTEMPT = RowMapper(attempts, DeliveryAttempt, computed={"seq": attempts.c.seq})
RECOVERY = RowMapper(webhook_recoveries, WebhookRecovery)

o = deliveries.c
w = webhooks.c
r = webhook_recoveries.c

_INSERT_COLUMNS = [column.name for column in deliveries.columns if column.name != "no"]
ADD = insert(deliveries).from_select(
    _INSERT_COLUMNS,
    select(*[bindparam(f"at_{name}", type_=deliveries.c[name].type) for name in _INSERT_COLUMNS]).where(
        select(w.webhook_id).where(w.webhook_id == bindparam("at_webhook_id")).exists()
    ),
)
GET = DELIVERY.select().where(o.no == bindparam("at_no"))
_COLUMNS = ", ".join(column.name for column in DELIVERY.columns)


def _in_batch(dialect: str, query: str) -> str:
    """The condition that a row is one of those that `query` locks and limits.

    PostgreSQL may run the query of `IN (…)` again for each row of a nested loop, and SKIP LOCKED passes over the rows that the
    statement has just changed: the limit would hold for each run, and the statement would change all rows. It runs ARRAY once."""
    return f"no IN ({query})" if dialect == SQLITE else f"no = ANY(ARRAY({query} FOR UPDATE SKIP LOCKED))"


def _claim_statement(dialect: str, query: str) -> TextClause:
    sql = f"""
UPDATE deliveries SET claimed_until_ms = :at_until, ready_ms = :at_until WHERE {_in_batch(dialect, query)} RETURNING {_COLUMNS}"""  # noqa: S608 - put together from constants of this module
    return text_with_bigints(sql, "at_until", "at_now", "at_limit")


_OLDEST_DUE = f"""
  SELECT no FROM deliveries WHERE {PENDING_DELIVERY.text} AND ready_ms <= :at_now ORDER BY ready_ms, no LIMIT :at_limit"""  # noqa: S608
"""The claim without excluded webhooks; reads only the index of pending deliveries."""


_WEBHOOKS_WITH_PENDING = f"""
  WITH RECURSIVE hooks(id) AS (
    SELECT CAST('' AS text)
    UNION ALL
    SELECT (
      SELECT webhook_id FROM deliveries WHERE {PENDING_DELIVERY.text} AND webhook_id > hooks.id
      ORDER BY webhook_id, ready_ms, no LIMIT 1
    ) FROM hooks WHERE hooks.id IS NOT NULL
  )"""  # noqa: S608
"""Goes from webhook to webhook by the index of pending deliveries, so it skips a million deliveries of a busy webhook without
reading them. The ORDER BY has all columns of that index: for `min(webhook_id)` PostgreSQL would use the smaller index of all
deliveries, and read a million finished ones to find no pending one."""
_DUE_OF_WEBHOOK = f"""
      SELECT x.no, x.ready_ms FROM deliveries x
      WHERE x.{PENDING_DELIVERY.text} AND x.webhook_id = hooks.id AND x.ready_ms <= :at_now
      ORDER BY x.ready_ms, x.no LIMIT :at_limit"""  # noqa: S608
_OLDEST_DUE_EXCEPT_ON_SQLITE = f"""{_WEBHOOKS_WITH_PENDING}
  SELECT no FROM deliveries WHERE {PENDING_DELIVERY.text} AND no IN (
    SELECT d.no FROM hooks JOIN deliveries d ON d.no IN (SELECT no FROM ({_DUE_OF_WEBHOOK}))
    WHERE hooks.id NOT IN (SELECT value FROM json_each(:at_listed))
  ) ORDER BY ready_ms, no LIMIT :at_limit"""  # noqa: S608
_STILL_PENDING = "state || '' = 'PENDING'"
"""The condition of PENDING_DELIVERY, written so that no index matches it. Where the numbers are given, PostgreSQL must not read
the index of all pending deliveries, as a plan does that it made while the table was empty."""
_OLDEST_DUE_EXCEPT = f"""
  SELECT no FROM deliveries WHERE {_STILL_PENDING} AND no = ANY(ARRAY({_WEBHOOKS_WITH_PENDING}
    SELECT due.no FROM hooks CROSS JOIN LATERAL ({_DUE_OF_WEBHOOK}) due
    WHERE hooks.id NOT IN (SELECT value FROM json_array_elements_text(CAST(:at_listed AS json)))
    ORDER BY due.ready_ms, due.no LIMIT 4 * :at_limit
  )) ORDER BY ready_ms, no LIMIT :at_limit"""  # noqa: S608
"""On PostgreSQL. ARRAY makes it run the inner query once; it would turn a subquery into a join over all pending deliveries. Four
times the limit, because other instances may have locked some of the rows."""
CLAIM = {dialect: _claim_statement(dialect, _OLDEST_DUE) for dialect in (SQLITE, POSTGRES)}
CLAIM_EXCEPT = {
    SQLITE: _claim_statement(SQLITE, _OLDEST_DUE_EXCEPT_ON_SQLITE),
    POSTGRES: _claim_statement(POSTGRES, _OLDEST_DUE_EXCEPT),
}
NEXT_DUE = select(o.ready_ms).where(PENDING_DELIVERY, o.ready_ms >= 0).order_by(o.ready_ms, o.no).limit(1)
_PENDING_OF_WEBHOOK = f"""SELECT no FROM deliveries WHERE webhook_id BETWEEN :at_id AND :at_id AND {PENDING_DELIVERY.text}
  ORDER BY webhook_id, ready_ms, no LIMIT """  # noqa: S608 - of constants
"""BETWEEN instead of `=`: with `=` PostgreSQL drops webhook_id from the order, and may read the table or another index."""
CANCEL = {
    dialect: text_with_bigints(
        f"""UPDATE deliveries SET state = '{WebhookDeliveryState.CANCELLED.value}', claimed_until_ms = NULL
  WHERE {_in_batch(dialect, f"{_PENDING_OF_WEBHOOK} :at_limit")} RETURNING no""",  # noqa: S608 - of constants
        "at_limit",
    )
    for dialect in (SQLITE, POSTGRES)
}
"""SKIP LOCKED, so that it cannot deadlock with a delivery worker."""
HAS_PENDING = text(f"{_PENDING_OF_WEBHOOK} 1")
DELETE_ATTEMPT = delete(attempts).where(attempts.c.delivery_id == bindparam("at_id"))
_ORPHANED_WEBHOOK = """
WITH RECURSIVE hooks(id) AS (
  SELECT min(webhook_id) FROM deliveries
  UNION ALL
  SELECT (SELECT min(webhook_id) FROM deliveries WHERE webhook_id > hooks.id) FROM hooks WHERE hooks.id IS NOT NULL
)
SELECT id FROM hooks WHERE id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM webhooks WHERE webhook_id = id) LIMIT 1"""
FIND_ORPHANED_WEBHOOK = text(_ORPHANED_WEBHOOK)
"""Goes from webhook to webhook by index."""
_BATCH_OF_WEBHOOK = """SELECT no FROM deliveries WHERE (webhook_id, no) > (:at_id, :at_after) AND webhook_id <= :at_id
  ORDER BY webhook_id, no LIMIT :at_limit"""
DELETE_BATCH_OF_WEBHOOK = {
    dialect: text_with_bigints(
        f"DELETE FROM deliveries WHERE {_in_batch(dialect, _BATCH_OF_WEBHOOK)} RETURNING no",  # noqa: S608 - of constants
        "at_after",
        "at_limit",
    )
    for dialect in (SQLITE, POSTGRES)
}
"""Each batch starts where the last one ended. PostgreSQL keeps deleted rows in place while an older snapshot is open (of a dump,
for example), so a batch from the start would read all rows that earlier batches deleted. Locked rows are left for the next
pass."""
DELETE_OLDER_THAN = delete_batch(deliveries, FINISHED_DELIVERY & (o.created_ms < bindparam("at_before")), o.created_ms)

_UNDELIVERED_OF_WEBHOOK = f"""FROM deliveries
  WHERE {UNDELIVERED_DELIVERY.text} AND (webhook_id, created_ms, no) > (:at_id, :at_from, :at_after)
    AND (webhook_id, created_ms) <= (:at_id, :at_until)"""
"""By index from the position on, however many were sent again before."""
FIND_UNDELIVERED = text_with_bigints(
    f"SELECT {_COLUMNS} {_UNDELIVERED_OF_WEBHOOK} ORDER BY webhook_id, created_ms, no LIMIT 1", "at_from", "at_after", "at_until"
)
COUNT_UNDELIVERED = text_with_bigints(
    f"SELECT count(*) FROM (SELECT 1 {_UNDELIVERED_OF_WEBHOOK} ORDER BY webhook_id, created_ms, no LIMIT :at_limit) AS counted",  # noqa: S608
    "at_from",
    "at_after",
    "at_until",
    "at_limit",
)
REVIVE = text_with_bigints(
    f"""UPDATE deliveries SET state = '{WebhookDeliveryState.PENDING.value}', attempts = 0, due_ms = :at_due, ready_ms = :at_due,
  claimed_until_ms = NULL WHERE no = :at_no AND {UNDELIVERED_DELIVERY.text}""",  # noqa: S608 - of constants
    "at_due",
    "at_no",
)

_ATTEMPTS_OF_WEBHOOK = attempts.c.webhook_id.between(bindparam("at_webhook"), bindparam("at_webhook"))
LIST_ATTEMPTS = (
    ATTEMPT.select()
    .where(_ATTEMPTS_OF_WEBHOOK)
    .order_by(attempts.c.webhook_id.desc(), attempts.c.seq.desc())
    .limit(bindparam("at_limit"))
)
"""BETWEEN for the same reason: a million attempts of other webhooks may be newer than this webhook's."""
LIST_ATTEMPTS_BEFORE = LIST_ATTEMPTS.where(attempts.c.seq < bindparam("at_before"))
GET_ATTEMPT = ATTEMPT.select().where(attempts.c.delivery_id == bindparam("at_id"))


def _unnest(table: Table, *names: str) -> str:
    """PostgreSQL's array parameters for these columns, as the rows `x`."""
    kinds = [table.c[name].type.compile() for name in names]
    arrays = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(kinds, 1))
    return f"unnest({arrays}) AS x({', '.join(names)})"


_FINISH_COLUMNS = ("state", "attempts", "due_ms", "ready_ms", "no", "claimed_until_ms")
FINISH_MANY = BulkStatement(
    f"""
UPDATE deliveries SET state = ?, attempts = ?, due_ms = ?, ready_ms = ?, claimed_until_ms = NULL
WHERE no = ? AND {PENDING_DELIVERY.text} AND claimed_until_ms IS ?""",  # noqa: S608 - of constants
    f"""
WITH mine AS (
  SELECT no, claimed_until_ms AS lease FROM deliveries WHERE no = ANY($5::bigint[]) AND {_STILL_PENDING} ORDER BY no FOR UPDATE
)
UPDATE deliveries d SET state = x.state, attempts = x.attempts, due_ms = x.due_ms, ready_ms = x.ready_ms, claimed_until_ms = NULL
FROM {_unnest(deliveries, *_FINISH_COLUMNS)} JOIN mine USING (no)
WHERE d.no = x.no AND mine.lease IS NOT DISTINCT FROM x.claimed_until_ms""",  # noqa: S608 - of constants
    row_by_row=True,
)
"""PostgreSQL locks the rows in the order that all writers use, so that no two wait for each other."""
_finish_values = attrgetter("state", "attempts", "due_ms", "due_ms", "no", "claimed_until_ms")

_ATTEMPT_START_COLUMNS = (
    "delivery_id",
    "delivery_no",
    "webhook_id",
    "event_id",
    "event_type",
    "device_id",
    "number",
    "created_ms",
    "succeeded",
)
_INSERT_ATTEMPT = f"INSERT INTO attempts ({', '.join(_ATTEMPT_START_COLUMNS)})"
ADD_ATTEMPTS = BulkStatement(
    f"{_INSERT_ATTEMPT} VALUES ({', '.join('?' * len(_ATTEMPT_START_COLUMNS))})",
    f"{_INSERT_ATTEMPT} SELECT * FROM {_unnest(attempts, *_ATTEMPT_START_COLUMNS)}",  # noqa: S608 - of constants
    row_by_row=True,
)
_attempt_start_values = attrgetter(*_ATTEMPT_START_COLUMNS)

_ATTEMPT_RESULT_COLUMNS = ("finished_ms", "status_code", "error", "succeeded", "duration_ms", "next_attempt_ms")
FINISH_ATTEMPTS = BulkStatement(
    f"UPDATE attempts SET {', '.join(f'{name} = ?' for name in _ATTEMPT_RESULT_COLUMNS)} WHERE delivery_id = ?",  # noqa: S608
    f"UPDATE attempts a SET {', '.join(f'{name} = x.{name}' for name in _ATTEMPT_RESULT_COLUMNS)} "  # noqa: S608
    f"FROM {_unnest(attempts, *_ATTEMPT_RESULT_COLUMNS, 'delivery_id')} "
    "WHERE a.delivery_id = x.delivery_id AND a.delivery_id = ANY($7::text[])",
    row_by_row=True,
)
"""`ANY` makes PostgreSQL use the index. It plans a join alone by the number of rows, and reads all of a small table."""
_attempt_result_values = attrgetter(*_ATTEMPT_RESULT_COLUMNS, "delivery_id")


def _insert_row(delivery: WebhookDelivery) -> dict[str, Any]:
    values = DELIVERY.values(delivery, "no")
    values["ready_ms"] = delivery.due_ms if delivery.claimed_until_ms is None else delivery.claimed_until_ms
    return {f"at_{name}": values[name] for name in _INSERT_COLUMNS}


class SqlWebhookDeliveryRepository(SqlRepository):
    async def add_many(self, deliveries: Sequence[WebhookDelivery]) -> None:
        """Skips deliveries whose webhook has been deleted in the meantime."""
        await self._session.execute_many(ADD, [_insert_row(delivery) for delivery in deliveries])

    async def get(self, no: int) -> WebhookDelivery | None:
        return await self._first(DELIVERY, GET, at_no=no)

    async def claim(self, now_ms: int, until_ms: int, limit: int, *, busy: Sequence[WebhookId] = ()) -> Sequence[WebhookDelivery]:
        numbers = {"at_now": now_ms, "at_until": until_ms, "at_limit": limit}
        if busy:
            statement = CLAIM_EXCEPT[self._session.dialect]
            rows = await self._session.write(statement, **numbers, at_listed=to_json(list(busy)))
        else:
            rows = await self._session.write(CLAIM[self._session.dialect], **numbers)
        return sorted((DELIVERY.from_row(row) for row in rows), key=lambda delivery: (delivery.due_ms, delivery.no))

    async def finish_many(self, deliveries: Sequence[WebhookDelivery]) -> None:
        await self._session.bulk_write(FINISH_MANY, list(map(_finish_values, deliveries)))

    async def next_due_ms(self) -> int | None:
        rows = await self._session.read(NEXT_DUE)
        return rows[0][0] if rows else None

    async def cancel_pending(self, webhook_id: WebhookId, limit: int) -> int:
        return await self._count_changed(CANCEL[self._session.dialect], at_id=webhook_id, at_limit=limit)

    async def has_pending(self, webhook_id: WebhookId) -> bool:
        return bool(await self._session.read(HAS_PENDING, at_id=webhook_id))

    async def add_attempts(self, attempts: Sequence[DeliveryAttempt]) -> None:
        await self._session.bulk_write(ADD_ATTEMPTS, list(map(_attempt_start_values, attempts)))

    async def finish_attempts(self, attempts: Sequence[DeliveryAttempt]) -> None:
        await self._session.bulk_write(FINISH_ATTEMPTS, list(map(_attempt_result_values, attempts)))

    async def delete_attempts(self, delivery_ids: Sequence[DeliveryId]) -> None:
        await self._session.execute_many(DELETE_ATTEMPT, [{"at_id": delivery_id} for delivery_id in delivery_ids])

    async def list_attempts(
        self, webhook_id: WebhookId, limit: int, before: int | None = None, created: TimeSpan = ANY_TIME
    ) -> Sequence[DeliveryAttempt]:
        statement, span = during(LIST_ATTEMPTS if before is None else LIST_ATTEMPTS_BEFORE, attempts.c.created_ms, created)
        params = without_none(at_before=before) | span
        return await self._list(ATTEMPT, statement, at_webhook=webhook_id, at_limit=limit, **params)

    async def get_attempt(self, webhook_id: WebhookId, delivery_id: DeliveryId) -> DeliveryAttempt | None:
        found = await self._first(ATTEMPT, GET_ATTEMPT, at_id=delivery_id)
        return found if found is not None and found.webhook_id == webhook_id else None

    async def find_orphaned_webhook_id(self) -> WebhookId | None:
        rows = await self._session.read(FIND_ORPHANED_WEBHOOK)
        return WebhookId(rows[0][0]) if rows else None

    async def delete_batch_by_webhook(self, webhook_id: WebhookId, limit: int, *, after: int = 0) -> Sequence[int]:
        statement = DELETE_BATCH_OF_WEBHOOK[self._session.dialect]
        return sorted(row[0] for row in await self._session.write(statement, at_id=webhook_id, at_after=after, at_limit=limit))

    async def delete_older_than(self, created_ms: int, limit: int) -> int:
        return await self._count_changed(DELETE_OLDER_THAN, at_before=created_ms, at_limit=limit)

    async def find_undelivered(self, recovery: WebhookRecovery) -> WebhookDelivery | None:
        return await self._first(DELIVERY, FIND_UNDELIVERED, **_position(recovery))

    async def count_undelivered(self, recovery: WebhookRecovery, limit: int) -> int:
        return await self._number(COUNT_UNDELIVERED, **_position(recovery), at_limit=limit)

    async def revive(self, no: int, due_ms: int) -> None:
        await self._session.write(REVIVE, at_no=no, at_due=due_ms)


def _position(recovery: WebhookRecovery) -> dict[str, Any]:
    return {
        "at_id": recovery.webhook_id,
        "at_from": recovery.from_ms,
        "at_after": recovery.after_no,
        "at_until": recovery.until_ms,
    }


GET_RECOVERY = for_update(RECOVERY.select().where(r.webhook_id == bindparam("at_id")))
LIST_READY_RECOVERIES = (
    RECOVERY.select()
    .outerjoin(deliveries, o.no == r.current_no)
    .where(r.webhook_id > bindparam("at_after"), or_(o.no.is_(None), o.state != WebhookDeliveryState.PENDING.value))
    .order_by(r.webhook_id)
    .limit(bindparam("at_limit"))
)
ANY_RECOVERY = select(r.webhook_id).limit(1)
SAVE_RECOVERY = upsert(webhook_recoveries, "from_ms", "after_no", "until_ms", "current_no", "sent", "failed", "failed_in_row")
DELETE_RECOVERY = delete(webhook_recoveries).where(r.webhook_id == bindparam("at_id"))


class SqlWebhookRecoveryRepository(SqlRepository):
    async def get_for_update(self, webhook_id: WebhookId) -> WebhookRecovery | None:
        return await self._first(RECOVERY, GET_RECOVERY[self._takes_locks], at_id=webhook_id)

    async def list_ready(self, after: WebhookId | None, limit: int) -> Sequence[WebhookRecovery]:
        return await self._list(RECOVERY, LIST_READY_RECOVERIES, at_after=after or "", at_limit=limit)

    async def has_any(self) -> bool:
        return bool(await self._session.read(ANY_RECOVERY))

    async def save(self, recovery: WebhookRecovery) -> None:
        await self._session.write(SAVE_RECOVERY, **RECOVERY.values(recovery))

    async def delete(self, webhook_id: WebhookId) -> None:
        await self._session.write(DELETE_RECOVERY, at_id=webhook_id)
