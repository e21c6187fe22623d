"""What members want to be told, and the notifications that are owed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import bindparam, delete, func, insert, select, update

from adapters.storage.sql.db_session import POSTGRES, DbSession
from adapters.storage.sql.row_mapper import (
    RowMapper,
    enum_converter,
    from_json,
    json_integer_list,
    json_list,
    to_json,
    upsert,
)
from adapters.storage.sql.tables import notification_settings, notifications
from domain.kernel.ids import AccountId, DeviceId, MembershipId
from domain.notifications.model import Notification, NotificationSettings, NotificationTopic

TOPICS = (lambda topics: to_json([topic.value for topic in topics]), lambda text: tuple(map(NotificationTopic, from_json(text))))
SETTINGS = RowMapper(notification_settings, NotificationSettings, {"topics": TOPICS})
NOTIFICATION = RowMapper(notifications, Notification, {"topic": enum_converter(NotificationTopic)})

s, n = notification_settings.c, notifications.c
GET_SETTINGS = SETTINGS.select().where(s.membership_id == bindparam("at_membership"))
LIST_SETTINGS = SETTINGS.select().where(s.account_id == bindparam("at_account"))
_CHANGED = ("topics", "offline_minutes", "quiet_from_minute", "quiet_to_minute", "timezone", "language")
UPSERT_SETTINGS = upsert(notification_settings, *_CHANGED)
ADD = insert(notifications)
DELETE_OFFLINE = {
    dialect: delete(notifications).where(n.device_id.in_(among), n.topic == NotificationTopic.OFFLINE.value)
    for dialect, among in json_list().items()
}
LIST_DUE = NOTIFICATION.select().where(n.due_ms <= bindparam("at_now")).order_by(n.due_ms, n.seq).limit(bindparam("at_limit"))
LIST_DUE_FOR_UPDATE = LIST_DUE.with_for_update(skip_locked=True)
NEXT_DUE = select(func.min(n.due_ms))
COUNT = select(func.count()).select_from(notifications)
_AMONG = json_integer_list()
POSTPONE = {dialect: update(notifications).where(n.seq.in_(among)) for dialect, among in _AMONG.items()}
DELETE = {dialect: delete(notifications).where(n.seq.in_(among)) for dialect, among in _AMONG.items()}


class SqlNotificationOutboxRepository:
    def __init__(self, session: DbSession) -> None:
        self._session = session

    async def get_settings(self, membership_id: MembershipId) -> NotificationSettings | None:
        return SETTINGS.first_or_none(await self._session.read(GET_SETTINGS, at_membership=membership_id))

    async def upsert_settings(self, settings: NotificationSettings) -> None:
        await self._session.write(UPSERT_SETTINGS[self._session.dialect], **SETTINGS.values(settings))

    async def list_settings(self, account_id: AccountId) -> Sequence[NotificationSettings]:
        return [SETTINGS.from_row(row) for row in await self._session.read(LIST_SETTINGS, at_account=account_id)]

    async def add_many(self, notifications: Sequence[Notification]) -> None:
        rows: list[dict[str, Any]] = [NOTIFICATION.values(notification) for notification in notifications]
        for row in rows:
            del row["seq"]  # the database assigns it
        await self._session.execute_many(ADD, rows)

    async def delete_offline(self, device_ids: Collection[DeviceId]) -> None:
        await self._session.write(DELETE_OFFLINE[self._session.dialect], at_listed=to_json(sorted(device_ids)))

    async def list_due(self, now_ms: int, limit: int) -> Sequence[Notification]:
        statement = LIST_DUE_FOR_UPDATE if self._session.dialect == POSTGRES else LIST_DUE
        return [NOTIFICATION.from_row(row) for row in await self._session.read(statement, at_now=now_ms, at_limit=limit)]

    async def next_due_ms(self) -> int | None:
        due_ms: int | None = (await self._session.read(NEXT_DUE))[0][0]
        return due_ms

    async def count(self) -> int:
        return int((await self._session.read(COUNT))[0][0])

    async def postpone(self, seqs: Collection[int], due_ms: int, attempt: int) -> None:
        listed = to_json(sorted(seqs))
        await self._session.write(POSTPONE[self._session.dialect], at_listed=listed, due_ms=due_ms, attempt=attempt)

    async def delete(self, seqs: Collection[int]) -> None:
        await self._session.write(DELETE[self._session.dialect], at_listed=to_json(sorted(seqs)))
