"""Sends what is owed.

A notification is claimed by postponing it before it is sent, so that of several instances one sends it, and a crash in between
sends it again: at least once. Whether the member may still be told is decided when it is sent. A request for approval that has
been decided meanwhile is not sent any more. Several notifications of a channel become one message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from domain.accounts.model import Membership
from domain.accounts.ports import Translator
from domain.approvals.links import LINK_TTL_MS, ApprovalLinkCodec
from domain.approvals.model import Approval, ApprovalStatus, is_own_request
from domain.kernel.caller import Role
from domain.kernel.clock import DAY_MS, MINUTE_MS, SECOND_MS, Clock, Now
from domain.kernel.dataclasses import service
from domain.kernel.errors import SecretUnreadable
from domain.kernel.ports import Vault
from domain.kernel.unit_of_work import UnitOfWork
from domain.notifications import model
from domain.notifications.destinations import Destination, NtfyDestination, open_destination
from domain.notifications.model import (
    MAIL_FOOTER,
    SECURITY_FOOTER,
    ChannelErrorCode,
    ChannelSendResult,
    Notification,
    NotificationChannel,
    NotificationChannelKind,
    NotificationMessage,
    NotificationSendOutcome,
    NotificationTopic,
    UnconditionalTopic,
)
from domain.notifications.ports import NotificationSender, NotificationsTx
from domain.notifications.settings import record_result

RETRY_PAUSES_MS = tuple(minutes * MINUTE_MS for minutes in (1, 5, 15, 60, 240))
"""After these pauses a notification that could not be sent is sent again; then it is given up."""
BATCH = 100
QUIET_CHECK_MS = 5 * MINUTE_MS
"""Quiet hours are by the wall clock, which may be set meanwhile: what waits for their end is looked at so often."""
MAX_LINES = 20
"""Of a message about many; what is more is counted."""
GIVEN_UP = "given_up"
"""After the last attempt."""
UNSENT_OUTCOMES = (NotificationSendOutcome.FAILED, NotificationSendOutcome.REFUSED, NotificationSendOutcome.GONE, GIVEN_UP)


@dataclass(frozen=True, slots=True)
class _ClaimedNotifications:
    channel: NotificationChannel
    group: Sequence[Notification]
    destination: Destination
    message: NotificationMessage

    @property
    def seqs(self) -> list[int]:
        return [each.seq for each in self.group]


@service
class NotificationDeliveryService:
    uow: UnitOfWork[NotificationsTx]
    clock: Clock
    vault: Vault
    sender: NotificationSender
    links: ApprovalLinkCodec
    translator: Translator
    public_url: str
    sent_by_channel: dict[str, float] = field(default_factory=lambda: dict.fromkeys(NotificationChannelKind, 0), init=False)
    unsent_by_outcome: dict[str, float] = field(default_factory=lambda: dict.fromkeys(UNSENT_OUTCOMES, 0), init=False)
    pending: int = field(default=0, init=False)
    """How many were owed when last looked at."""

    async def send_due(self) -> bool:
        """Send a batch of what is due. True if there may be more. What fails is sent again later."""
        now = Now.of(self.clock)
        async with self.uow.write(caller=None) as tx:
            due = await tx.notifications.list_due(now.steady_ms, BATCH)
            claimed = [
                one
                for channel_group in _grouped(due)
                for group in await _by_asker(tx, channel_group)
                if (one := await self._claim(tx, group, now)) is not None
            ]
        if claimed:
            results = await self.sender.send_many([(one.destination, one.message) for one in claimed])
            async with self.uow.write(caller=None) as tx:
                for one, result in zip(claimed, results, strict=True):
                    await self._finish(tx, one, result)
        return len(due) == BATCH

    async def next_due_ms(self) -> int | None:
        async with self.uow.read() as tx:
            self.pending = await tx.notifications.count()
            return await tx.notifications.next_due_ms()

    async def _claim(self, tx: NotificationsTx, group: Sequence[Notification], now: Now) -> _ClaimedNotifications | None:
        """None if it is dropped or has to wait."""
        first, seqs = group[0], [each.seq for each in group]
        channel = await tx.notification_channels.get(first.channel_id)
        membership = None if channel is None else await tx.memberships.get(channel.membership_id)
        settings = None if channel is None else await tx.notifications.get_settings(channel.membership_id)
        if channel is None or membership is None or channel.suspended_ms is not None:
            await tx.notifications.delete(seqs)
            return None
        if first.topic is UnconditionalTopic.SECURITY:
            language = "en" if settings is None else settings.language
            return await self._prepare(tx, channel, membership, group, (), language, now)
        if settings is None or first.topic not in settings.topics:
            await tx.notifications.delete(seqs)
            return None
        approvals: Sequence[Approval] = ()
        if first.topic is NotificationTopic.APPROVALS:
            found = [(each, await _find_decidable(tx, each, membership, now.wall_ms)) for each in group]
            if over := [each.seq for each, approval in found if approval is None]:
                await tx.notifications.delete(over)
            group = [each for each, approval in found if approval is not None]
            approvals = [approval for _, approval in found if approval is not None]
            if not group:
                return None
            seqs = [each.seq for each in group]
        quiet_until_ms = model.quiet_until_ms(settings, now.wall_ms)
        if quiet_until_ms is not None:
            pause_ms = min(quiet_until_ms - now.wall_ms, QUIET_CHECK_MS)
            await tx.notifications.postpone(seqs, now.steady_ms + pause_ms, first.attempt)
            return None
        return await self._prepare(tx, channel, membership, group, approvals, settings.language, now)

    async def _prepare(
        self,
        tx: NotificationsTx,
        channel: NotificationChannel,
        membership: Membership,
        group: Sequence[Notification],
        approvals: Sequence[Approval],
        language: str,
        now: Now,
    ) -> _ClaimedNotifications | None:
        attempt, seqs = max(each.attempt for each in group), [each.seq for each in group]
        if attempt >= len(RETRY_PAUSES_MS):
            self.unsent_by_outcome[GIVEN_UP] += len(group)
            await tx.notifications.delete(seqs)
            return None
        user = await tx.users.get(membership.user_id)
        await tx.notifications.postpone(seqs, now.steady_ms + RETRY_PAUSES_MS[attempt], attempt + 1)
        try:
            destination = open_destination(self.vault, channel, "" if user is None else user.email)
        except SecretUnreadable as error:
            code = ChannelErrorCode.SECRET_UNREADABLE
            await tx.notification_channels.record_error(channel.channel_id, code, error.message, now.wall_ms)
            return None
        message = _message_of(group, self.public_url, lambda text: self.translator.translate(text, language))
        if len(approvals) == 1:
            message = await self._with_link(tx, message, approvals[0], membership, destination, now.wall_ms)
        elif approvals:
            message = self._of_many_requests(message, approvals, language)
        return _ClaimedNotifications(channel, group, destination, message)

    def _of_many_requests(
        self, message: NotificationMessage, approvals: Sequence[Approval], language: str
    ) -> NotificationMessage:
        """Of one asker. It leads to the page where each is decided: nobody approves with one touch what they have not seen."""
        asker = approvals[0].requested_by
        title = self.translator.translate(f"{asker.name} asks for {len(approvals)} commands", language)
        link = f"{self.public_url}/#/approvals"
        return replace(message, title=title, link=link, tag=f"approvals:{asker.label}", is_urgent=True)

    async def _with_link(
        self,
        tx: NotificationsTx,
        message: NotificationMessage,
        approval: Approval,
        membership: Membership,
        destination: Destination,
        now_ms: int,
    ) -> NotificationMessage:
        """A link to decide with. Without an access token, everybody who guesses an ntfy topic reads along: there a link alone
        must not be enough, so without a second factor the message leads to the inbox, where the person signs in."""
        expires_ms = min(now_ms + LINK_TTL_MS, approval.expires_ms)
        message = replace(message, ttl_s=max(60, (expires_ms - now_ms) // SECOND_MS), is_urgent=True)
        is_open = isinstance(destination, NtfyDestination) and destination.token is None
        if is_open and not await tx.second_factors.is_enabled(membership.user_id):
            return message
        token = self.links.issue(membership.membership_id, approval.approval_id, now_ms, expires_ms)
        return replace(message, link=f"{self.public_url}/#/decide/{token}")

    async def _finish(self, tx: NotificationsTx, claimed: _ClaimedNotifications, result: ChannelSendResult) -> None:
        if result.outcome is NotificationSendOutcome.SENT:
            self.sent_by_channel[claimed.channel.kind] += len(claimed.group)
        else:
            self.unsent_by_outcome[result.outcome] += len(claimed.group)
        if result.outcome is not NotificationSendOutcome.FAILED:
            await tx.notifications.delete(claimed.seqs)
        elif result.retry_after_s is not None:
            attempt = max(each.attempt for each in claimed.group)
            pause_ms = min(max(RETRY_PAUSES_MS[attempt], result.retry_after_s * SECOND_MS), RETRY_PAUSES_MS[-1])
            await tx.notifications.postpone(claimed.seqs, self.clock.steady_ms() + pause_ms, attempt + 1)
        await record_result(tx, claimed.channel, result, self.clock.now_ms())


async def _find_decidable(
    tx: NotificationsTx, notification: Notification, membership: Membership, now_ms: int
) -> Approval | None:
    """The request, if it still waits and this member may decide it: nobody approves a request of their own."""
    if notification.approval_id is None or not membership.role.is_at_least(Role.ADMIN):
        return None
    approval = await tx.approvals.get(membership.account_id, notification.approval_id)
    if approval is None or approval.status is not ApprovalStatus.PENDING or now_ms >= approval.expires_ms:
        return None
    is_own = is_own_request(approval, membership.user_id, membership.membership_id, membership.role)
    return None if is_own else approval


def _grouped(due: Sequence[Notification]) -> list[list[Notification]]:
    """What becomes one message: all of a channel and topic; see `_by_asker` for requests."""
    groups: dict[tuple[str, str], list[Notification]] = {}
    for each in due:
        groups.setdefault((each.channel_id, each.topic), []).append(each)
    return list(groups.values())


async def _by_asker(tx: NotificationsTx, group: Sequence[Notification]) -> list[Sequence[Notification]]:
    """Requests for approval become one message per asker: one asker hides no other. Other groups stay whole."""
    if group[0].topic is not NotificationTopic.APPROVALS:
        return [group]
    channel = await tx.notification_channels.get(group[0].channel_id)
    askers: dict[str, list[Notification]] = {}
    for each in group:
        approval = None
        if channel is not None and each.approval_id is not None:
            approval = await tx.approvals.get(channel.account_id, each.approval_id)
        askers.setdefault("" if approval is None else approval.requested_by.label, []).append(each)
    return list(askers.values())


def _message_of(group: Sequence[Notification], public_url: str, translate: Callable[[str], str] = str) -> NotificationMessage:
    """One message about all of the group, which is not empty. `translate`: into the language of the recipient."""
    first, *more = (replace(each, subject=translate(each.subject), text=translate(each.text)) for each in group)
    footer = translate(MAIL_FOOTER)
    if first.topic is UnconditionalTopic.SECURITY:
        footer = translate(SECURITY_FOOTER)
    if not more:
        tag = first.approval_id or f"{first.topic}:{first.device_id or ''}"
        link = f"{public_url}/#/{_place_of(first)}"
        return NotificationMessage(first.subject, first.text, link, tag, DAY_MS // SECOND_MS, mail_footer=footer)
    lines = [f"{each.subject}. {each.text}" for each in [first, *more][:MAX_LINES]]
    if len(group) > MAX_LINES:
        lines.append(translate(f"… and {len(group) - MAX_LINES} more"))
    place = "devices" if first.topic is NotificationTopic.OFFLINE else "log"
    if first.topic is UnconditionalTopic.SECURITY:
        place = "account"
    title = first.subject + translate(f", and {len(more)} more")
    text, link = "\n".join(lines), f"{public_url}/#/{place}"
    return NotificationMessage(title, text, link, first.topic, DAY_MS // SECOND_MS, mail_footer=footer)


def _place_of(notification: Notification) -> str:
    """The page of the dashboard that it is about."""
    if notification.topic is NotificationTopic.APPROVALS:
        return "approvals"
    if notification.topic is UnconditionalTopic.SECURITY:
        return "account"
    if notification.topic is NotificationTopic.WEBHOOKS:
        return "webhooks"
    return f"device/{notification.device_id}" if notification.device_id else "log"
