"""The audit log of denied requests: caller, action, resource and address; never the request's content.

Each logged denial costs a write. The first denials of a caller in a minute are logged one by one; the rest are counted and logged
as a number when the minute is over. So a faulty or hostile client cannot fill the log or the disk.
The specification wants one kind of request in the log whatever its number: those that reveal credentials.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Final

from domain.devices.lookup import get_device
from domain.events.ports import EventsTx
from domain.kernel.caller import ApiKeyCaller, SessionCaller
from domain.kernel.clock import MINUTE_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import Json, event_of
from domain.kernel.errors import DomainError, NotFound
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import UnitOfWork

EVENT_KIND: Final = "access_refused"
MAX_LOGGED_PER_MINUTE = 30
"""Per caller."""
MAX_CALLERS = 10_000

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _DeniedRequestMinute:
    caller: SessionCaller | ApiKeyCaller
    since_ms: int
    """Monotonic."""
    logged_count: int = 0
    suppressed_count: int = 0


@service
class DenialLog:
    """Implements `DeniedRequestLog`."""

    uow: UnitOfWork[EventsTx]
    clock: Clock
    _minutes: dict[str, _DeniedRequestMinute] = field(default_factory=dict, init=False)

    async def log_denied(
        self, caller: SessionCaller | ApiKeyCaller, act: str, error: DomainError, subject: dict[str, str], *, always: bool = False
    ) -> None:
        """Log the denial, or count it unless `always`. When the database is unavailable, it goes to the application log."""
        if error.already_logged:
            return
        error.already_logged = True
        now_ms = self.clock.now_ms()
        data: dict[str, Json] = {"code": error.code, **subject}
        if not always:
            minute = self._current_minute(caller)
            if minute is None:
                return
            if minute.logged_count >= MAX_LOGGED_PER_MINUTE:
                minute.suppressed_count += 1
                return
            minute.logged_count += 1
        await self._emit(caller, f"Refused ({error.code}): {act}", now_ms, data, subject.get("deviceId"))

    async def flush(self, *, everything: bool = False) -> None:
        """Log the counts of past minutes; with `everything`, at shutdown, also of the current minute."""
        ended_ms = self.clock.monotonic_ms() - MINUTE_MS
        past = [label for label, minute in self._minutes.items() if everything or minute.since_ms <= ended_ms]
        for label in past:
            minute = self._minutes.pop(label)
            if minute.suppressed_count:
                text = f"Refused: {minute.suppressed_count} more calls of the same caller within a minute"
                await self._emit(minute.caller, text, self.clock.now_ms(), {"count": minute.suppressed_count}, None)

    def _current_minute(self, caller: SessionCaller | ApiKeyCaller) -> _DeniedRequestMinute | None:
        """None when too many callers are tracked, until the next flush."""
        minute = self._minutes.get(caller.label)
        if minute is None and len(self._minutes) < MAX_CALLERS:
            minute = self._minutes[caller.label] = _DeniedRequestMinute(caller, self.clock.monotonic_ms())
        return minute

    async def _emit(
        self, caller: SessionCaller | ApiKeyCaller, text: str, now_ms: int, data: dict[str, Json], device: str | None
    ) -> None:
        try:
            async with self.uow.write(caller=None) as tx:  # a denied request changes nothing; its claim stays unmarked
                device_id = await _own_device_id(tx, caller, device)
                tx.emit(event_of(caller, EVENT_KIND, text, now_ms, device_id, **data))
        except DomainError as error:
            log.warning("denied request not stored in the event log: %s (%s): %s", caller.label, text, error.message)


async def _own_device_id(tx: EventsTx, caller: SessionCaller | ApiKeyCaller, device: str | None) -> DeviceId | None:
    """The id if the device belongs to the caller's account, so that no event refers to another account's device."""
    if device is None:
        return None
    try:
        return (await get_device(tx, caller.account_id, DeviceId(device))).device_id
    except NotFound:
        return None
