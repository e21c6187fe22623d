"""Webhooks, what is owed to them, and each attempt. `ready_ms` says when a delivery may be claimed: due, or its lease over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, TextClause, bindparam, delete, func, insert, select, text, update

from adapters.storage.sql.repositories.sessions import forgetting
from adapters.storage.sql.rows import Mapper, held, listed, to_json, word
from adapters.storage.sql.session import POSTGRES, SQLITE, Session
from adapters.storage.sql.tables import api_keys, attempts, deliveries, webhooks
from adapters.storage.sql.tables.records import OWED, SETTLED
from domain.kernel.ids import AccountId, DeliveryId, WebhookId
from domain.webhooks.model import Attempt, Delivery, DeliveryState, Webhook

WEBHOOK = Mapper(webhooks, Webhook)
DELIVERY = Mapper(deliveries, Delivery, {"state": word(DeliveryState)})
ATTEMPT = Mapper(attempts, Attempt)

w = webhooks.c
o = deliveries.c

_ID = w.webhook_id == bindparam("at_id")
ADD = insert(webhooks)
GET = WEBHOOK.select().where(_ID, w.account_id == bindparam("at_account"))
HELD = held(GET)
FIND = WEBHOOK.select().where(_ID)
LIST = WEBHOOK.select().where(w.account_id == bindparam("at_account")).order_by(w.seq)
LIVE = {
    dialect: WEBHOOK.select()
    .join(api_keys, api_keys.c.key_id == w.key_id)
    .where(w.account_id.in_(among), w.enabled, api_keys.c.enabled)
    .order_by(w.seq)
    for dialect, among in listed().items()
}
SAVE = update(webhooks).where(_ID)
PAGE = WEBHOOK.select().where(w.webhook_id > bindparam("at_after")).order_by(w.webhook_id).limit(bindparam("at_limit"))
COUNT = select(func.count()).select_from(webhooks)
RESEAL = (
    update(webhooks)
    .where(_ID, w.sealed_secret == bindparam("at_before"))
    .values(sealed_secret=bindparam("at_after"))
    .returning(w.webhook_id)
)
DELETE = delete(webhooks).where(_ID)

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


def _oldest_of_others(busy: str, lock: str) -> str:
    """From webhook to webhook by index, so that a million deliveries owed to a busy one are stepped over, not read."""
    return f"""
  WITH RECURSIVE hooks(id) AS (
    SELECT min(webhook_id) FROM deliveries WHERE {OWED.text}
    UNION ALL
    SELECT (SELECT min(webhook_id) FROM deliveries WHERE {OWED.text} AND webhook_id > hooks.id)
    FROM hooks WHERE hooks.id IS NOT NULL
  )
  SELECT no FROM deliveries WHERE {OWED.text} AND no IN (
    SELECT d.no FROM hooks JOIN deliveries d ON d.no IN (
      SELECT x.no FROM deliveries x WHERE x.{OWED.text} AND x.webhook_id = hooks.id AND x.ready_ms <= :at_now
      ORDER BY x.ready_ms, x.no LIMIT :at_limit
    ) WHERE hooks.id NOT IN (SELECT value FROM {busy})
  ) ORDER BY ready_ms, no LIMIT :at_limit {lock}"""  # noqa: S608


_LOCK = "FOR UPDATE SKIP LOCKED"
CLAIM = {SQLITE: _claim(_oldest("")), POSTGRES: _claim(_oldest(_LOCK))}
CLAIM_OF_OTHERS = {
    SQLITE: _claim(_oldest_of_others("json_each(:at_listed)", "")),
    POSTGRES: _claim(_oldest_of_others("json_array_elements_text(CAST(:at_listed AS json))", _LOCK)),
}
FINISH = update(deliveries).where(o.no == bindparam("at_no"), OWED).returning(o.no)
FINISH_ALL = update(deliveries).where(o.no == bindparam("at_no"), OWED)
NEXT_DUE = select(func.min(o.ready_ms)).where(OWED)
_OWED_TO = select(o.no).where(o.webhook_id == bindparam("at_id"), OWED)
_FIRST = _OWED_TO.order_by(o.ready_ms).limit(bindparam("at_limit"))
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
_SOME = "SELECT no FROM deliveries WHERE webhook_id = :at_id LIMIT :at_limit"
FORGET_OF = {
    dialect: text(f"DELETE FROM deliveries WHERE no IN ({_SOME} {lock}) RETURNING no").bindparams(  # noqa: S608 - of constants
        bindparam("at_limit", type_=BigInteger())
    )
    for dialect, lock in ((SQLITE, ""), (POSTGRES, _LOCK))
}
"""Rows that somebody is at are left for the next time."""
FORGET = forgetting(deliveries, SETTLED & (o.created_ms < bindparam("at_before")), o.created_ms)

START = insert(attempts)
END = update(attempts).where(attempts.c.delivery_id == bindparam("at_id"))
_OF_WEBHOOK = attempts.c.webhook_id == bindparam("at_webhook")
LOG = ATTEMPT.select().where(_OF_WEBHOOK).order_by(attempts.c.seq.desc()).limit(bindparam("at_limit"))
ATTEMPT_OF = ATTEMPT.select().where(attempts.c.delivery_id == bindparam("at_id"), _OF_WEBHOOK)


class SqlWebhooks:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def add(self, webhook: Webhook) -> None:
        await self._session.write(ADD, **WEBHOOK.values(webhook))

    async def get(self, account_id: AccountId, webhook_id: WebhookId) -> Webhook | None:
        return WEBHOOK.maybe(await self._session.read(GET, at_id=webhook_id, at_account=account_id))

    async def held(self, account_id: AccountId, webhook_id: WebhookId) -> Webhook | None:
        return WEBHOOK.maybe(
            await self._session.read(HELD[self._session.writable], at_id=webhook_id, at_account=account_id)
        )

    async def find(self, webhook_id: WebhookId) -> Webhook | None:
        return WEBHOOK.maybe(await self._session.read(FIND, at_id=webhook_id))

    async def list(self, account_id: AccountId) -> Sequence[Webhook]:
        return [WEBHOOK.of(row) for row in await self._session.read(LIST, at_account=account_id)]

    async def live(self, account_ids: Sequence[AccountId]) -> Sequence[Webhook]:
        rows = await self._session.read(LIVE[self._session.dialect], at_listed=to_json(sorted(set(account_ids))))
        return [WEBHOOK.of(row) for row in rows]

    async def save(self, webhook: Webhook) -> None:
        values = WEBHOOK.values(webhook, "webhook_id", "account_id", "key_id", "created_ms")
        await self._session.write(SAVE, at_id=webhook.webhook_id, **values)

    async def page(self, after: WebhookId | None, limit: int) -> Sequence[Webhook]:
        return [WEBHOOK.of(row) for row in await self._session.read(PAGE, at_after=after or "", at_limit=limit)]

    async def count(self) -> int:
        return int((await self._session.read(COUNT))[0][0])

    async def reseal(self, webhook_id: WebhookId, before: bytes, after: bytes) -> bool:
        return bool(await self._session.write(RESEAL, at_id=webhook_id, at_before=before, at_after=after))

    async def delete(self, webhook_id: WebhookId) -> None:
        await self._session.write(DELETE, at_id=webhook_id)


def _owed(delivery: Delivery) -> dict[str, Any]:
    values = DELIVERY.values(delivery, "no")
    values["ready_ms"] = delivery.due_ms if delivery.claimed_until_ms is None else delivery.claimed_until_ms
    return {f"at_{name}": values[name] for name in _OWED_COLUMNS}


def _finished(delivery: Delivery) -> dict[str, Any]:
    return {
        "at_no": delivery.no,
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
        return bool(await self._session.write(FINISH, **_finished(delivery)))

    async def finish_all(self, deliveries: Sequence[Delivery]) -> None:
        in_order = sorted(deliveries, key=lambda delivery: delivery.no)  # of all writers, so that none wait for each other
        await self._session.many(FINISH_ALL, [_finished(delivery) for delivery in in_order])

    async def next_due_ms(self) -> int | None:
        found: int | None = (await self._session.read(NEXT_DUE))[0][0]
        return found

    async def cancel_of(self, webhook_id: WebhookId, limit: int) -> int:
        return len(await self._session.write(CANCEL[self._session.dialect], at_id=webhook_id, at_limit=limit))

    async def owes(self, webhook_id: WebhookId) -> bool:
        return bool(await self._session.read(OWES, at_id=webhook_id))

    async def start_attempt(self, attempts: Sequence[Attempt]) -> None:
        await self._session.many(START, [ATTEMPT.values(attempt) for attempt in attempts])

    async def finish_attempt(self, attempts: Sequence[Attempt]) -> None:
        kept = ("delivery_id", "delivery_no", "webhook_id", "event_id", "event_type", "device_id")
        rows = [{"at_id": attempt.delivery_id, **ATTEMPT.values(attempt, *kept)} for attempt in attempts]
        await self._session.many(END, rows)

    async def drop_attempts(self, delivery_ids: Sequence[DeliveryId]) -> None:
        await self._session.many(DROP, [{"at_id": delivery_id} for delivery_id in delivery_ids])

    async def log(self, webhook_id: WebhookId, limit: int) -> Sequence[Attempt]:
        rows = await self._session.read(LOG, at_webhook=webhook_id, at_limit=limit)
        return [ATTEMPT.of(row) for row in rows]

    async def attempt(self, webhook_id: WebhookId, delivery_id: DeliveryId) -> Attempt | None:
        return ATTEMPT.maybe(await self._session.read(ATTEMPT_OF, at_id=delivery_id, at_webhook=webhook_id))

    async def left_over(self) -> WebhookId | None:
        rows = await self._session.read(LEFT_OVER)
        return WebhookId(rows[0][0]) if rows else None

    async def forget_of(self, webhook_id: WebhookId, limit: int) -> int:
        return len(await self._session.write(FORGET_OF[self._session.dialect], at_id=webhook_id, at_limit=limit))

    async def forget_before(self, created_ms: int, limit: int) -> int:
        return len(await self._session.write(FORGET, at_before=created_ms, at_limit=limit))
