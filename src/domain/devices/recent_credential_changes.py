"""The devices whose credentials this instance has taken away or replaced lately, for the other instances of a cluster.

An instance that does not reach the database cannot read which devices were revoked. It asks the others for these.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from domain.devices.model import DeviceCredentials
from domain.kernel.clock import Clock
from domain.kernel.ids import DeviceId

MAX_CHANGES = 10_000


class RecentCredentialChanges:
    def __init__(self, clock: Clock, limit: int = MAX_CHANGES) -> None:
        self._clock = clock
        self._changes: deque[tuple[int, DeviceId]] = deque(maxlen=limit)
        """(when, monotonic ms; device), oldest first."""
        self._admitted: dict[DeviceId, int] = {}
        """The hash of the sealed password with which each device may connect."""

    def on_admitted(self, credentials: DeviceCredentials) -> None:
        """The device may connect with this password. That is a change only if it had another one: other instances may still know
        that. A renamed device keeps its password."""
        device_id, sealed = credentials.device_id, hash(credentials.sealed)
        if self._admitted.get(device_id, sealed) != sealed:
            self._add(device_id)
        self._admitted[device_id] = sealed

    def on_start(self, admitted: Iterable[DeviceCredentials]) -> None:
        """These devices may connect since the start."""
        self._admitted.update({each.device_id: hash(each.sealed) for each in admitted})

    def on_refused(self, device_id: DeviceId) -> None:
        """The device may not connect any more."""
        self._admitted.pop(device_id, None)
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
