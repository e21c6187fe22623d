"""What a person wants to be told, where, and at which hours; and the notifications that are owed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from domain.kernel.clock import SECOND_MS
from domain.kernel.ids import AccountId, ApprovalId, ChannelId, DeviceId, MembershipId

DEFAULT_OFFLINE_MINUTES = 5
MAX_OFFLINE_MINUTES = 7 * 24 * 60
SEND_TIMEOUT_S = 10.0
"""Of one attempt."""
MAIL_FOOTER = "You chose this mail on your page in Latchboard."
SECURITY_FOOTER = "Was it not you? Change your password and end what was made: both are on your page in Latchboard."


class NotificationTopic(StrEnum):
    APPROVALS = "APPROVALS"
    OFFLINE = "OFFLINE"
    RULES = "RULES"
    WEBHOOKS = "WEBHOOKS"
    DEVICES = "DEVICES"
    DEAD_LETTERS = "DEAD_LETTERS"


class UnconditionalTopic(StrEnum):
    """What a person is told on every channel, whatever they have chosen and at any hour."""

    SECURITY = "SECURITY"


TOPIC_OF_EVENT = {
    "approval_requested": NotificationTopic.APPROVALS,
    "device_offline": NotificationTopic.OFFLINE,
    "rule_disabled": NotificationTopic.RULES,
    "webhook_disabled": NotificationTopic.WEBHOOKS,
    "device_clock_skew": NotificationTopic.DEVICES,
    "device_message_dropped": NotificationTopic.DEVICES,
    "device_refused": NotificationTopic.DEVICES,
    "device_message_set_aside": NotificationTopic.DEAD_LETTERS,
}


OWN_AUTHORITY_EVENTS = {
    "channel_added": "a channel was added",
    "channel_confirmed": "a channel was confirmed",
    "channel_deleted": "a channel was deleted",
    "key_created": "an API key was created",
    "key_enabled": "an API key was enabled or extended",
    "key_rotated": "an API key got a new secret",
    "grant_created": "a grant was created",
    "grant_updated": "a grant was changed",
    "webhook_created": "a webhook was created",
    "webhook_updated": "a webhook was changed",
    "webhook_secret_rotated": "the secret of a webhook was replaced",
    "service_session_created": "a service session was created",
    "provisioning_code_created": "a provisioning code was created",
    "member_invited": "a member was invited",
    "member_changed": "a member was changed",
    "passkey_added": "a passkey was added",
    "second_factor_enabled": "a second factor was set up",
    "second_factor_removed": "a second factor was removed",
    "recovery_codes_renewed": "recovery codes were replaced",
    "credentials_generated": "credentials were replaced",
}
"""The events by which a member makes something that acts without them, or changes who may act; told to that member, so that a
thief of their session cannot do it unseen. The credentials of a device: where they replace others."""


class NotificationChannelKind(StrEnum):
    MAIL = "MAIL"
    WEB_PUSH = "WEB_PUSH"
    NTFY = "NTFY"
    TELEGRAM = "TELEGRAM"


class ChannelErrorCode(StrEnum):
    """Why a channel did not take a message: what its owner can do about it, in their own language."""

    NO_RESPONSE = "NO_RESPONSE"
    REFUSED = "REFUSED"
    GONE = "GONE"
    RECEIVER_ERROR = "RECEIVER_ERROR"
    MAIL_FAILED = "MAIL_FAILED"
    NOT_ACCEPTED = "NOT_ACCEPTED"
    """Any of those above, for a member who may not see which (`without_cause`)."""
    SECRET_UNREADABLE = "SECRET_UNREADABLE"  # noqa: S105 - a code
    INTERNAL_ERROR = "INTERNAL_ERROR"


@dataclass(frozen=True, slots=True)
class NotificationSettings:
    """Of a member. No topic: no notification. A device counts as offline after `offline_minutes`. In the quiet hours (minutes of
    the day in `timezone`, past midnight if the end is earlier) notifications wait for their end, on every channel. `language`:
    that of the messages, an ISO 639 code; English where there is no text in it."""

    membership_id: MembershipId
    account_id: AccountId
    topics: tuple[NotificationTopic, ...] = ()
    offline_minutes: int = DEFAULT_OFFLINE_MINUTES
    quiet_from_minute: int | None = None
    quiet_to_minute: int | None = None
    timezone: str = "UTC"
    language: str = "en"


def quiet_until_ms(settings: NotificationSettings, now_ms: int) -> int | None:
    """The end of the quiet hours (Unix ms) if `now_ms` lies in them, else None."""
    start, end = settings.quiet_from_minute, settings.quiet_to_minute
    if start is None or end is None or start == end:
        return None
    now = datetime.fromtimestamp(now_ms / SECOND_MS, ZoneInfo(settings.timezone))
    minute = now.hour * 60 + now.minute
    is_quiet = start <= minute < end if start < end else minute >= start or minute < end
    if not is_quiet:
        return None
    ends = now.replace(hour=end // 60, minute=end % 60, second=0, microsecond=0)
    if end <= minute:
        ends += timedelta(days=1)
    return int(ends.timestamp()) * SECOND_MS


@dataclass(frozen=True, slots=True)
class NotificationChannel:
    """Where a member is told. `sealed` has the destination (`destinations.py`); None for mail, which goes to the user's
    present address. `target` is what its owner sees of the destination: no secret."""

    channel_id: ChannelId
    membership_id: MembershipId
    account_id: AccountId
    kind: NotificationChannelKind
    name: str
    target: str
    sealed: bytes | None = field(repr=False)
    created_ms: int
    last_sent_ms: int | None = None
    last_error: str | None = None
    last_error_code: ChannelErrorCode | None = None
    last_error_ms: int | None = None
    suspended_ms: int | None = None
    """Since when nothing is sent to it, because the password was changed or all sessions were signed out; until its owner
    confirms it."""


@dataclass(frozen=True, slots=True)
class Notification:
    """It is owed to one channel from `due_ms` (steady time) on. `seq` is 0 until it is stored."""

    seq: int
    channel_id: ChannelId
    topic: NotificationTopic | UnconditionalTopic
    device_id: DeviceId | None
    approval_id: ApprovalId | None
    subject: str
    text: str
    due_ms: int
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class NotificationMessage:
    """What is sent. `link`: the page that it is about. `tag`: a later message with the same tag replaces this one where the
    channel can do that. After `ttl_s` seconds it is not worth showing any more."""

    title: str
    text: str
    link: str
    tag: str
    ttl_s: int
    is_urgent: bool = False
    mail_footer: str = MAIL_FOOTER


class NotificationSendOutcome(StrEnum):
    SENT = "sent"
    FAILED = "failed"
    """It may work later."""
    REFUSED = "refused"
    """The receiver refuses it for good, such as a wrong token."""
    GONE = "gone"
    """The receiver says that the destination does not exist any more."""


NOT_ACCEPTED = "The receiver did not accept it. Check its address, topic and token, or ask who runs it."
_CAUSES = frozenset(
    {ChannelErrorCode.NO_RESPONSE, ChannelErrorCode.REFUSED, ChannelErrorCode.GONE, ChannelErrorCode.RECEIVER_ERROR}
)
_KINDS_WITH_ADDRESS = frozenset({NotificationChannelKind.NTFY, NotificationChannelKind.WEB_PUSH})


def without_cause(
    kind: NotificationChannelKind, code: ChannelErrorCode | None, error: str | None
) -> tuple[ChannelErrorCode | None, str | None]:
    """The same for a refused, a closed and a silent port: whoever chooses the address learns nothing of the machines there."""
    if kind in _KINDS_WITH_ADDRESS and code in _CAUSES:
        return ChannelErrorCode.NOT_ACCEPTED, NOT_ACCEPTED
    return code, error


@dataclass(frozen=True, slots=True)
class ChannelSendResult:
    """`code` and `error` (a sentence with the details): None and empty exactly for SENT. `retry_after_s`: how long the receiver
    wants to be left alone."""

    outcome: NotificationSendOutcome
    code: ChannelErrorCode | None = None
    error: str = ""
    retry_after_s: int | None = None
