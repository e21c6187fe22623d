"""Ports of the notifications part."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from domain.approvals.ports import ApprovalsTx
from domain.kernel.ids import AccountId, ChannelId, DeviceId, MembershipId, UserId
from domain.notifications.destinations import Destination
from domain.notifications.model import (
    ChannelErrorCode,
    ChannelSendResult,
    Notification,
    NotificationChannel,
    NotificationMessage,
    NotificationSettings,
)


class NotificationOutboxRepository(Protocol):
    async def get_settings(self, membership_id: MembershipId) -> NotificationSettings | None: ...

    async def upsert_settings(self, settings: NotificationSettings) -> None: ...

    async def list_settings(self, account_id: AccountId) -> Sequence[NotificationSettings]:
        """Of all members of an account that have some, in no particular order."""

    async def add_many(self, notifications: Sequence[Notification]) -> None: ...

    async def delete_offline(self, device_ids: Collection[DeviceId]) -> None:
        """What is owed because these devices are offline."""

    async def list_due(self, now_ms: int, limit: int) -> Sequence[Notification]:
        """Earliest first. PostgreSQL locks the rows and skips those that another transaction has locked."""

    async def next_due_ms(self) -> int | None: ...

    async def count(self) -> int: ...

    async def postpone(self, seqs: Collection[int], due_ms: int, attempt: int) -> None: ...

    async def delete(self, seqs: Collection[int]) -> None: ...


class NotificationChannelRepository(Protocol):
    async def add(self, channel: NotificationChannel) -> None: ...

    async def get(self, channel_id: ChannelId) -> NotificationChannel | None: ...

    async def list_by_member(self, membership_id: MembershipId) -> Sequence[NotificationChannel]:
        """Oldest first."""

    async def list_by_account(self, account_id: AccountId) -> Sequence[NotificationChannel]: ...

    async def count_pending(self, account_id: AccountId) -> Mapping[ChannelId, int]:
        """The notifications owed to each channel of the account that is owed some."""

    async def record_sent(self, channel_id: ChannelId, at_ms: int) -> None:
        """The last error is over."""

    async def record_error(self, channel_id: ChannelId, code: ChannelErrorCode, error: str, at_ms: int) -> None: ...

    async def suspend_by_user(self, user_id: UserId, at_ms: int) -> int:
        """All channels of all memberships of this user that are not suspended yet; their number."""

    async def confirm(self, channel_id: ChannelId) -> None:
        """It is not suspended any more."""

    async def delete(self, channel_id: ChannelId) -> None: ...

    async def list_sealed_page(self, after: ChannelId | None, limit: int) -> Sequence[NotificationChannel]:
        """Those with a secret, by id, for the re-encryption after a key rotation."""

    async def rekey(self, channel_id: ChannelId, before: bytes, sealed: bytes) -> int:
        """Replace the sealed destination if it is still `before`; the number of changed rows."""

    async def count_sealed(self) -> int: ...


class ServiceSecretRepository(Protocol):
    """Secrets of the installation itself, sealed and bound to their name."""

    async def get(self, name: str) -> bytes | None: ...

    async def add_if_absent(self, name: str, sealed: bytes) -> None: ...

    async def list_all(self) -> Sequence[tuple[str, bytes]]: ...

    async def rekey(self, name: str, before: bytes, sealed: bytes) -> int: ...


class NotificationSender(Protocol):
    async def send_many(self, outgoing: Sequence[tuple[Destination, NotificationMessage]]) -> Sequence[ChannelSendResult]:
        """Sends all at the same time; one result for each, in their order. Never raises for a receiver that fails."""


class PushKeyCodec(Protocol):
    """Port: P-256 key pairs for VAPID (RFC 8292)."""

    def generate(self) -> str:
        """A new private key as text."""

    def public_key(self, private_key: str) -> str:
        """The uncompressed point in base64url, for `applicationServerKey` of a browser."""

    def are_browser_keys(self, p256dh: str, auth: str) -> bool:
        """Whether these can be the keys of a subscription (RFC 8291, 3): a point of P-256 and 16 bytes, in base64url."""


class NotificationsTx(ApprovalsTx, Protocol):
    """The repositories of this part and of those below it."""

    @property
    def notifications(self) -> NotificationOutboxRepository: ...

    @property
    def notification_channels(self) -> NotificationChannelRepository: ...

    @property
    def service_secrets(self) -> ServiceSecretRepository: ...
