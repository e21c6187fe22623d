"""What members want to be told by mail, and the mails that are owed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from domain.kernel.ids import AccountId, DeviceId, MembershipId
from domain.notifications.model import Notification, NotificationSettings, NotificationTopic
from support.memory_storage.tables import Database, Table

NOTIFICATION_SETTINGS: Table[MembershipId, NotificationSettings] = Table("notification_settings")
NOTIFICATIONS: Table[int, Notification] = Table("notifications")


class MemoryNotificationRepository:
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

    async def postpone(self, seq: int, due_ms: int, attempt: int) -> None:
        rows = self._database.writable_rows(NOTIFICATIONS)
        if seq in rows:
            rows[seq] = replace(rows[seq], due_ms=due_ms, attempt=attempt)

    async def delete(self, seq: int) -> None:
        self._database.writable_rows(NOTIFICATIONS).pop(seq, None)
