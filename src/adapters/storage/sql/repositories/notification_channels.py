"""Where members are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import bindparam, func, null, select

from adapters.storage.sql.entity_repository import EntityStatements, SqlEntityRepository
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

    async def list_sealed_page(self, after: ChannelId | None, limit: int) -> Sequence[NotificationChannel]:
        return await self._list(CHANNEL, SEALED_PAGE, at_after=after or "", at_limit=limit)

    async def rekey(self, channel_id: ChannelId, before: bytes, sealed: bytes) -> int:
        return await self._count_changed(REKEY, at_id=channel_id, at_before=before, sealed=sealed)

    async def count_sealed(self) -> int:
        return await self._number(COUNT_SEALED)
