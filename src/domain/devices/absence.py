"""When the service could hear no device: a known interval, counted against nobody.

Law: what could not be heard is not taken for not said. A time that a step of the clock left out is such an interval for the
devices that run their plan by themselves. After an absence each device has until it has spoken, at most GRACE_MS,
before anything of that time is judged: the edges of schedules, the silence that rules watch, the answers that commands wait for.

Until when devices could be heard is stored every few seconds, in a cluster with each beat of a member. It is stored in steady
time, so that a clock that is set makes no absence. Only how long no process ran is measured by a wall clock; a wrong one makes
the absence longer or shorter, and changes nothing that was heard. If a kill ends the grace, the next start counts from the same
moment. An instance that starts while another one hears the devices was away alone, and that is no absence.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from domain.devices.model import Device
from domain.kernel.clock import MINUTE_MS, SECOND_MS, Clock, StoredSteadyTime
from domain.kernel.dataclasses import service
from domain.kernel.unit_of_work import Transaction, UnitOfWork

GRACE_MS = MINUTE_MS
STORED_AFTER_MS = 15 * SECOND_MS
"""After the grace: by then the engine's checkpoint has what was judged at its end."""
PEER_SILENT_MS = 2_500
"""When no instance of a cluster has said for so long that it hears devices, none did: five beats."""


@dataclass(frozen=True, slots=True)
class Absence:
    """`since_ms`, `until_ms`: Unix ms."""

    since_ms: int
    until_ms: int


@service
class AbsenceTracker:
    uow: UnitOfWork[Transaction]
    clock: Clock
    hears: Callable[[], bool] = lambda: True
    """Whether devices can reach this instance now: it holds them, and its broker answers."""
    reconnects: Callable[[], int] = lambda: 0
    """How often this instance has lost its broker."""
    broker_is_apart: bool = False
    """The broker is another process, which may be away while this one runs."""
    current: Absence | None = field(default=None, init=False)
    """The last one; its grace may be over."""
    stepped: Absence | None = field(default=None, init=False)
    """The time that the last step of the clock left out. Devices were heard then, but what was due in it was not done."""
    _grace_ends_ms: int | None = field(default=None, init=False)
    """Monotonic; None before `start`."""
    _rules_grace_ends_ms: int = field(default=0, init=False)
    _reconnects: int | None = field(default=None, init=False)
    """At the last look; None before the first."""
    _cut_off_ms: int | None = field(default=None, init=False)
    """Unix ms since when devices cannot reach this instance; None: they can."""

    async def start(self, pause: Callable[[], Awaitable[None]] | None = None) -> Absence | None:
        """Call before steady time goes on: nothing is judged and no device can connect yet. `pause` waits for a moment, where
        other instances may hear the devices; None: there are none. Returns the absence that ends now, after PEER_SILENT_MS at
        most. Raises Unavailable."""
        stored = await self._find_stored()
        self._grace_ends_ms = self.clock.monotonic_ms() - STORED_AFTER_MS
        if stored is None or stored.heard_ms is None:
            return None
        since_ms = self.clock.now_ms() - max(0, stored.steady_ms - stored.heard_ms) - max(0, stored.age_ms)
        if pause is not None and await self._is_heard_elsewhere(stored.heard_ms, since_ms, pause):
            return None
        return self.begin(since_ms)

    async def _find_stored(self) -> StoredSteadyTime | None:
        async with self.uow.read() as tx:
            return await tx.steady_time.find(self.clock.now_ms())

    async def _is_heard_elsewhere(self, heard_ms: int, since_ms: int, pause: Callable[[], Awaitable[None]]) -> bool:
        """Wait for the next time that another instance says so, PEER_SILENT_MS from `since_ms` at most."""
        deadline_ms = self.clock.monotonic_ms() + min(PEER_SILENT_MS, since_ms + PEER_SILENT_MS - self.clock.now_ms())
        while self.clock.monotonic_ms() < deadline_ms:
            await pause()
            stored = await self._find_stored()
            if stored is not None and stored.heard_ms is not None and stored.heard_ms > heard_ms:
                return True
        return False

    def begin(self, since_ms: int) -> Absence:
        """Devices could not be heard since then, and can be from now on. One whose grace is not over yet is one with it."""
        if self.current is not None and self.is_open:
            since_ms = min(since_ms, self.current.since_ms)
        self.current = Absence(since_ms, self.clock.now_ms())
        self._grace_ends_ms = self.clock.monotonic_ms() + GRACE_MS
        self.begin_for_rules()
        return self.current

    def begin_step(self, since_ms: int) -> None:
        """The clock was set forward from there to the present."""
        self.stepped = Absence(since_ms, self.clock.now_ms())

    def stepped_over_s(self, due_ms: int) -> int:
        """The length of the step that left this time out; 0: none did."""
        if self.stepped is None or not self.stepped.since_ms < due_ms <= self.stepped.until_ms:
            return 0
        return (self.stepped.until_ms - self.stepped.since_ms) // SECOND_MS

    def follow_link(self) -> int | None:
        """Call every second or so. Returns since when devices cannot be heard, once when that begins; when they can be again, an
        absence ends. A broker that was lost and is back counts until the next call: its devices have yet to come back."""
        before, self._reconnects = self._reconnects, self.reconnects()
        hears = self.hears() and before in (None, self._reconnects)
        if not hears and self._cut_off_ms is None:
            self._cut_off_ms = self.clock.now_ms()
            return self._cut_off_ms
        if hears and self._cut_off_ms is not None:
            self.begin(self._cut_off_ms)
            self._cut_off_ms = None
        return None

    def begin_for_rules(self) -> None:
        """The engine has been told that it could not hear some devices."""
        self._rules_grace_ends_ms = self.clock.monotonic_ms() + GRACE_MS

    @property
    def rules_grace_left_ms(self) -> int:
        """Until then the timers of devices that have not spoken stand still."""
        return GRACE_MS if self.is_cut_off else max(0, self._rules_grace_ends_ms - self.clock.monotonic_ms())

    @property
    def is_open(self) -> bool:
        """Whether some device may still tell what it did meanwhile."""
        return self._grace_ends_ms is not None and self.clock.monotonic_ms() < self._grace_ends_ms

    @property
    def is_cut_off(self) -> bool:
        """Whether devices cannot be heard right now."""
        return self._cut_off_ms is not None

    @property
    def grace_left_ms(self) -> int:
        """All of it while devices cannot be heard."""
        if self.is_cut_off:
            return GRACE_MS
        return 0 if self._grace_ends_ms is None else max(0, self._grace_ends_ms - self.clock.monotonic_ms())

    def unheard_since_ms(self, device: Device) -> int | None:
        """Since when the device may have done what it has not told yet; None: it has spoken, its time is over, or it has never
        been seen."""
        if device.last_seen_ms is None:
            return None
        if self._cut_off_ms is not None:
            return self._cut_off_ms
        if self.current is None or not self.is_open or device.last_seen_ms >= self.current.until_ms:
            return None
        return self.current.since_ms

    def heard_ms(self) -> int | None:
        """Steady time up to which devices were heard and all of it was judged; None while that is not known."""
        if self.is_cut_off or self._grace_ends_ms is None or not self.hears():
            return None
        if self.clock.monotonic_ms() < self._grace_ends_ms + STORED_AFTER_MS:
            return None
        return self.clock.steady_ms()
