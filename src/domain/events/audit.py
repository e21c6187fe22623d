"""What was refused, in the account's log: who, what, on what, from where; never what was sent.

A refusal costs whoever is refused nothing, and a line in the log costs a write. So of one caller the first refusals of a minute
are written one by one, and the rest are counted and written as a number once the minute is over: a robot gone astray, or a
guesser, fills neither the disk nor the log.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final, Protocol

from domain.devices.lookup import get_device
from domain.devices.ports import HasDevices
from domain.kernel.caller import ApiKeyCaller, Session
from domain.kernel.clock import MINUTE_MS, Clock
from domain.kernel.domain_events import DomainEvent, Json
from domain.kernel.errors import DomainError, NotFound
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import Transaction, UnitOfWork

EVENT_KIND: Final = "access_refused"
MAX_LOGGED_PER_MINUTE = 30
"""In a minute and of one caller."""
MAX_CALLERS = 10_000

log = logging.getLogger(__name__)


class DeniedRequestTx(Transaction, HasDevices, Protocol): ...


@dataclass(slots=True)
class _CallerMinute:
    caller: Session | ApiKeyCaller
    since_ms: int
    logged_count: int = 0
    suppressed_count: int = 0


class RateLimitedDeniedRequestLog:
    """The `Refusals` of everybody who refuses."""

    def __init__(self, *, uow: UnitOfWork[DeniedRequestTx], clock: Clock) -> None:
        self._uow = uow
        self._clock = clock
        self._minutes: dict[str, _CallerMinute] = {}

    async def log_denied(self, caller: Session | ApiKeyCaller, act: str, error: DomainError, subject: dict[str, str]) -> None:
        """One line, or one more in the count. What cannot be written is in the program's own log."""
        if error.already_logged:
            return
        error.already_logged = True
        now_ms = self._clock.now_ms()
        minute = self._current_minute(caller, now_ms)
        if minute is None or minute.logged_count >= MAX_LOGGED_PER_MINUTE:
            if minute is not None:
                minute.suppressed_count += 1
            return
        minute.logged_count += 1
        data: dict[str, Json] = {"code": error.code, **subject}
        await self._emit(caller, f"Refused ({error.code}): {act}", now_ms, data, subject.get("deviceId"))

    async def flush(self, *, everything: bool = False) -> None:
        """Write the counts of minutes that are over; at the end of the program `everything`."""
        now_ms = self._clock.now_ms()
        over = [who for who, one in self._minutes.items() if everything or now_ms - one.since_ms >= MINUTE_MS]
        for who in over:
            minute = self._minutes.pop(who)
            if minute.suppressed_count:
                text = f"Refused: {minute.suppressed_count} more calls of the same caller within a minute"
                await self._emit(minute.caller, text, now_ms, {"count": minute.suppressed_count}, None)

    def _current_minute(self, caller: Session | ApiKeyCaller, now_ms: int) -> _CallerMinute | None:
        """None when there are too many callers to keep apart: then the flush has to come first."""
        minute = self._minutes.get(caller.label)
        if minute is None and len(self._minutes) < MAX_CALLERS:
            minute = self._minutes[caller.label] = _CallerMinute(caller, now_ms)
        return minute

    async def _emit(
        self, caller: Session | ApiKeyCaller, text: str, now_ms: int, data: dict[str, Json], device: str | None
    ) -> None:
        try:
            async with self._uow.write() as tx:
                device_id = await _own_device_id(tx, caller, device)
                await tx.emit(DomainEvent.from_caller(caller, EVENT_KIND, text, now_ms, device_id=device_id, data=data))
        except DomainError as error:
            log.warning("a refusal could not be put on the record: %s (%s): %s", caller.label, text, error.message)


async def _own_device_id(tx: HasDevices, caller: Session | ApiKeyCaller, device: str | None) -> DeviceId | None:
    """The device, if it is the account's: a stranger's id leads to no line in a stranger's log."""
    if device is None:
        return None
    try:
        return (await get_device(tx, caller.account_id, DeviceId(device))).device_id
    except NotFound:
        return None
