"""A member's settings, and sending what is owed.

A mail is claimed by postponing it before it is sent, so that of several instances one sends it, and a crash in between sends it
again: at least once. Whether the member may still be told is decided when it is sent.
"""

from __future__ import annotations

from dataclasses import replace

from domain.accounts.ports import Mailer
from domain.kernel.caller import Role, Session
from domain.kernel.clock import MINUTE_MS, Clock, Moment
from domain.kernel.errors import Unavailable
from domain.kernel.unit_of_work import UnitOfWork
from domain.notifications import policy
from domain.notifications.model import Notification, NotificationSettings, NotificationTopic
from domain.notifications.ports import NotificationTx

BATCH = 20
QUIET_CHECK_MS = 5 * MINUTE_MS
"""Quiet hours are by the wall clock, which may be set meanwhile: what waits for their end is looked at so often."""


class NotificationService:
    def __init__(self, *, uow: UnitOfWork[NotificationTx], clock: Clock, mailer: Mailer) -> None:
        self._uow = uow
        self._clock = clock
        self._mailer = mailer

    async def get_settings(self, caller: Session) -> NotificationSettings:
        async with self._uow.read() as tx:
            found = await tx.notifications.get_settings(caller.membership_id)
        return found or NotificationSettings(caller.membership_id, caller.account_id)

    async def put_settings(self, caller: Session, settings: NotificationSettings) -> NotificationSettings:
        """The settings of the caller; the ids in `settings` are ignored."""
        own = replace(settings, membership_id=caller.membership_id, account_id=caller.account_id)
        async with self._uow.write(caller, Role.VIEWER) as tx:
            await tx.notifications.upsert_settings(own)
        return own

    async def send_due(self) -> bool:
        """Send a batch of what is due. True if there may be more. A mail that is not accepted is sent again later."""
        now = Moment.now(self._clock)
        async with self._uow.write(caller=None) as tx:
            due = await tx.notifications.list_due(now.steady_ms, BATCH)
            claimed = [(one, to) for one in due if (to := await self._claim(tx, one, now)) is not None]
        for notification, address in claimed:
            try:
                await self._mailer.send(address, notification.subject, notification.text)
            except Unavailable:
                continue
            async with self._uow.write(caller=None) as tx:
                await tx.notifications.delete(notification.seq)
        return len(due) == BATCH

    async def next_due_ms(self) -> int | None:
        async with self._uow.read() as tx:
            return await tx.notifications.next_due_ms()

    async def _claim(self, tx: NotificationTx, notification: Notification, now: Moment) -> str | None:
        """The address to send to; None if it is dropped or has to wait."""
        membership = await tx.memberships.get(notification.membership_id)
        settings = await tx.notifications.get_settings(notification.membership_id)
        user = None if membership is None else await tx.users.get(membership.user_id)
        is_given_up = notification.attempt >= len(policy.RETRY_PAUSES_MS)
        if membership is None or user is None or settings is None or is_given_up or notification.topic not in settings.topics:
            await tx.notifications.delete(notification.seq)
            return None
        if notification.topic is NotificationTopic.APPROVALS and not membership.role.is_at_least(Role.ADMIN):
            await tx.notifications.delete(notification.seq)
            return None
        quiet_until_ms = policy.quiet_until_ms(settings, now.wall_ms)
        if quiet_until_ms is not None:
            pause_ms = min(quiet_until_ms - now.wall_ms, QUIET_CHECK_MS)
            await tx.notifications.postpone(notification.seq, now.steady_ms + pause_ms, notification.attempt)
            return None
        due_ms = now.steady_ms + policy.RETRY_PAUSES_MS[notification.attempt]
        await tx.notifications.postpone(notification.seq, due_ms, notification.attempt + 1)
        return user.email
