"""What a person is told by mail, and the mails that are owed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from domain.kernel.ids import AccountId, DeviceId, MembershipId

DEFAULT_OFFLINE_MINUTES = 5
MAX_OFFLINE_MINUTES = 7 * 24 * 60


class NotificationTopic(StrEnum):
    APPROVALS = "approvals"
    OFFLINE = "offline"
    RULES = "rules"
    WEBHOOKS = "webhooks"
    DEVICES = "devices"


TOPIC_OF_EVENT = {
    "approval_requested": NotificationTopic.APPROVALS,
    "device_offline": NotificationTopic.OFFLINE,
    "rule_disabled": NotificationTopic.RULES,
    "webhook_disabled": NotificationTopic.WEBHOOKS,
    "device_clock_skew": NotificationTopic.DEVICES,
    "device_message_dropped": NotificationTopic.DEVICES,
}


@dataclass(frozen=True, slots=True)
class NotificationSettings:
    """Of a member. No topic: no mail. A device counts as offline after `offline_minutes`. In the quiet hours (minutes of the day
    in `timezone`, past midnight if the end is earlier) mails wait for their end."""

    membership_id: MembershipId
    account_id: AccountId
    topics: tuple[NotificationTopic, ...] = ()
    offline_minutes: int = DEFAULT_OFFLINE_MINUTES
    quiet_from_minute: int | None = None
    quiet_to_minute: int | None = None
    timezone: str = "UTC"


@dataclass(frozen=True, slots=True)
class Notification:
    """A mail that is owed from `due_ms` (steady time) on. `seq` is 0 until it is stored."""

    seq: int
    membership_id: MembershipId
    topic: NotificationTopic
    device_id: DeviceId | None
    subject: str
    text: str
    due_ms: int
    attempt: int = 0
