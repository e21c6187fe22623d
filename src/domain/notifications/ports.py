"""Ports of the notifications part."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from domain.accounts.ports import HasMemberships, HasUsers
from domain.kernel.ids import AccountId, DeviceId, MembershipId
from domain.kernel.unit_of_work import Transaction
from domain.notifications.model import Notification, NotificationSettings


class NotificationRepository(Protocol):
    async def get_settings(self, membership_id: MembershipId) -> NotificationSettings | None: ...

    async def upsert_settings(self, settings: NotificationSettings) -> None: ...

    async def list_settings(self, account_id: AccountId) -> Sequence[NotificationSettings]:
        """Of all members of an account that have some, in no particular order."""
        ...

    async def add_many(self, notifications: Sequence[Notification]) -> None: ...

    async def delete_offline(self, device_ids: Collection[DeviceId]) -> None:
        """What is owed because these devices are offline."""
        ...

    async def list_due(self, now_ms: int, limit: int) -> Sequence[Notification]:
        """Earliest first. PostgreSQL locks the rows and skips those that another transaction has locked."""
        ...

    async def next_due_ms(self) -> int | None: ...

    async def postpone(self, seq: int, due_ms: int, attempt: int) -> None: ...

    async def delete(self, seq: int) -> None: ...


class HasNotifications(Protocol):
    @property
    def notifications(self) -> NotificationRepository: ...


class NotificationTx(Transaction, HasMemberships, HasNotifications, HasUsers, Protocol): ...
