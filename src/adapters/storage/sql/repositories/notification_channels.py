"""Where members are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import bindparam, delete, func, insert, null, select, update

from adapters.storage.sql.db_session import DbSession
from adapters.storage.sql.row_mapper import RowMapper, enum_converter
from adapters.storage.sql.tables import notification_channels, notifications
from domain.kernel.ids import AccountId, ChannelId, MembershipId
from domain.notifications.model import ChannelErrorCode, ChannelKind, NotificationChannel

CHANNEL = RowMapper(
    notification_channels,
    NotificationChannel,
    {"kind": enum_converter(ChannelKind), "last_error_code": enum_converter(ChannelErrorCode)},
)
c, n = notification_channels.c, notifications.c

_ID = c.channel_id == bindparam("at_id")
ADD = insert(notification_channels)
GET = CHANNEL.select().where(_ID)
LIST_BY_MEMBER = CHANNEL.select().where(c.membership_id == bindparam("at_membership")).order_by(c.created_ms, c.channel_id)
LIST_BY_ACCOUNT = CHANNEL.select().where(c.account_id == bindparam("at_account"))
COUNT_PENDING = (
    select(n.channel_id, func.count())
    .join(notification_channels, c.channel_id == n.channel_id)
    .where(c.account_id == bindparam("at_account"))
    .group_by(n.channel_id)
)
UPDATE = update(notification_channels).where(_ID)
RECORD_SENT = UPDATE.values(last_error=null(), last_error_code=null(), last_error_ms=null(), last_sent_ms=bindparam("at_ms"))
DELETE = delete(notification_channels).where(_ID)
_SEALED = c.sealed.is_not(None)
SEALED_PAGE = (
    CHANNEL.select().where(c.channel_id > bindparam("at_after"), _SEALED).order_by(c.channel_id).limit(bindparam("at_limit"))
)
REKEY = UPDATE.where(c.sealed == bindparam("at_before")).returning(c.channel_id)
COUNT_SEALED = select(func.count()).select_from(notification_channels).where(_SEALED)


class SqlNotificationChannelRepository:
    def __init__(self, session: DbSession) -> None:
        self._session = session

    async def add(self, channel: NotificationChannel) -> None:
        await self._session.write(ADD, **CHANNEL.values(channel))

    async def get(self, channel_id: ChannelId) -> NotificationChannel | None:
        return CHANNEL.first_or_none(await self._session.read(GET, at_id=channel_id))

    async def list_by_member(self, membership_id: MembershipId) -> Sequence[NotificationChannel]:
        return [CHANNEL.from_row(row) for row in await self._session.read(LIST_BY_MEMBER, at_membership=membership_id)]

    async def list_by_account(self, account_id: AccountId) -> Sequence[NotificationChannel]:
        return [CHANNEL.from_row(row) for row in await self._session.read(LIST_BY_ACCOUNT, at_account=account_id)]

    async def count_pending(self, account_id: AccountId) -> Mapping[ChannelId, int]:
        return {ChannelId(of): count for of, count in await self._session.read(COUNT_PENDING, at_account=account_id)}

    async def record_sent(self, channel_id: ChannelId, at_ms: int) -> None:
        await self._session.write(RECORD_SENT, at_id=channel_id, at_ms=at_ms)

    async def record_error(self, channel_id: ChannelId, code: ChannelErrorCode, error: str, at_ms: int) -> None:
        await self._session.write(UPDATE, at_id=channel_id, last_error=error, last_error_code=code, last_error_ms=at_ms)

    async def delete(self, channel_id: ChannelId) -> None:
        await self._session.write(DELETE, at_id=channel_id)

    async def list_sealed_page(self, after: ChannelId | None, limit: int) -> Sequence[NotificationChannel]:
        return [CHANNEL.from_row(row) for row in await self._session.read(SEALED_PAGE, at_after=after or "", at_limit=limit)]

    async def rekey(self, channel_id: ChannelId, before: bytes, sealed: bytes) -> int:
        return len(await self._session.write(REKEY, at_id=channel_id, at_before=before, sealed=sealed))

    async def count_sealed(self) -> int:
        return int((await self._session.read(COUNT_SEALED))[0][0])
