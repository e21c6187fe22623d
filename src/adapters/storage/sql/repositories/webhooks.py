"""Webhooks."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, delete, func, insert, select, update

from adapters.storage.sql.db_session import DbSession
from adapters.storage.sql.row_mapper import RowMapper, enum_converter, for_update, from_json, json_list, to_json
from adapters.storage.sql.tables import api_keys, webhooks
from domain.kernel.ids import AccountId, WebhookId
from domain.webhooks.model import Webhook, WebhookFormat

WEBHOOK = RowMapper(
    webhooks, Webhook, {"types": (to_json, lambda stored: tuple(from_json(stored))), "format": enum_converter(WebhookFormat)}
)
w = webhooks.c

_ID = w.webhook_id == bindparam("at_id")
ADD = insert(webhooks)
GET = WEBHOOK.select().where(_ID, w.account_id == bindparam("at_account"))
GET_FOR_UPDATE = for_update(GET)
FIND = WEBHOOK.select().where(_ID)
LIST = WEBHOOK.select().where(w.account_id == bindparam("at_account")).order_by(w.seq)
LIST_ENABLED = {
    dialect: WEBHOOK.select()
    .join(api_keys, api_keys.c.key_id == w.key_id)
    .where(w.account_id.in_(among), w.enabled, api_keys.c.enabled)
    .order_by(w.seq)
    for dialect, among in json_list().items()
}
SAVE = update(webhooks).where(_ID)
PAGE = WEBHOOK.select().where(w.webhook_id > bindparam("at_after")).order_by(w.webhook_id).limit(bindparam("at_limit"))
COUNT_SEALED = select(func.count() + func.count(w.sealed_url)).select_from(webhooks)
REKEY_SECRET, REKEY_URL = (
    update(webhooks).where(_ID, sealed == bindparam("at_before")).values({sealed: bindparam("at_after")}).returning(w.webhook_id)
    for sealed in (w.sealed_secret, w.sealed_url)
)
LIST_UNSEALED = WEBHOOK.select().where(w.sealed_url.is_(None)).limit(bindparam("at_limit"))
SEAL_URL = update(webhooks).where(_ID, w.sealed_url.is_(None))
DELETE = delete(webhooks).where(_ID)


class SqlWebhookRepository:
    def __init__(self, session: DbSession) -> None:
        self._session = session

    async def add(self, webhook: Webhook) -> None:
        await self._session.write(ADD, **WEBHOOK.values(webhook))

    async def get(self, account_id: AccountId, webhook_id: WebhookId) -> Webhook | None:
        return WEBHOOK.first_or_none(await self._session.read(GET, at_id=webhook_id, at_account=account_id))

    async def get_for_update(self, account_id: AccountId, webhook_id: WebhookId) -> Webhook | None:
        return WEBHOOK.first_or_none(
            await self._session.read(GET_FOR_UPDATE[self._session.writable], at_id=webhook_id, at_account=account_id)
        )

    async def find(self, webhook_id: WebhookId) -> Webhook | None:
        return WEBHOOK.first_or_none(await self._session.read(FIND, at_id=webhook_id))

    async def list_by_account(self, account_id: AccountId) -> Sequence[Webhook]:
        return [WEBHOOK.from_row(row) for row in await self._session.read(LIST, at_account=account_id)]

    async def list_enabled(self, account_ids: Sequence[AccountId]) -> Sequence[Webhook]:
        rows = await self._session.read(LIST_ENABLED[self._session.dialect], at_listed=to_json(sorted(set(account_ids))))
        return [WEBHOOK.from_row(row) for row in rows]

    async def save(self, webhook: Webhook) -> None:
        values = WEBHOOK.values(webhook, "webhook_id", "account_id", "key_id", "created_ms")
        await self._session.write(SAVE, at_id=webhook.webhook_id, **values)

    async def list_page(self, after: WebhookId | None, limit: int) -> Sequence[Webhook]:
        return [WEBHOOK.from_row(row) for row in await self._session.read(PAGE, at_after=after or "", at_limit=limit)]

    async def count_sealed(self) -> int:
        return int((await self._session.read(COUNT_SEALED))[0][0])

    async def rekey(self, webhook_id: WebhookId, before: bytes, after: bytes) -> bool:
        return bool(await self._session.write(REKEY_SECRET, at_id=webhook_id, at_before=before, at_after=after))

    async def rekey_url(self, webhook_id: WebhookId, before: bytes, after: bytes) -> bool:
        return bool(await self._session.write(REKEY_URL, at_id=webhook_id, at_before=before, at_after=after))

    async def list_unsealed(self, limit: int) -> Sequence[Webhook]:
        return [WEBHOOK.from_row(row) for row in await self._session.read(LIST_UNSEALED, at_limit=limit)]

    async def seal_url(self, webhook_id: WebhookId, origin: str, sealed: bytes) -> None:
        await self._session.write(SEAL_URL, at_id=webhook_id, origin=origin, sealed_url=sealed)

    async def delete(self, webhook_id: WebhookId) -> None:
        await self._session.write(DELETE, at_id=webhook_id)
