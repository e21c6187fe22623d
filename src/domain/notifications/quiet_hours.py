"""When a person's quiet hours end."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from domain.kernel.clock import SECOND_MS
from domain.notifications.model import NotificationSettings


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
