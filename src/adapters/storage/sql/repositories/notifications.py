"""Where members are told.

What members want to be told, and the notifications that are owed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import bindparam, delete, func, insert, null, select, update

from adapters.storage.sql.mapping import (
    EntityStatements,
    RowMapper,
    SqlEntityRepository,
    SqlRepository,
    enum_converter,
    from_json,
    to_json,
)
from adapters.storage.sql.session import POSTGRES
from adapters.storage.sql.statements import listed, listed_integers, upsert
from adapters.storage.sql.tables import memberships, notification_channels, notification_settings, notifications
from domain.kernel.ids import AccountId, ChannelId, DeviceId, MembershipId, UserId
from domain.notifications.model import (
    ChannelErrorCode,
    Notification,
    NotificationChannel,
    NotificationChannelKind,
    NotificationSettings,
    NotificationTopic,
    UnconditionalTopic,
)

CHANNEL = RowMapper(
    notification_channels,
    NotificationChannel,
    {"kind": enum_converter(NotificationChannelKind), "last_error_code": enum_converter(ChannelErrorCode)},
)
c, n = notification_channels.c, notifications.c

CHANNELS = EntityStatements(CHANNEL, "channel_id")
LIST_BY_MEMBER = CHANNEL.select().where(c.membership_id == bindparam("at_membership")).order_by(c.created_ms, c.channel_id)
LIST_BY_ACCOUNT = CHANNEL.select().where(c.account_id == bindparam("at_account"))
COUNT_PENDING = (
    select(n.channel_id, func.count())
    .join(notification_channels, c.channel_id == n.channel_id)
    .where(c.account_id == bindparam("at_account"))
    .group_by(n.channel_id)
)
RECORD_SENT = CHANNELS.save.values(
    last_error=null(), last_error_code=null(), last_error_ms=null(), last_sent_ms=bindparam("at_ms")
)
SUSPEND_BY_USER = (
    update(notification_channels)
    .where(
        c.suspended_ms.is_(None),
        c.membership_id.in_(select(memberships.c.membership_id).where(memberships.c.user_id == bindparam("at_user"))),
    )
    .values(suspended_ms=bindparam("at_ms"))
    .returning(c.channel_id)
)
_SEALED = c.sealed.is_not(None)
SEALED_PAGE = (
    CHANNEL.select().where(c.channel_id > bindparam("at_after"), _SEALED).order_by(c.channel_id).limit(bindparam("at_limit"))
)
REKEY = CHANNELS.save.where(c.sealed == bindparam("at_before")).returning(c.channel_id)
COUNT_SEALED = select(func.count()).select_from(notification_channels).where(_SEALED)


class SqlNotificationChannelRepository(SqlEntityRepository[NotificationChannel]):
    statements = CHANNELS

    async def list_by_member(self, membership_id: MembershipId) -> Sequence[NotificationChannel]:
        return await self._list(CHANNEL, LIST_BY_MEMBER, at_membership=membership_id)

    async def list_by_account(self, account_id: AccountId) -> Sequence[NotificationChannel]:
        return await self._list(CHANNEL, LIST_BY_ACCOUNT, at_account=account_id)

    async def count_pending(self, account_id: AccountId) -> Mapping[ChannelId, int]:
        return {ChannelId(of): count for of, count in await self._session.read(COUNT_PENDING, at_account=account_id)}

    async def record_sent(self, channel_id: ChannelId, at_ms: int) -> None:
        await self._session.write(RECORD_SENT, at_id=channel_id, at_ms=at_ms)

    async def record_error(self, channel_id: ChannelId, code: ChannelErrorCode, error: str, at_ms: int) -> None:
        await self._session.write(CHANNELS.save, at_id=channel_id, last_error=error, last_error_code=code, last_error_ms=at_ms)

    async def suspend_by_user(self, user_id: UserId, at_ms: int) -> int:
        return await self._count_changed(SUSPEND_BY_USER, at_user=user_id, at_ms=at_ms)

    async def confirm(self, channel_id: ChannelId) -> None:
        await self._session.write(CHANNELS.save, at_id=channel_id, suspended_ms=None)

    async def list_sealed_page(self, after: ChannelId | None, limit: int) -> Sequence[NotificationChannel]:
        return await self._list(CHANNEL, SEALED_PAGE, at_after=after or "", at_limit=limit)

    async def rekey(self, channel_id: ChannelId, before: bytes, sealed: bytes) -> int:
        return await self._count_changed(REKEY, at_id=channel_id, at_before=before, sealed=sealed)

    async def count_sealed(self) -> int:
        return await self._number(COUNT_SEALED)


TOPICS = (lambda topics: to_json([topic.value for topic in topics]), lambda text: tuple(map(NotificationTopic, from_json(text))))


def _topic_of(text: str) -> NotificationTopic | UnconditionalTopic:
    return UnconditionalTopic.SECURITY if text == UnconditionalTopic.SECURITY.value else NotificationTopic(text)


SETTINGS = RowMapper(notification_settings, NotificationSettings, {"topics": TOPICS})
NOTIFICATION = RowMapper(notifications, Notification, {"topic": (str, _topic_of)})

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
