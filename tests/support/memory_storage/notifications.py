"""What members want to be told, where, and the notifications that are owed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from domain.kernel.ids import AccountId, ChannelId, DeviceId, MembershipId, UserId
from domain.notifications.model import (
    ChannelErrorCode,
    Notification,
    NotificationChannel,
    NotificationSettings,
    NotificationTopic,
)
from support.memory_storage.tables import Database, Table

NOTIFICATION_SETTINGS: Table[MembershipId, NotificationSettings] = Table("notification_settings")
CHANNELS: Table[ChannelId, NotificationChannel] = Table("notification_channels")
NOTIFICATIONS: Table[int, Notification] = Table("notifications")
SERVICE_SECRETS: Table[str, bytes] = Table("service_secrets")


class MemoryNotificationOutboxRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def get_settings(self, membership_id: MembershipId) -> NotificationSettings | None:
        return self._database.rows(NOTIFICATION_SETTINGS).get(membership_id)

    async def upsert_settings(self, settings: NotificationSettings) -> None:
        self._database.writable_rows(NOTIFICATION_SETTINGS)[settings.membership_id] = settings

    async def list_settings(self, account_id: AccountId) -> Sequence[NotificationSettings]:
        return [each for each in self._database.rows(NOTIFICATION_SETTINGS).values() if each.account_id == account_id]

    async def add_many(self, notifications: Sequence[Notification]) -> None:
        for notification in notifications:
            seq = self._database.next_value("notification")
            self._database.writable_rows(NOTIFICATIONS)[seq] = replace(notification, seq=seq)

    async def delete_offline(self, device_ids: Collection[DeviceId]) -> None:
        rows = self._database.writable_rows(NOTIFICATIONS)
        for seq, each in list(rows.items()):
            if each.device_id in device_ids and each.topic is NotificationTopic.OFFLINE:
                del rows[seq]

    async def list_due(self, now_ms: int, limit: int) -> Sequence[Notification]:
        due = [each for each in self._database.rows(NOTIFICATIONS).values() if each.due_ms <= now_ms]
        return sorted(due, key=lambda each: (each.due_ms, each.seq))[:limit]

    async def next_due_ms(self) -> int | None:
        return min((each.due_ms for each in self._database.rows(NOTIFICATIONS).values()), default=None)

    async def count(self) -> int:
        return len(self._database.rows(NOTIFICATIONS))

    async def postpone(self, seqs: Collection[int], due_ms: int, attempt: int) -> None:
        rows = self._database.writable_rows(NOTIFICATIONS)
        for seq in rows.keys() & set(seqs):
            rows[seq] = replace(rows[seq], due_ms=due_ms, attempt=attempt)

    async def delete(self, seqs: Collection[int]) -> None:
        rows = self._database.writable_rows(NOTIFICATIONS)
        for seq in seqs:
            rows.pop(seq, None)


class MemoryNotificationChannelRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, channel: NotificationChannel) -> None:
        self._database.writable_rows(CHANNELS)[channel.channel_id] = channel

    async def get(self, channel_id: ChannelId) -> NotificationChannel | None:
        return self._database.rows(CHANNELS).get(channel_id)

    async def list_by_member(self, membership_id: MembershipId) -> Sequence[NotificationChannel]:
        found = [each for each in self._database.rows(CHANNELS).values() if each.membership_id == membership_id]
        return sorted(found, key=lambda each: (each.created_ms, each.channel_id))

    async def list_by_account(self, account_id: AccountId) -> Sequence[NotificationChannel]:
        return [each for each in self._database.rows(CHANNELS).values() if each.account_id == account_id]

    async def count_pending(self, account_id: AccountId) -> Mapping[ChannelId, int]:
        own = {each.channel_id for each in await self.list_by_account(account_id)}
        return Counter(each.channel_id for each in self._database.rows(NOTIFICATIONS).values() if each.channel_id in own)

    async def record_sent(self, channel_id: ChannelId, at_ms: int) -> None:
        self._change(channel_id, last_sent_ms=at_ms, last_error=None, last_error_code=None, last_error_ms=None)

    async def record_error(self, channel_id: ChannelId, code: ChannelErrorCode, error: str, at_ms: int) -> None:
        self._change(channel_id, last_error=error, last_error_code=code, last_error_ms=at_ms)

    async def delete(self, channel_id: ChannelId) -> None:
        self._database.writable_rows(CHANNELS).pop(channel_id, None)

    async def suspend_by_user(self, user_id: UserId, at_ms: int) -> int:
        from support.memory_storage.accounts import MEMBERSHIPS

        own = {each.membership_id for each in self._database.rows(MEMBERSHIPS).values() if each.user_id == user_id}
        found = [
            each.channel_id
            for each in self._database.rows(CHANNELS).values()
            if each.membership_id in own and each.suspended_ms is None
        ]
        for channel_id in found:
            self._change(channel_id, suspended_ms=at_ms)
        return len(found)

    async def confirm(self, channel_id: ChannelId) -> None:
        self._change(channel_id, suspended_ms=None)

    async def list_sealed_page(self, after: ChannelId | None, limit: int) -> Sequence[NotificationChannel]:
        rows = self._database.rows(CHANNELS)
        return [rows[of] for of in sorted(rows) if of > (after or "") and rows[of].sealed is not None][:limit]

    async def rekey(self, channel_id: ChannelId, before: bytes, sealed: bytes) -> int:
        found = await self.get(channel_id)
        if found is None or found.sealed != before:
            return 0
        self._change(channel_id, sealed=sealed)
        return 1

    async def count_sealed(self) -> int:
        return sum(each.sealed is not None for each in self._database.rows(CHANNELS).values())

    def _change(self, channel_id: ChannelId, **changes: Any) -> None:
        rows = self._database.writable_rows(CHANNELS)
        if channel_id in rows:
            rows[channel_id] = replace(rows[channel_id], **changes)


class MemoryServiceSecretRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, name: str) -> bytes | None:
        return self._database.rows(SERVICE_SECRETS).get(name)

    async def add_if_absent(self, name: str, sealed: bytes) -> None:
        self._database.writable_rows(SERVICE_SECRETS).setdefault(name, sealed)

    async def list_all(self) -> Sequence[tuple[str, bytes]]:
        return sorted(self._database.rows(SERVICE_SECRETS).items())

    async def rekey(self, name: str, before: bytes, sealed: bytes) -> int:
        if await self.get(name) != before:
            return 0
        self._database.writable_rows(SERVICE_SECRETS)[name] = sealed
        return 1
