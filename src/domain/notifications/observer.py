"""What an event owes: mails to the members who chose its topic, written in the event's own transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from domain.events.model import APPROVAL_REQUESTED, DEVICE_OFFLINE, DEVICE_ONLINE, TELEMETRY, Event
from domain.kernel.clock import MINUTE_MS, Clock
from domain.kernel.unit_of_work import Transaction
from domain.notifications.model import TOPIC_OF_EVENT, Notification, NotificationSettings, NotificationTopic
from domain.notifications.ports import HasNotifications

OFFLINE_ENDS = frozenset({DEVICE_ONLINE, "device_deleted"})


class NotificationObserverTx(Transaction, HasNotifications, Protocol): ...


class NotificationObserver:
    """Implements `EventObserver`. `public_url`: the address of the dashboard; `wake`: the worker has new mails."""

    def __init__(self, *, public_url: str, clock: Clock, wake: Callable[[], None]) -> None:
        self._clock = clock
        self._public_url = public_url
        self._wake = wake

    async def on_events(self, tx: NotificationObserverTx, events: Sequence[Event]) -> None:
        if not events or events[0].kind == TELEMETRY:
            return  # telemetry is published in batches of its own
        ended = {event.device_id for event in events if event.kind in OFFLINE_ENDS and event.device_id is not None}
        if ended:
            await tx.notifications.delete_offline(ended)
        wanted = [event for event in events if event.kind in TOPIC_OF_EVENT]
        pending: list[Notification] = []
        for account_id in {event.account_id for event in wanted}:
            settings = await tx.notifications.list_settings(account_id)
            pending += [
                self._notification(event, TOPIC_OF_EVENT[event.kind], each)
                for event in wanted
                if event.account_id == account_id
                for each in settings
                if TOPIC_OF_EVENT[event.kind] in each.topics
            ]
        if pending:
            await tx.notifications.add_many(pending)
            tx.after_commit(self._wake)

    def _notification(self, event: Event, topic: NotificationTopic, settings: NotificationSettings) -> Notification:
        delay_ms = settings.offline_minutes * MINUTE_MS if event.kind == DEVICE_OFFLINE else 0
        name = event.device_name or "Latchboard"
        subject = f"{name}: {_subject(event, settings)}"
        place = "approvals" if topic is NotificationTopic.APPROVALS else f"device/{event.device_id}" if event.device_id else "log"
        text = f"{event.description}\n\n{self._public_url}/#/{place}\n\nYou chose this mail on your page in Latchboard.\n"
        return Notification(0, settings.membership_id, topic, event.device_id, subject, text, self._clock.steady_ms() + delay_ms)


def _subject(event: Event, settings: NotificationSettings) -> str:
    if event.kind == APPROVAL_REQUESTED:
        return "a command waits for approval"
    if event.kind == DEVICE_OFFLINE:
        return f"offline for {settings.offline_minutes} min"
    return event.kind.replace("_", " ")
