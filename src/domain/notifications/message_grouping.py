"""Several notifications become one message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from domain.kernel.clock import DAY_MS, SECOND_MS
from domain.notifications.model import MAIL_FOOTER, Notification, NotificationMessage, NotificationTopic

MAX_LINES = 20
"""Of a message about many; what is more is counted."""


def grouped(due: Sequence[Notification]) -> list[list[Notification]]:
    """What becomes one message: all of a channel and topic. Each request for approval is a message of its own: it has its own
    link."""
    groups: dict[tuple[str, str, int], list[Notification]] = {}
    for each in due:
        own = each.seq if each.topic is NotificationTopic.APPROVALS else 0
        groups.setdefault((each.channel_id, each.topic, own), []).append(each)
    return list(groups.values())


def place_of(notification: Notification) -> str:
    """The page of the dashboard that it is about."""
    if notification.topic is NotificationTopic.APPROVALS:
        return "approvals"
    if notification.topic is NotificationTopic.WEBHOOKS:
        return "webhooks"
    return f"device/{notification.device_id}" if notification.device_id else "log"


def message_of(group: Sequence[Notification], public_url: str, translate: Callable[[str], str] = str) -> NotificationMessage:
    """One message about all of the group, which is not empty. `translate`: into the language of the recipient."""
    first, *more = (replace(each, subject=translate(each.subject), text=translate(each.text)) for each in group)
    footer = translate(MAIL_FOOTER)
    if not more:
        tag = first.approval_id or f"{first.topic}:{first.device_id or ''}"
        link = f"{public_url}/#/{place_of(first)}"
        return NotificationMessage(first.subject, first.text, link, tag, DAY_MS // SECOND_MS, mail_footer=footer)
    lines = [f"{each.subject}. {each.text}" for each in [first, *more][:MAX_LINES]]
    if len(group) > MAX_LINES:
        lines.append(translate(f"… and {len(group) - MAX_LINES} more"))
    place = "devices" if first.topic is NotificationTopic.OFFLINE else "log"
    title = first.subject + translate(f", and {len(more)} more")
    text, link = "\n".join(lines), f"{public_url}/#/{place}"
    return NotificationMessage(title, text, link, first.topic, DAY_MS // SECOND_MS, mail_footer=footer)
