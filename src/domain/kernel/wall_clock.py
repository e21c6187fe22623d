"""Whether the machine's wall clock may be believed, and the time that the service goes by while it may not.

Law: nothing that cannot be undone is done on the word of a wall clock that has outrun monotonic time, or that stands behind what
is stored. While the clock runs, the service follows it, slow corrections included. When it jumps, the service counts on by
monotonic time, as if nothing had happened, until the clock returns or its step is believed:

- a time service has set it (`is_synchronized`), and it has held for SYNCHRONIZED_HOLD_MS;
- or it has held for `hold_ms`;
- or a person confirms it.

At a start there is no monotonic time to compare with, only the last time that was stored. A clock behind that is not believed:
the service counts on from there, until the clock shows a later time, is synchronised or is confirmed. No such clock is believed
because it has held: a machine without a battery shows 1970 for ever. A clock that is more than a day ahead of the stored time is
what a long stop looks like too. The service goes by it, but deletes and ends nothing until it is synchronised, has held or is
confirmed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from domain.kernel.clock import DAY_MS, HOUR_MS, MINUTE_MS, from_iso

EARLIEST_PLAUSIBLE_MS = from_iso("2026-01-01T00:00:00Z")
"""No clock that shows an earlier time is believed because it has held."""
MIN_JUMP_MS = 2 * MINUTE_MS
"""A smaller step is followed at once: that much a device's clock may be ahead too."""
HOLD_MS = HOUR_MS
SYNCHRONIZED_HOLD_MS = 5 * MINUTE_MS
"""Time services have been wrong for a minute; one whose answer stands for so long is believed."""
LONG_STOP_MS = DAY_MS
_READINGS = 5


class DoubtKind(StrEnum):
    STEPPED = "stepped"
    """It jumped while the service ran."""
    BEHIND = "behind"
    """At the start it stood behind what is stored."""
    AHEAD = "ahead"
    """At the start it was more than a day after what is stored."""


@dataclass(frozen=True, slots=True)
class ClockDoubt:
    """`by_ms`: how far the wall clock is ahead of the time that the service counts (AHEAD: of the stored time); negative: behind.
    `since_ms`: the time that the service went by when the doubt began, Unix ms."""

    kind: DoubtKind
    by_ms: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class ClockDecision:
    """What became of the clock. `doubt`: the one that begins, or the one that ends. `step_ms`: by how much the time that the
    service goes by was set."""

    doubt: ClockDoubt
    is_over: bool
    step_ms: int = 0
    until_ms: int = 0
    """The time that the service went by just before."""


class WallClock:
    """`read_wall_ms`, `read_monotonic_ms`: the clocks of the machine. `hold_ms` 0: every step is believed at once."""

    def __init__(
        self,
        read_wall_ms: Callable[[], int],
        read_monotonic_ms: Callable[[], int],
        *,
        hold_ms: int = HOLD_MS,
        is_synchronized: Callable[[], bool] = lambda: False,
    ) -> None:
        self._read_wall_ms = read_wall_ms
        self._read_monotonic_ms = read_monotonic_ms
        self._hold_ms = hold_ms
        self._is_synchronized = is_synchronized
        self._offset_ms = read_wall_ms() - read_monotonic_ms()
        """Of the time that the service goes by, from monotonic time."""
        self._reference_ms: int | None = None
        """In doubt since the start: the offset of the stored time, counted on."""
        self._doubted_ms = self._since_ms = 0
        """The offset of the clock in doubt, and since when it has that, by monotonic time."""
        self.doubt: ClockDoubt | None = None
        self.on_set: Callable[[ClockDecision], None] = lambda _: None
        """Is called at the moment in which the time that the service goes by is set, before anybody reads the new one."""
        self._begun: list[ClockDecision] = []

    def now_ms(self) -> int:
        """The time that the service goes by, Unix milliseconds."""
        monotonic_ms, wall_ms = self._read()
        self._look(monotonic_ms, wall_ms)
        return monotonic_ms + self._offset_ms

    def wall_ms(self) -> int:
        """What the clock of the machine shows."""
        return self._read_wall_ms()

    def start(self, stored_ms: int | None, age_ms: int = 0) -> None:
        """Judge the clock by the last time that was stored; None: there is none. `age_ms`: how long ago that was, if another
        clock tells."""
        monotonic_ms, wall_ms = self._read()
        self.doubt, self._offset_ms = None, wall_ms - monotonic_ms
        if self._hold_ms == 0:
            return
        if stored_ms is None:
            stored_ms = max(wall_ms, EARLIEST_PLAUSIBLE_MS)
        counted_ms = stored_ms + min(max(0, age_ms), LONG_STOP_MS)
        self._reference_ms = (counted_ms if wall_ms < counted_ms - MIN_JUMP_MS else stored_ms) - monotonic_ms
        self._judge_start(monotonic_ms, wall_ms)

    def judge(self, *, confirmed: bool = False) -> list[ClockDecision]:
        """Call every second. Believe what may be believed by now; with a hold, the time that the service goes by is set only
        here. Returns what was decided since the last call. `confirmed`: a person says that the clock is right."""
        monotonic_ms, wall_ms = self._read()
        self._look(monotonic_ms, wall_ms)
        if self.doubt is not None:
            if confirmed or self._may_be_believed(monotonic_ms, wall_ms):
                self._believe(monotonic_ms, wall_ms)
            elif self._reference_ms is not None:
                self._judge_start(monotonic_ms, wall_ms)
        found, self._begun = self._begun, []
        return found

    def _read(self) -> tuple[int, int]:
        """Monotonic and wall time of one moment; a process that is held up between the two would see a step."""
        for _ in range(_READINGS):
            monotonic_ms, wall_ms = self._read_monotonic_ms(), self._read_wall_ms()
            if (
                abs(wall_ms - monotonic_ms - self._offset_ms) < MIN_JUMP_MS
                or self._read_monotonic_ms() - monotonic_ms < MIN_JUMP_MS
            ):
                break
        return monotonic_ms, wall_ms

    def _look(self, monotonic_ms: int, wall_ms: int) -> None:
        offset_ms, doubt = wall_ms - monotonic_ms, self.doubt
        step_ms = offset_ms - self._offset_ms
        if abs(step_ms) < MIN_JUMP_MS:
            before_ms, self._offset_ms = monotonic_ms + self._offset_ms, offset_ms
            if doubt is not None and doubt.kind is not DoubtKind.AHEAD:
                self._end(step_ms, before_ms)
            return
        if doubt is None:
            self._begin(ClockDoubt(DoubtKind.STEPPED, step_ms, monotonic_ms + self._offset_ms), offset_ms, monotonic_ms)
            if self._hold_ms == 0:
                self._believe(monotonic_ms, wall_ms)
        elif abs(offset_ms - self._doubted_ms) >= MIN_JUMP_MS:
            self._doubted_ms, self._since_ms = offset_ms, monotonic_ms
            self.doubt = ClockDoubt(doubt.kind, step_ms, doubt.since_ms)
        else:
            self._doubted_ms = offset_ms

    def _may_be_believed(self, monotonic_ms: int, wall_ms: int) -> bool:
        assert self.doubt is not None  # noqa: S101 - the caller's condition
        if self._hold_ms == 0:
            return True
        held_ms = monotonic_ms - self._since_ms
        is_at_start = self._reference_ms is not None
        if (is_at_start or held_ms >= SYNCHRONIZED_HOLD_MS) and self._is_synchronized():
            return True
        is_plausible = wall_ms >= EARLIEST_PLAUSIBLE_MS and self.doubt.kind is not DoubtKind.BEHIND
        return is_plausible and held_ms >= self._hold_ms

    def _judge_start(self, monotonic_ms: int, wall_ms: int) -> None:
        """Compare the clock with the stored time, at the start and while that is all there is."""
        assert self._reference_ms is not None  # noqa: S101 - the caller's condition
        reference_ms = monotonic_ms + self._reference_ms
        ahead_ms = wall_ms - reference_ms
        if -MIN_JUMP_MS < ahead_ms <= LONG_STOP_MS:
            self._believe(monotonic_ms, wall_ms)
            return
        kind = DoubtKind.BEHIND if ahead_ms < 0 else DoubtKind.AHEAD
        goes_by_ms = reference_ms if kind is DoubtKind.BEHIND else wall_ms
        before_ms = monotonic_ms + self._offset_ms
        if self.doubt is not None and self.doubt.kind is kind and abs(goes_by_ms - before_ms) < MIN_JUMP_MS:
            return
        self._offset_ms = goes_by_ms - monotonic_ms
        step_ms = goes_by_ms - before_ms if self.doubt is not None else 0
        self._begin(ClockDoubt(kind, ahead_ms, goes_by_ms), wall_ms - monotonic_ms, monotonic_ms, step_ms, before_ms)

    def _begin(self, doubt: ClockDoubt, doubted_ms: int, monotonic_ms: int, step_ms: int = 0, before_ms: int = 0) -> None:
        self.doubt, self._doubted_ms, self._since_ms = doubt, doubted_ms, monotonic_ms
        self._decide(ClockDecision(doubt, is_over=False, step_ms=step_ms, until_ms=before_ms))

    def _believe(self, monotonic_ms: int, wall_ms: int) -> None:
        before_ms = monotonic_ms + self._offset_ms
        self._offset_ms = wall_ms - monotonic_ms
        self._end(wall_ms - before_ms, before_ms)

    def _end(self, step_ms: int, before_ms: int) -> None:
        doubt, self.doubt, self._reference_ms = self.doubt, None, None
        if doubt is not None:
            self._decide(ClockDecision(doubt, is_over=True, step_ms=step_ms, until_ms=before_ms))

    def _decide(self, decision: ClockDecision) -> None:
        self._begun.append(decision)
        if decision.step_ms:
            self.on_set(decision)
