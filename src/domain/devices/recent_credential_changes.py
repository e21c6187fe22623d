"""The devices whose credentials this instance has taken away or replaced lately, for the other instances of a cluster.

An instance that does not reach the database cannot read which devices were revoked. It asks the others for these.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

from domain.kernel.clock import Clock
from domain.kernel.ids import DeviceId

MAX_CHANGES = 10_000


class RecentCredentialChanges:
    def __init__(self, clock: Clock, limit: int = MAX_CHANGES) -> None:
        self._clock = clock
        self._changes: deque[tuple[int, DeviceId]] = deque(maxlen=limit)
        """(when, monotonic ms; device), oldest first."""
        self._known: set[DeviceId] = set()

    def on_admitted(self, device_id: DeviceId) -> None:
        """The device may connect with its stored password. A device that may do so for the first time is no change: no instance
        knows an older password of it."""
        if device_id in self._known:
            self._add(device_id)
        self._known.add(device_id)

    def on_start(self, device_ids: Collection[DeviceId]) -> None:
        """These devices may connect since the start."""
        self._known.update(device_ids)

    def on_refused(self, device_id: DeviceId) -> None:
        """The device may not connect any more."""
        self._known.discard(device_id)
        self._add(device_id)

    def of_last(self, period_ms: int) -> Sequence[DeviceId] | None:
        """The devices that changed within the period; None if there were more changes than are kept."""
        since_ms = self._clock.monotonic_ms() - period_ms
        is_full = len(self._changes) == self._changes.maxlen
        if is_full and self._changes[0][0] >= since_ms:
            return None
        return sorted({device_id for at_ms, device_id in self._changes if at_ms >= since_ms})

    def _add(self, device_id: DeviceId) -> None:
        self._changes.append((self._clock.monotonic_ms(), device_id))
