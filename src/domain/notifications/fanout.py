"""What an event owes: a notification to each channel of the members who chose its topic, in the event's own transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from domain.approvals.model import ApprovalStatus
from domain.events.model import APPROVAL_REQUESTED, DEVICE_OFFLINE, DEVICE_ONLINE, TELEMETRY, Event
from domain.kernel.clock import MINUTE_MS, SECOND_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.ids import AccountId, ApprovalId, ChannelId, UserId
from domain.notifications.model import (
    OWN_AUTHORITY_EVENTS,
    TOPIC_OF_EVENT,
    Notification,
    NotificationChannel,
    NotificationSettings,
    UnconditionalTopic,
)
from domain.notifications.ports import NotificationsTx

MAX_PENDING_PER_CHANNEL = 500
"""More than a person reads. What comes on top is dropped and counted, so that a fleet that goes offline fills no table."""
REQUESTS_LOOKED_AT = 100
UNDECIDED = (ApprovalStatus.PENDING, ApprovalStatus.WITHDRAWN)
GATHER_MS = 15 * SECOND_MS
"""The first request for approval of an asker is told at once; what the same asker wants so soon after it is told together."""
SUBJECTS = {
    "rule_disabled": "rule disabled",
    "webhook_disabled": "webhook disabled",
    "device_clock_skew": "clock skew",
    "device_message_dropped": "message dropped",
    "device_refused": "device refused",
    "device_message_set_aside": "message set aside",
}
USER_PREFIX = "user:"
"""Of the source of an event that a person caused (`SessionCaller.label`)."""
OFFLINE_ENDS = frozenset({DEVICE_ONLINE, "device_deleted"})


@service
class NotificationFanout:
    """Implements `TransactionEventObserver`. `wake`: the worker has something to send."""

    clock: Clock
    wake: Callable[[], None]
    dropped: int = field(default=0, init=False)
    """Not written because too many were owed to their channel."""

    async def on_events(self, tx: NotificationsTx, events: Sequence[Event]) -> None:
        if not events or events[0].kind == TELEMETRY:
            return  # telemetry is published in batches of its own
        ended = {event.device_id for event in events if event.kind in OFFLINE_ENDS and event.device_id is not None}
        if ended:
            await tx.notifications.delete_offline(ended)
        wanted = [event for event in events if event.kind in TOPIC_OF_EVENT]
        pending: list[Notification] = []
        for account_id in {event.account_id for event in wanted}:
            pending += await self._build(tx, account_id, [event for event in wanted if event.account_id == account_id])
        for account_id in {event.account_id for event in events if is_of_own_authority(event)}:
            own = [event for event in events if event.account_id == account_id and is_of_own_authority(event)]
            pending += await self._build_own(tx, account_id, own)
        if pending:
            await tx.notifications.add_many(pending)
            tx.after_commit(self.wake)

    async def _build(self, tx: NotificationsTx, account_id: AccountId, events: Sequence[Event]) -> list[Notification]:
        settings = {each.membership_id: each for each in await tx.notifications.list_settings(account_id) if each.topics}
        if not settings:
            return []
        channels = await tx.notification_channels.list_by_account(account_id)
        delays_ms = [await self._gathering_ms(tx, event) for event in events]
        built = [
            self._notification(event, settings[channel.membership_id], channel, delay_ms)
            for event, delay_ms in zip(events, delays_ms, strict=True)
            for channel in channels
            if channel.suspended_ms is None
            and channel.membership_id in settings
            and TOPIC_OF_EVENT[event.kind] in settings[channel.membership_id].topics
        ]
        return self._within_bounds(built, await tx.notification_channels.count_pending(account_id)) if built else []

    async def _gathering_ms(self, tx: NotificationsTx, event: Event) -> int:
        """How long a request waits for others of its asker: until one moment for all of them, so that they are one message."""
        if event.kind != APPROVAL_REQUESTED:
            return 0
        approval = await tx.approvals.get(event.account_id, ApprovalId(str(event.payload["approvalId"])))
        if approval is None:
            return 0
        asker = approval.requested_by
        others = await tx.approvals.list_newest(event.account_id, limit=REQUESTS_LOOKED_AT)
        is_first = not any(
            abs(approval.created_ms - other.created_ms) < GATHER_MS
            for other in others
            if other.approval_id != approval.approval_id and other.requested_by.actor == asker.actor and other.status in UNDECIDED
        )
        return 0 if is_first else GATHER_MS - self.clock.steady_ms() % GATHER_MS

    async def _build_own(self, tx: NotificationsTx, account_id: AccountId, events: Sequence[Event]) -> list[Notification]:
        """To whoever caused the event, on all channels that are older than it."""
        channels = [each for each in await tx.notification_channels.list_by_account(account_id) if each.suspended_ms is None]
        if not channels:
            return []
        built = []
        for event in events:
            user_id = UserId(event.source.removeprefix(USER_PREFIX))
            memberships = {each.membership_id for each in await tx.memberships.list_by_user(user_id)}
            built += [
                self._own_notification(event, channel)
                for channel in channels
                if channel.membership_id in memberships and channel.channel_id != event.payload.get("channelId")
            ]
        return self._within_bounds(built, await tx.notification_channels.count_pending(account_id)) if built else []

    def _own_notification(self, event: Event, channel: NotificationChannel) -> Notification:
        return Notification(
            seq=0,
            channel_id=channel.channel_id,
            topic=UnconditionalTopic.SECURITY,
            device_id=event.device_id,
            approval_id=None,
            subject=f"{event.device_name or 'Latchboard'}: {OWN_AUTHORITY_EVENTS[event.kind]}",
            text=event.description,
            due_ms=self.clock.steady_ms(),
        )

    def _within_bounds(self, built: Sequence[Notification], pending: Mapping[ChannelId, int]) -> list[Notification]:
        counts = dict(pending)
        kept = []
        for each in built:
            counts[each.channel_id] = counts.get(each.channel_id, 0) + 1
            if counts[each.channel_id] <= MAX_PENDING_PER_CHANNEL:
                kept.append(each)
        self.dropped += len(built) - len(kept)
        return kept

    def _notification(
        self, event: Event, settings: NotificationSettings, channel: NotificationChannel, gathering_ms: int
    ) -> Notification:
        delay_ms = settings.offline_minutes * MINUTE_MS if event.kind == DEVICE_OFFLINE else gathering_ms
        return Notification(
            seq=0,
            channel_id=channel.channel_id,
            topic=TOPIC_OF_EVENT[event.kind],
            device_id=event.device_id,
            approval_id=ApprovalId(str(event.payload["approvalId"])) if event.kind == APPROVAL_REQUESTED else None,
            subject=f"{event.device_name or 'Latchboard'}: {_subject(event, settings)}",
            text=event.description,
            due_ms=self.clock.steady_ms() + delay_ms,
        )


def is_of_own_authority(event: Event) -> bool:
    """Whether a person is told of what they did themselves: a thief of their session might have done it."""
    if event.kind not in OWN_AUTHORITY_EVENTS or not event.source.startswith(USER_PREFIX):
        return False
    return event.kind != "credentials_generated" or event.payload.get("rotated") is True


def _subject(event: Event, settings: NotificationSettings) -> str:
    if event.kind == APPROVAL_REQUESTED:
        return "a command waits for approval"
    if event.kind == DEVICE_OFFLINE:
        return f"offline for {settings.offline_minutes} min"
    return SUBJECTS[event.kind]
