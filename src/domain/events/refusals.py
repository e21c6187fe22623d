"""What was refused, in the account's log: who, what, on what, from where; never what was sent.

A refusal costs whoever is refused nothing, and a line in the log costs a write. So of one caller the first refusals of a minute
are written one by one, and the rest are counted and written as a number once the minute is over: a robot gone astray, or a
guesser, fills neither the disk nor the log.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from domain.devices.lookup import device_of
from domain.events.ports import EventsTx
from domain.kernel.caller import ApiKeyCaller, Session
from domain.kernel.clock import MINUTE_MS, Clock
from domain.kernel.errors import DomainError, NotFound
from domain.kernel.facts import Fact, Json
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import UnitOfWork

KIND: Final = "access_refused"
ONE_BY_ONE = 30
"""In a minute and of one caller."""
MOST_CALLERS = 10_000

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Minute:
    caller: Session | ApiKeyCaller
    since_ms: int
    written: int = 0
    counted: int = 0


class RefusalLog:
    """The `Refusals` of everybody who refuses."""

    def __init__(self, *, uow: UnitOfWork[EventsTx], clock: Clock) -> None:
        self._uow = uow
        self._clock = clock
        self._minutes: dict[str, _Minute] = {}

    async def turned_away(
        self, caller: Session | ApiKeyCaller, act: str, error: DomainError, subject: dict[str, str]
    ) -> None:
        """One line, or one more in the count. What cannot be written is in the program's own log."""
        if error.on_record:
            return
        error.on_record = True
        now_ms = self._clock.now_ms()
        minute = self._minute(caller, now_ms)
        if minute is None or minute.written >= ONE_BY_ONE:
            if minute is not None:
                minute.counted += 1
            return
        minute.written += 1
        data: dict[str, Json] = {"code": error.code, **subject}
        await self._write(caller, f"Refused ({error.code}): {act}", now_ms, data, subject.get("deviceId"))

    async def flush(self, *, everything: bool = False) -> None:
        """Write the counts of minutes that are over; at the end of the program `everything`."""
        now_ms = self._clock.now_ms()
        over = [who for who, one in self._minutes.items() if everything or now_ms - one.since_ms >= MINUTE_MS]
        for who in over:
            minute = self._minutes.pop(who)
            if minute.counted:
                text = f"Refused: {minute.counted} more calls of the same caller within a minute"
                await self._write(minute.caller, text, now_ms, {"count": minute.counted}, None)

    def _minute(self, caller: Session | ApiKeyCaller, now_ms: int) -> _Minute | None:
        """None when there are too many callers to keep apart: then the flush has to come first."""
        minute = self._minutes.get(caller.label)
        if minute is None and len(self._minutes) < MOST_CALLERS:
            minute = self._minutes[caller.label] = _Minute(caller, now_ms)
        return minute

    async def _write(
        self, caller: Session | ApiKeyCaller, text: str, now_ms: int, data: dict[str, Json], device: str | None
    ) -> None:
        try:
            async with self._uow.write() as tx:
                device_id = await _own(tx, caller, device)
                fact = Fact(caller.account_id, KIND, text, now_ms, caller.label, device_id, data, caller.address)
                await tx.record(fact)
        except DomainError as error:
            log.warning("a refusal could not be put on the record: %s (%s): %s", caller.label, text, error.message)


async def _own(tx: EventsTx, caller: Session | ApiKeyCaller, device: str | None) -> DeviceId | None:
    """The device, if it is the account's: a stranger's id leads to no line in a stranger's log."""
    if device is None:
        return None
    try:
        return (await device_of(tx, caller.account_id, DeviceId(device))).device_id
    except NotFound:
        return None
