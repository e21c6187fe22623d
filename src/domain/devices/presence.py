"""Whether a device is there. One `device_online` or `device_offline` per change, and none for a flap.

A lost connection is only a suspicion: the device is on notice for a grace, and a reconnect within it cancels the notice. The
notices live in memory; what is stored is the last announced state, so after a restart every device still marked online is put on
notice, and is announced as lost unless it comes back. Where we cut the connection ourselves there is nothing to suspect.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from domain.devices.link import LOST, REVOKED, STOPPED, DeviceLink
from domain.devices.model import Device, DeviceStatus
from domain.devices.presence_batch import PresenceBatch, PresenceTx
from domain.kernel.clock import Clock
from domain.kernel.domain_events import DomainEvent, EventKind
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import UnitOfWork

OFFLINE_GRACE_MS = 2_000
RESTART_GRACE_MS = 30_000
"""After a restart of the service or its broker: firmwares back off for up to about half a minute before they try again."""
BATCH_SIZE = 500


@dataclass(frozen=True, slots=True)
class PendingOffline:
    """A device that is announced as gone at `due_ms` unless it is back by then."""

    due_ms: int
    reason: str


class PresenceService:
    def __init__(
        self,
        *,
        uow: UnitOfWork[PresenceTx],
        clock: Clock,
        link: DeviceLink,
        wake: Callable[[], None],
        grace_ms: int = OFFLINE_GRACE_MS,
        return_ms: int = RESTART_GRACE_MS,
    ) -> None:
        """`bell` wakes whoever calls `expire` at `next_due_ms`."""
        self._uow = uow
        self._clock = clock
        self._link = link
        self._wake = wake
        self._grace_ms = grace_ms
        self._restart_grace_ms = return_ms
        self._pending_offline: dict[DeviceId, PendingOffline] = {}

    def on_connected(self, roll: PresenceBatch, device: Device, at_ms: int) -> None:
        if device.status is not DeviceStatus.ACTIVE:
            return  # a message that was on its way when the device was shut out
        self._pending_offline.pop(device.device_id, None)
        roll.touch(device, at_ms)
        roll.set_online(device, True, _presence_event(device, "device_online", "connected", at_ms))

    def on_disconnected(self, roll: PresenceBatch, device: Device, reason: str, at_ms: int) -> None:
        if reason == REVOKED:
            self._pending_offline.pop(device.device_id, None)
            roll.set_online(device, False, _presence_event(device, "device_offline", REVOKED, at_ms))
        elif reason == STOPPED:
            self._start_grace(device, LOST, self._clock.now_ms() + self._restart_grace_ms)
        else:
            self._start_grace(device, reason, self._clock.now_ms() + self._grace_ms)

    def on_status(self, roll: PresenceBatch, device: Device, online: bool, at_ms: int) -> None:
        """The device's own word, or its will's. The will of a connection that a new one has replaced may come late, so an
        `offline` is a suspicion like any other."""
        if online:
            self.on_connected(roll, device, at_ms)
        elif device.device_id not in self._pending_offline:
            self._start_grace(device, LOST, self._clock.now_ms() + self._grace_ms)

    async def mark_revoked(self, tx: PresenceTx, device: Device, at_ms: int) -> None:
        """Announce at once: we have shut the device out."""
        self._pending_offline.pop(device.device_id, None)
        if await tx.devices.set_online(device.device_id, False):
            await tx.emit(_presence_event(device, "device_offline", REVOKED, at_ms))

    async def recover(self) -> int:
        """At start: put every device that is marked online on notice. Returns how many."""
        async with self._uow.read() as tx:
            marked = await tx.devices.list_online()
        due_ms = self._clock.now_ms() + self._restart_grace_ms
        for device in marked:
            self._pending_offline.setdefault(device.device_id, PendingOffline(due_ms, LOST))
        self._wake()
        return len(marked)

    def next_due_ms(self) -> int | None:
        return min((notice.due_ms for notice in self._pending_offline.values()), default=None)

    async def expire_due(self) -> int:
        """Announce devices whose grace is over, a bounded number in one transaction. Returns how many notices were settled."""
        now_ms = self._clock.now_ms()
        due = [(device_id, notice) for device_id, notice in self._pending_offline.items() if notice.due_ms <= now_ms][:BATCH_SIZE]
        if not due:
            return 0
        told = dict(due)
        async with self._uow.write() as tx:
            roll = PresenceBatch()
            for device in await tx.devices.list_by_ids({device_id for device_id, _ in due}):
                notice = told[device.device_id]
                if self._pending_offline.get(device.device_id) is notice and not self._link.is_connected(device.device_id):
                    roll.set_online(device, False, _presence_event(device, "device_offline", notice.reason, now_ms))
            await roll.write(tx)
        for device_id, notice in due:
            if self._pending_offline.get(device_id) is notice:
                del self._pending_offline[device_id]
        return len(due)

    def _start_grace(self, device: Device, reason: str, due_ms: int) -> None:
        self._pending_offline[device.device_id] = PendingOffline(due_ms, reason)
        self._wake()


def _presence_event(device: Device, kind: EventKind, reason: str, at_ms: int) -> DomainEvent:
    state = "online" if kind == "device_online" else "offline"
    return DomainEvent(
        account_id=device.account_id,
        kind=kind,
        description=f"Device is {state} ({reason})",
        at_ms=at_ms,
        source="device",
        device_id=device.device_id,
        data={"reason": reason},
        device_name=device.name,
    )
