"""Watches the machine's wall clock: believes a step when it may, and tells people when the clock is in doubt and what waits.

A step that is believed is an interval that nobody has lived through: what was due in it is asked of the devices first
(`AbsenceTracker`), as after a stop of the service.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Final

from domain.devices.absence import AbsenceTracker
from domain.devices.ports import DevicesTx
from domain.kernel.caller import SystemCaller
from domain.kernel.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, to_iso
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import EventKind, event_of
from domain.kernel.steady_time import SteadyTimePersistenceService
from domain.kernel.unit_of_work import UnitOfWork
from domain.kernel.wall_clock import MIN_JUMP_MS, ClockDecision, ClockDoubt, DoubtKind, WallClock

CLOCK_DOUBTED: Final = "clock_doubted"
CLOCK_TRUSTED: Final = "clock_trusted"
HELD_BACK = "deleting old data, the ends of approvals, and slots that run once and were due in the doubtful time"
REMEDY = "Set up time synchronisation (NTP). If the clock is right, run `latchboard clock trust`."
EVENT_INTERVAL_MS = MINUTE_MS
"""Shortest time between two doubts that become events: a clock that two programs set in turn floods no log."""


@service
class ClockWatch:
    uow: UnitOfWork[DevicesTx]
    wall: WallClock
    steady_time: SteadyTimePersistenceService
    absence: AbsenceTracker
    tells_people: Callable[[], bool] = lambda: True
    """Whether this instance writes the events; several on one machine have the same clock."""
    on_time: Callable[[int], None] = lambda _: None
    """Is told the time that the service goes by."""
    on_decision: Callable[[ClockDecision, str], None] = lambda _decision, _text: None
    """Is called for each that people are told, with its text: for the log."""
    on_step: Callable[[], None] = lambda: None
    """Is called when that time has been set."""
    doubt_count: int = field(default=0, init=False)
    _pending: list[tuple[EventKind, str, dict[str, int | str]]] = field(default_factory=list, init=False)
    _announced_ms: int | None = field(default=None, init=False)
    """Time of the last doubt that was told, and whether its end is still to be told."""
    _is_end_pending: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.wall.on_set = self._follow

    def look(self) -> None:
        """Call once at the start, and then every second."""
        decisions = self.wall.judge(confirmed=self.steady_time.is_clock_confirmed)
        self.on_time(self.wall.now_ms())
        for decision in decisions:
            self._tell(decision)
        if any(decision.step_ms for decision in decisions):
            self.on_step()

    def _follow(self, decision: ClockDecision) -> None:
        self.on_time(self.wall.now_ms())
        if decision.step_ms < MIN_JUMP_MS:
            return
        if decision.doubt.kind is DoubtKind.STEPPED:
            self.absence.begin_step(decision.until_ms)
        else:
            self.absence.begin(decision.until_ms)

    def _tell(self, decision: ClockDecision) -> None:
        kind: EventKind = CLOCK_TRUSTED if decision.is_over else CLOCK_DOUBTED
        text = describe_trust(decision) if decision.is_over else describe_doubt(decision.doubt)
        if not self._is_announced(decision):
            return
        self.on_decision(decision, text)
        data = {"doubt": decision.doubt.kind.value, "byMs": decision.doubt.by_ms, "stepMs": decision.step_ms}
        self._pending.append((kind, text, data))

    def _is_announced(self, decision: ClockDecision) -> bool:
        if decision.is_over:
            is_announced, self._is_end_pending = self._is_end_pending or abs(decision.step_ms) >= MIN_JUMP_MS, False
            return is_announced
        self.doubt_count += 1
        now_ms = self.wall.now_ms()
        if self._announced_ms is not None and 0 <= now_ms - self._announced_ms < EVENT_INTERVAL_MS:
            return False
        self._announced_ms, self._is_end_pending = now_ms, True
        return True

    async def write_events(self) -> None:
        """In the event log of each account. Raises Unavailable; then they are written at the next call."""
        if not self._pending:
            return
        if self.tells_people():
            now_ms, pending = self.wall.now_ms(), tuple(self._pending)
            async with self.uow.write(caller=None) as tx:
                for account_id in await tx.accounts.list_ids():
                    for kind, text, data in pending:
                        tx.emit(event_of(SystemCaller(account_id, "service", "clock"), kind, text, now_ms, None, **data))
        self._pending.clear()

    @property
    def is_certain(self) -> bool:
        """Whether what cannot be undone may be done."""
        return self.wall.doubt is None

    def doubtful_until_ms(self) -> int | None:
        """The start, Unix ms, while the clock is in doubt because it was far ahead then; None at other times."""
        doubt = self.wall.doubt
        return doubt.since_ms if doubt is not None and doubt.kind is DoubtKind.AHEAD else None

    def warning(self) -> str | None:
        """For `/readyz`; None while the clock is believed."""
        doubt = self.wall.doubt
        return None if doubt is None else f"{describe_doubt(doubt)} {REMEDY}"


def describe_doubt(doubt: ClockDoubt) -> str:
    length = _length(doubt.by_ms)
    if doubt.kind is DoubtKind.BEHIND:
        return (
            f"The clock of this machine is {length} behind the newest data. Until it is right, the service counts on from that "
            f"time, and these wait: {HELD_BACK}."
        )
    if doubt.kind is DoubtKind.AHEAD:
        return (
            f"The clock of this machine is {length} ahead of the newest data. Until it is confirmed, by time synchronisation, by "
            f"a person or by holding, these wait: {HELD_BACK}."
        )
    way = "ahead" if doubt.by_ms > 0 else "back"
    return (
        f"The clock of this machine jumped {length} {way}. The service counts on as before until the clock returns or is "
        f"confirmed, and these wait: {HELD_BACK}."
    )


def describe_trust(decision: ClockDecision) -> str:
    if abs(decision.step_ms) < MIN_JUMP_MS:
        return "The clock of this machine is believed again; nothing was lost or done too early. What waited goes on."
    way = "ahead" if decision.step_ms > 0 else "back"
    length, at = _length(decision.step_ms), to_iso(decision.until_ms + decision.step_ms)
    return f"The clock of this machine is believed: the service went {length} {way}, to {at}. What waited goes on."


def _length(ms: int) -> str:
    for unit_ms, unit in ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "min")):
        if abs(ms) >= 2 * unit_ms:
            return f"{round(abs(ms) / unit_ms)} {unit}"
    return f"{round(abs(ms) / SECOND_MS)} s"
