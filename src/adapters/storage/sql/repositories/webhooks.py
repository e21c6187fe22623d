"""Webhooks."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, func, select

from adapters.storage.sql.mapping import (
    JSON_TUPLE,
    AccountEntityStatements,
    RowMapper,
    SqlAccountEntityRepository,
    enum_converter,
    to_json,
)
from adapters.storage.sql.statements import listed
from adapters.storage.sql.tables import api_keys, webhooks
from domain.kernel.ids import AccountId, WebhookId
from domain.webhooks.model import Webhook, WebhookFormat

WEBHOOK = RowMapper(webhooks, Webhook, {"types": JSON_TUPLE, "format": enum_converter(WebhookFormat)})
w = webhooks.c

WEBHOOKS = AccountEntityStatements(WEBHOOK, "webhook_id", unchanged=("account_id", "key_id", "created_ms"))
FIND = WEBHOOK.select().where(WEBHOOKS.is_id)
LIST_ENABLED = (
    WEBHOOK.select()
    .add_columns(api_keys.c.expires_ms)
    .join(api_keys, api_keys.c.key_id == w.key_id)
    .where(w.account_id.in_(listed()), w.enabled, api_keys.c.enabled)
    .order_by(w.seq)
)
PAGE = WEBHOOK.select().where(w.webhook_id > bindparam("at_after")).order_by(w.webhook_id).limit(bindparam("at_limit"))
COUNT_SEALED = select(2 * func.count()).select_from(webhooks)
"""Each has a signing secret and a URL."""
REKEY_SECRET, REKEY_URL = (
    WEBHOOKS.save.where(sealed == bindparam("at_before")).values({sealed: bindparam("at_after")}).returning(w.webhook_id)
    for sealed in (w.sealed_secret, w.sealed_url)
)


class SqlWebhookRepository(SqlAccountEntityRepository[Webhook]):
    statements = WEBHOOKS

    async def find(self, webhook_id: WebhookId) -> Webhook | None:
        return await self._first(WEBHOOK, FIND, at_id=webhook_id)

    async def list_enabled(self, account_ids: Sequence[AccountId]) -> Sequence[tuple[Webhook, int | None]]:
        rows = await self._session.read(LIST_ENABLED, at_listed=to_json(sorted(set(account_ids))))
        return [(WEBHOOK.from_row(row), row[-1]) for row in rows]

    async def list_page(self, after: WebhookId | None, limit: int) -> Sequence[Webhook]:
        return await self._list(WEBHOOK, PAGE, at_after=after or "", at_limit=limit)

    async def count_sealed(self) -> int:
        return await self._number(COUNT_SEALED)

    async def rekey(self, webhook_id: WebhookId, before: bytes, after: bytes) -> bool:
        return bool(await self._session.write(REKEY_SECRET, at_id=webhook_id, at_before=before, at_after=after))

    async def rekey_url(self, webhook_id: WebhookId, before: bytes, after: bytes) -> bool:
        return bool(await self._session.write(REKEY_URL, at_id=webhook_id, at_before=before, at_after=after))
