"""What webhooks are owed, and each attempt. `ready_ms` says when a delivery may be claimed: due, or its lease over."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from sqlalchemy import BigInteger, Table, TextClause, bindparam, delete, insert, select, text, update
from sqlalchemy.dialects import postgresql

from adapters.storage.sql.repositories.sessions import forgetting
from adapters.storage.sql.rows import Mapper, to_json, word
from adapters.storage.sql.session import POSTGRES, SQLITE, Session
from adapters.storage.sql.tables import attempts, deliveries, webhooks
from adapters.storage.sql.tables.records import OWED, SETTLED
from domain.kernel.ids import DeliveryId, WebhookId
from domain.webhooks.model import Attempt, Delivery, DeliveryState

DELIVERY = Mapper(deliveries, Delivery, {"state": word(DeliveryState)})
ATTEMPT = Mapper(attempts, Attempt)

o = deliveries.c
w = webhooks.c

_OWED_COLUMNS = [column.name for column in deliveries.columns if column.name != "no"]
ADD_OWED = insert(deliveries).from_select(
    _OWED_COLUMNS,
    select(*[bindparam(f"at_{name}", type_=deliveries.c[name].type) for name in _OWED_COLUMNS]).where(
        select(w.webhook_id).where(w.webhook_id == bindparam("at_webhook_id")).exists()
    ),
)
GET_OWED = DELIVERY.select().where(o.no == bindparam("at_no"))
_COLUMNS = ", ".join(column.name for column in DELIVERY.columns)


def _claim(chosen: str) -> TextClause:
    sql = f"""
UPDATE deliveries SET claimed_until_ms = :at_until, ready_ms = :at_until WHERE no IN ({chosen}) RETURNING {_COLUMNS}"""  # noqa: S608 - put together from constants of this module
    names = ("at_until", "at_now", "at_limit")
    return text(sql).bindparams(*[bindparam(name, type_=BigInteger()) for name in names])


def _oldest(lock: str) -> str:
    """When no webhook is passed over; reads nothing but the index of owed deliveries."""
    return f"SELECT no FROM deliveries WHERE {OWED.text} AND ready_ms <= :at_now ORDER BY ready_ms, no LIMIT :at_limit {lock}"  # noqa: S608


_HOOKS = f"""
  WITH RECURSIVE hooks(id) AS (
    SELECT CAST('' AS text)
    UNION ALL
    SELECT (
      SELECT webhook_id FROM deliveries WHERE {OWED.text} AND webhook_id > hooks.id ORDER BY webhook_id, ready_ms, no LIMIT 1
    ) FROM hooks WHERE hooks.id IS NOT NULL
  )"""  # noqa: S608
"""From webhook to webhook by the index of what is owed, so that a million deliveries owed to a busy one are stepped over, not
read. In that index's whole order: for `min(webhook_id)` PostgreSQL takes the narrower index of all deliveries, and reads a
million settled ones to find none that is owed."""
_DUE_OF_HOOK = f"""
      SELECT x.no, x.ready_ms FROM deliveries x WHERE x.{OWED.text} AND x.webhook_id = hooks.id AND x.ready_ms <= :at_now
      ORDER BY x.ready_ms, x.no LIMIT :at_limit"""  # noqa: S608
_OLDEST_OF_OTHERS = f"""{_HOOKS}
  SELECT no FROM deliveries WHERE {OWED.text} AND no IN (
    SELECT d.no FROM hooks JOIN deliveries d ON d.no IN (SELECT no FROM ({_DUE_OF_HOOK}))
    WHERE hooks.id NOT IN (SELECT value FROM json_each(:at_listed))
  ) ORDER BY ready_ms, no LIMIT :at_limit"""  # noqa: S608
_STILL_OWED = "state || '' = 'PENDING'"
"""`OWED`, and no reason to read an index of all that is owed where the numbers are given: a plan that PostgreSQL made while the
table was empty does that, and is kept while it fills."""
_OLDEST_OF_OTHERS_LOCKED = f"""
  SELECT no FROM deliveries WHERE {_STILL_OWED} AND no = ANY(ARRAY({_HOOKS}
    SELECT due.no FROM hooks CROSS JOIN LATERAL ({_DUE_OF_HOOK}) due
    WHERE hooks.id NOT IN (SELECT value FROM json_array_elements_text(CAST(:at_listed AS json)))
    ORDER BY due.ready_ms, due.no LIMIT 4 * :at_limit
  )) ORDER BY ready_ms, no LIMIT :at_limit FOR UPDATE SKIP LOCKED"""  # noqa: S608
"""As an array, so that it is made once: of a subquery PostgreSQL makes a join over all that is owed. Four times the limit:
another instance may be at some of them in this moment."""


_LOCK = "FOR UPDATE SKIP LOCKED"
CLAIM = {SQLITE: _claim(_oldest("")), POSTGRES: _claim(_oldest(_LOCK))}
CLAIM_OF_OTHERS = {
    SQLITE: _claim(_OLDEST_OF_OTHERS),
    POSTGRES: _claim(_OLDEST_OF_OTHERS_LOCKED),
}
_OURS = (o.no == bindparam("at_no"), OWED, o.claimed_until_ms.is_not_distinct_from(bindparam("at_lease")))
FINISH = update(deliveries).where(*_OURS).returning(o.no)
NEXT_DUE = select(o.ready_ms).where(OWED, o.ready_ms >= 0).order_by(o.ready_ms, o.no).limit(1)
_OWED_TO = select(o.no).where(o.webhook_id.between(bindparam("at_id"), bindparam("at_id")), OWED)
_OWED_TO = _OWED_TO.order_by(o.webhook_id, o.ready_ms, o.no)
"""Not `=`: of what is equal PostgreSQL needs no order, and reads the table or any index where much seems to be this webhook's."""
_FIRST = _OWED_TO.limit(bindparam("at_limit"))
CANCEL = {
    dialect: update(deliveries)
    .where(o.no.in_(chosen))
    .values(state=DeliveryState.CANCELLED.value, claimed_until_ms=None)
    .returning(o.no)
    for dialect, chosen in ((SQLITE, _FIRST), (POSTGRES, _FIRST.with_for_update(skip_locked=True)))
}
"""Waits for nobody, so that it and a worker's turn cannot wait for each other."""
OWES = _OWED_TO.limit(1)
DROP = delete(attempts).where(attempts.c.delivery_id == bindparam("at_id"))
_LEFT = """
WITH RECURSIVE hooks(id) AS (
  SELECT min(webhook_id) FROM deliveries
  UNION ALL
  SELECT (SELECT min(webhook_id) FROM deliveries WHERE webhook_id > hooks.id) FROM hooks WHERE hooks.id IS NOT NULL
)
SELECT id FROM hooks WHERE id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM webhooks WHERE webhook_id = id) LIMIT 1"""
LEFT_OVER = text(_LEFT)
"""From webhook to webhook by index."""
_SOME = """SELECT no FROM deliveries WHERE (webhook_id, no) > (:at_id, :at_after) AND webhook_id <= :at_id
  ORDER BY webhook_id, no LIMIT :at_limit"""
FORGET_OF = {
    dialect: text(f"DELETE FROM deliveries WHERE no IN ({_SOME} {lock}) RETURNING no").bindparams(  # noqa: S608 - of constants
        bindparam("at_after", type_=BigInteger()), bindparam("at_limit", type_=BigInteger())
    )
    for dialect, lock in ((SQLITE, ""), (POSTGRES, _LOCK))
}
"""Begins where the step before it ended: PostgreSQL keeps deleted rows in their place while anybody has an older snapshot open (a
dump, say), and from the front each step would pass over all that the ones before it deleted. Rows that somebody is at are left
for the next time."""
FORGET = forgetting(deliveries, SETTLED & (o.created_ms < bindparam("at_before")), o.created_ms)

_ALL_OF = attempts.c.webhook_id.between(bindparam("at_webhook"), bindparam("at_webhook"))
LOG = ATTEMPT.select().where(_ALL_OF).order_by(attempts.c.webhook_id.desc(), attempts.c.seq.desc()).limit(bindparam("at_limit"))
"""Not `=`, for the same reason: the attempts of a webhook that was busy once may lie behind a million of others."""
GET_ATTEMPT = ATTEMPT.select().where(attempts.c.delivery_id == bindparam("at_id"))


_STARTED = (
    "delivery_id", "delivery_no", "webhook_id", "event_id", "event_type", "device_id", "number", "created_ms", "succeeded",
)  # fmt: skip
_ENDED = ("delivery_id", "finished_ms", "status_code", "error", "succeeded", "duration_ms", "next_attempt_ms")


def _lists(table: Table, *names: str) -> str:
    """A list parameter of PostgreSQL for each of these columns, as the rows `x`."""
    dialect = postgresql.asyncpg.dialect()  # type: ignore[no-untyped-call]
    kinds = [table.c[name].type.compile(dialect=dialect) for name in names]
    listed = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(kinds, 1))
    return f"unnest({listed}) AS x({', '.join(names)})"


_FINISHED = ("no", "state", "attempts", "due_ms", "claimed_until_ms")
FINISH_LISTED = f"""
WITH mine AS (
  SELECT no, claimed_until_ms AS lease FROM deliveries WHERE no = ANY($1::bigint[]) AND {_STILL_OWED} ORDER BY no FOR UPDATE
)
UPDATE deliveries d SET state = x.state, attempts = x.attempts, due_ms = x.due_ms, ready_ms = x.due_ms, claimed_until_ms = NULL
FROM {_lists(deliveries, *_FINISHED)} JOIN mine USING (no)
WHERE d.no = x.no AND mine.lease IS NOT DISTINCT FROM x.claimed_until_ms"""  # noqa: S608 - of constants
"""On PostgreSQL one statement for a whole turn; rows are locked in the order of all writers, so that none wait for each other."""
START_LISTED = f"INSERT INTO attempts ({', '.join(_STARTED)}) SELECT * FROM {_lists(attempts, *_STARTED)}"  # noqa: S608
END_LISTED = (
    f"UPDATE attempts a SET {', '.join(f'{name} = x.{name}' for name in _ENDED[1:])} "  # noqa: S608
    f"FROM {_lists(attempts, *_ENDED)} WHERE a.delivery_id = x.delivery_id AND a.delivery_id = ANY($1::text[])"
)
"""`ANY` keeps it to the index: a join alone is planned by how many rows there are, and reads all of a table that is not large."""


FINISH_EACH = f"""
UPDATE deliveries SET state = ?, attempts = ?, due_ms = ?, ready_ms = ?, claimed_until_ms = NULL
WHERE no = ? AND {OWED.text} AND claimed_until_ms IS ?"""  # noqa: S608 - of constants
START_EACH = f"INSERT INTO attempts ({', '.join(_STARTED)}) VALUES ({', '.join('?' * len(_STARTED))})"  # noqa: S608
END_EACH = f"UPDATE attempts SET {', '.join(f'{name} = ?' for name in _ENDED[1:])} WHERE delivery_id = ?"  # noqa: S608
"""On SQLite a row at a time, in the driver's own style: three rows a delivery are what a turn costs."""
_finished = attrgetter("state", "attempts", "due_ms", "due_ms", "no", "claimed_until_ms")
_started, _ended = attrgetter(*_STARTED), attrgetter(*_ENDED[1:], "delivery_id")


def _columns(names: Sequence[str], items: Sequence[Any]) -> list[tuple[list[Any], ...]]:
    """What the statements above take: one row, of lists."""
    return [tuple(list(column) for column in zip(*map(attrgetter(*names), items), strict=True))] if items else []


def _owed(delivery: Delivery) -> dict[str, Any]:
    values = DELIVERY.values(delivery, "no")
    values["ready_ms"] = delivery.due_ms if delivery.claimed_until_ms is None else delivery.claimed_until_ms
    return {f"at_{name}": values[name] for name in _OWED_COLUMNS}


def _changed(delivery: Delivery) -> dict[str, Any]:
    return {
        "at_no": delivery.no,
        "at_lease": delivery.claimed_until_ms,
        "state": delivery.state.value,
        "attempts": delivery.attempts,
        "due_ms": delivery.due_ms,
        "ready_ms": delivery.due_ms,
        "claimed_until_ms": None,
    }


class SqlDeliveries:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def add(self, deliveries: Sequence[Delivery]) -> None:
        """Those of a webhook that is gone meanwhile are owed to nobody and passed over."""
        await self._session.many(ADD_OWED, [_owed(delivery) for delivery in deliveries])

    async def get(self, no: int) -> Delivery | None:
        return DELIVERY.maybe(await self._session.read(GET_OWED, at_no=no))

    async def claim(
        self, now_ms: int, until_ms: int, limit: int, *, busy: Sequence[WebhookId] = ()
    ) -> Sequence[Delivery]:
        numbers = {"at_now": now_ms, "at_until": until_ms, "at_limit": limit}
        if busy:
            statement = CLAIM_OF_OTHERS[self._session.dialect]
            rows = await self._session.write(statement, **numbers, at_listed=to_json(list(busy)))
        else:
            rows = await self._session.write(CLAIM[self._session.dialect], **numbers)
        return sorted((DELIVERY.of(row) for row in rows), key=lambda delivery: (delivery.due_ms, delivery.no))

    async def finish(self, delivery: Delivery) -> bool:
        return bool(await self._session.write(FINISH, **_changed(delivery)))

    async def finish_all(self, deliveries: Sequence[Delivery]) -> None:
        if self._session.dialect == POSTGRES:
            await self._session.bulk(FINISH_LISTED, _columns(_FINISHED, deliveries))
            return
        await self._session.bulk(FINISH_EACH, list(map(_finished, deliveries)))

    async def next_due_ms(self) -> int | None:
        rows = await self._session.read(NEXT_DUE)
        return rows[0][0] if rows else None

    async def cancel_of(self, webhook_id: WebhookId, limit: int) -> int:
        return len(await self._session.write(CANCEL[self._session.dialect], at_id=webhook_id, at_limit=limit))

    async def owes(self, webhook_id: WebhookId) -> bool:
        return bool(await self._session.read(OWES, at_id=webhook_id))

    async def start_attempt(self, attempts: Sequence[Attempt]) -> None:
        if self._session.dialect == POSTGRES:
            await self._session.bulk(START_LISTED, _columns(_STARTED, attempts))
            return
        await self._session.bulk(START_EACH, list(map(_started, attempts)))

    async def finish_attempt(self, attempts: Sequence[Attempt]) -> None:
        if self._session.dialect == POSTGRES:
            await self._session.bulk(END_LISTED, _columns(_ENDED, attempts))
            return
        await self._session.bulk(END_EACH, list(map(_ended, attempts)))

    async def drop_attempts(self, delivery_ids: Sequence[DeliveryId]) -> None:
        await self._session.many(DROP, [{"at_id": delivery_id} for delivery_id in delivery_ids])

    async def log(self, webhook_id: WebhookId, limit: int) -> Sequence[Attempt]:
        rows = await self._session.read(LOG, at_webhook=webhook_id, at_limit=limit)
        return [ATTEMPT.of(row) for row in rows]

    async def attempt(self, webhook_id: WebhookId, delivery_id: DeliveryId) -> Attempt | None:
        found = ATTEMPT.maybe(await self._session.read(GET_ATTEMPT, at_id=delivery_id))
        return found if found is not None and found.webhook_id == webhook_id else None

    async def left_over(self) -> WebhookId | None:
        rows = await self._session.read(LEFT_OVER)
        return WebhookId(rows[0][0]) if rows else None

    async def forget_of(self, webhook_id: WebhookId, limit: int, *, after: int = 0) -> Sequence[int]:
        statement = FORGET_OF[self._session.dialect]
        return sorted(row[0] for row in await self._session.write(statement, at_id=webhook_id, at_after=after, at_limit=limit))

    async def forget_before(self, created_ms: int, limit: int) -> int:
        return len(await self._session.write(FORGET, at_before=created_ms, at_limit=limit))
