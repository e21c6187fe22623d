"""What members want to be told, and the notifications that are owed."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import bindparam, delete, func, insert, select, update

from adapters.storage.sql.entity_repository import SqlRepository
from adapters.storage.sql.repositories.notification_channels import n
from adapters.storage.sql.row_mapper import RowMapper, enum_converter, from_json, to_json
from adapters.storage.sql.sql_session_port import POSTGRES
from adapters.storage.sql.statement_builders import listed, listed_integers, upsert
from adapters.storage.sql.tables import notification_settings, notifications
from domain.kernel.ids import AccountId, DeviceId, MembershipId
from domain.notifications.model import Notification, NotificationSettings, NotificationTopic

TOPICS = (lambda topics: to_json([topic.value for topic in topics]), lambda text: tuple(map(NotificationTopic, from_json(text))))
SETTINGS = RowMapper(notification_settings, NotificationSettings, {"topics": TOPICS})
NOTIFICATION = RowMapper(notifications, Notification, {"topic": enum_converter(NotificationTopic)})

s = notification_settings.c
GET_SETTINGS = SETTINGS.select().where(s.membership_id == bindparam("at_membership"))
LIST_SETTINGS = SETTINGS.select().where(s.account_id == bindparam("at_account"))
_CHANGED = ("topics", "offline_minutes", "quiet_from_minute", "quiet_to_minute", "timezone", "language")
UPSERT_SETTINGS = upsert(notification_settings, *_CHANGED)
ADD = insert(notifications)
DELETE_OFFLINE = delete(notifications).where(n.device_id.in_(listed()), n.topic == NotificationTopic.OFFLINE.value)
LIST_DUE = NOTIFICATION.select().where(n.due_ms <= bindparam("at_now")).order_by(n.due_ms, n.seq).limit(bindparam("at_limit"))
LIST_DUE_FOR_UPDATE = LIST_DUE.with_for_update(skip_locked=True)
NEXT_DUE = select(func.min(n.due_ms))
COUNT = select(func.count()).select_from(notifications)
_AMONG = n.seq.in_(listed_integers())
POSTPONE = update(notifications).where(_AMONG)
DELETE = delete(notifications).where(_AMONG)


class SqlNotificationOutboxRepository(SqlRepository):
    async def get_settings(self, membership_id: MembershipId) -> NotificationSettings | None:
        return await self._first(SETTINGS, GET_SETTINGS, at_membership=membership_id)

    async def upsert_settings(self, settings: NotificationSettings) -> None:
        await self._session.write(UPSERT_SETTINGS, **SETTINGS.values(settings))

    async def list_settings(self, account_id: AccountId) -> Sequence[NotificationSettings]:
        return await self._list(SETTINGS, LIST_SETTINGS, at_account=account_id)

    async def add_many(self, notifications: Sequence[Notification]) -> None:
        await self._session.execute_many(ADD, [NOTIFICATION.values(each, "seq") for each in notifications])

    async def delete_offline(self, device_ids: Collection[DeviceId]) -> None:
        await self._session.write(DELETE_OFFLINE, at_listed=to_json(sorted(device_ids)))

    async def list_due(self, now_ms: int, limit: int) -> Sequence[Notification]:
        statement = LIST_DUE_FOR_UPDATE if self._session.dialect == POSTGRES else LIST_DUE
        return await self._list(NOTIFICATION, statement, at_now=now_ms, at_limit=limit)

    async def next_due_ms(self) -> int | None:
        return await self._number_or_none(NEXT_DUE)

    async def count(self) -> int:
        return await self._number(COUNT)

    async def postpone(self, seqs: Collection[int], due_ms: int, attempt: int) -> None:
        await self._session.write(POSTPONE, at_listed=to_json(sorted(seqs)), due_ms=due_ms, attempt=attempt)

    async def delete(self, seqs: Collection[int]) -> None:
        await self._session.write(DELETE, at_listed=to_json(sorted(seqs)))
