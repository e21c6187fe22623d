"""Device presence: one `device_online` or `device_offline` event per change, and none for a short interruption.

A lost connection starts a grace period; a reconnect within it cancels the pending offline. Pending offlines are kept in memory
and only the last announced state is stored. So after a restart every device stored as online gets a grace period, and is
announced as lost unless it reconnects. A connection that the service itself closed is announced at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from domain.devices.health import device_event
from domain.devices.link import LOST, REVOKED, STOPPED, TAKEN_OVER, OutboundDeviceMessagePort
from domain.devices.model import Device, DeviceStatus
from domain.devices.ports import NO_FRONT, DevicesTx
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import DomainEvent, EventKind
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import UnitOfWork

OFFLINE_GRACE_MS = 2_000
RESTART_GRACE_MS = 30_000
"""After a restart of the service or broker: firmware waits up to about half a minute before it reconnects."""
BATCH_SIZE = 500


@dataclass(frozen=True, slots=True)
class PendingOfflineDevice:
    """A device that is announced as offline at `due_ms` (monotonic) unless it has reconnected by then."""

    due_ms: int
    reason: str


@service
class PresenceService:
    """`wake` wakes the worker that calls `expire_due` at `next_due_ms`. `front`: this instance of a cluster; it
    announces only those devices as offline that have not connected to another instance."""

    uow: UnitOfWork[DevicesTx]
    clock: Clock
    link: OutboundDeviceMessagePort
    wake: Callable[[], None]
    grace_ms: int = OFFLINE_GRACE_MS
    restart_grace_ms: int = RESTART_GRACE_MS
    front: str | None = None
    _pending_offline: dict[DeviceId, PendingOfflineDevice] = field(default_factory=dict, init=False)
    needs_recovery: bool = field(default=True, init=False)
    """Whether connections may have ended without an event."""

    def on_connected(self, batch: PresenceBatch, device: Device, at_ms: int) -> None:
        if device.status is not DeviceStatus.ACTIVE:
            return  # the message was in flight when the device was disconnected
        self._pending_offline.pop(device.device_id, None)
        batch.touch(device, at_ms)
        batch.set_online(device, True, _presence_event(device, "device_online", "connected", at_ms))

    def on_disconnected(self, batch: PresenceBatch, device: Device, reason: str, at_ms: int) -> None:
        if reason == REVOKED:
            self._pending_offline.pop(device.device_id, None)
            batch.set_online(device, False, _presence_event(device, "device_offline", REVOKED, at_ms))
        elif reason in (STOPPED, TAKEN_OVER):  # a device that was taken over is found at its new instance when the period ends
            self._start_grace(device, LOST, self.restart_grace_ms)
        else:
            self._start_grace(device, reason, self.grace_ms)

    def on_status(self, batch: PresenceBatch, device: Device, online: bool, at_ms: int) -> None:
        """A status message of the device or its will. The will of a replaced connection may arrive late, so `offline` starts a
        grace period like any lost connection."""
        if online:
            self.on_connected(batch, device, at_ms)
        elif device.device_id not in self._pending_offline:
            self._start_grace(device, LOST, self.grace_ms)

    async def mark_revoked(self, tx: DevicesTx, device: Device, at_ms: int) -> None:
        """Announce the device as offline at once: the service has disconnected it."""
        tx.after_commit(lambda: self._forget(device.device_id))
        if await tx.devices.set_online(device.device_id, False):
            tx.emit(_presence_event(device, "device_offline", REVOKED, at_ms))

    def _forget(self, device_id: DeviceId) -> None:
        self._pending_offline.pop(device_id, None)

    async def recover(self) -> int:
        """At startup, and after connections ended without events: start the grace period of every device stored as online, unless
        another instance has its connection. Returns how many."""
        async with self.uow.read() as tx:
            online = await self._not_held_elsewhere(tx, await tx.devices.list_online())
        self.needs_recovery = False
        return self._start_restart_grace(online)

    async def begin_life(self) -> None:
        """The database has gone back and may not know who has connected or left since: announce as online whoever is connected
        here, say that this instance holds them, and give the others their grace. Raises Unavailable."""
        self.on_suspension_ended()
        async with self.uow.read() as tx:
            stored = await tx.credentials.list_of_active_devices()
            here = {device.device_no: device.device_id for device, _ in stored if self.link.is_connected(device.device_id)}
            fronts = await tx.device_sessions.fronts(here) if self.front is not None and here else {}
        unknown = {device_no for device_no in here if self.front is not None and fronts.get(device_no) != self.front}
        missing = {device.device_id for device, _ in stored if not device.is_online and self.link.is_connected(device.device_id)}
        if not missing and not unknown:
            return
        async with self.uow.write(caller=None) as tx:
            batch, now_ms = PresenceBatch(), self.clock.now_ms()
            devices = [each for each in await tx.devices.list_by_ids(missing) if self.link.is_connected(each.device_id)]
            for device in devices:
                self.on_connected(batch, device, now_ms)
            await batch.write(tx)
            if self.front is not None:
                held = {no: now_ms for no in unknown if self.link.is_connected(here[no])}
                await tx.device_sessions.attach(held, self.front)

    def on_suspension_ended(self) -> None:
        """Devices were disconnected, and what they told then was not stored."""
        self.needs_recovery = True
        self.wake()

    async def start_grace_of_lost_instances(self, live: Collection[str]) -> int:
        """Start the grace period of the devices that were connected to instances which are not `live`. Returns how many. In a
        cluster only."""
        if self.front is None:
            return 0
        async with self.uow.write(caller=None) as tx:
            numbers = set(await tx.device_sessions.abandon(live))
            found = await tx.devices.list_by_numbers(numbers) if numbers else ()
            online = [device for device in found if device.is_online]
            if found:  # those instances can no longer record what they have sent
                await tx.executions.mark_possibly_sent(self.clock.now_ms(), {device.device_id for device in found})
            await tx.device_sessions.detach(numbers - {device.device_no for device in online}, self.front)
        return self._start_restart_grace(online)

    async def _not_held_elsewhere(self, tx: DevicesTx, devices: Sequence[Device]) -> Sequence[Device]:
        if self.front is None or not devices:
            return devices
        fronts = await tx.device_sessions.fronts({device.device_no for device in devices})
        return [device for device in devices if fronts.get(device.device_no, NO_FRONT) in (NO_FRONT, self.front)]

    def _start_restart_grace(self, online: Sequence[Device]) -> int:
        due_ms = self.clock.monotonic_ms() + self.restart_grace_ms
        for device in online:
            self._pending_offline.setdefault(device.device_id, PendingOfflineDevice(due_ms, LOST))
        self.wake()
        return len(online)

    def next_due_ms(self) -> int | None:
        """Monotonic."""
        return min((pending.due_ms for pending in self._pending_offline.values()), default=None)

    async def expire_due(self) -> int:
        """Announce a bounded number of devices whose grace period is over, in one transaction. Returns how many were handled."""
        now_ms, monotonic_ms = self.clock.now_ms(), self.clock.monotonic_ms()
        expired = [(device_id, pending) for device_id, pending in self._pending_offline.items() if pending.due_ms <= monotonic_ms]
        due = dict(expired[:BATCH_SIZE])
        if not due:
            return 0
        async with self.uow.write(caller=None) as tx:
            batch = PresenceBatch()
            devices = await self._not_held_elsewhere(tx, await tx.devices.list_by_ids(set(due)))
            for device in devices:
                pending = due[device.device_id]
                if self._pending_offline.get(device.device_id) is pending and not self.link.is_connected(device.device_id):
                    batch.set_online(device, False, _presence_event(device, "device_offline", pending.reason, now_ms))
            await batch.write(tx)
            if self.front is not None:
                offline = {device.device_no for device in devices if not self.link.is_connected(device.device_id)}
                await tx.device_sessions.detach(offline, self.front)
        for device_id, pending in due.items():
            if self._pending_offline.get(device_id) is pending:
                del self._pending_offline[device_id]
        return len(due)

    def _start_grace(self, device: Device, reason: str, grace_ms: int) -> None:
        self._pending_offline[device.device_id] = PendingOfflineDevice(self.clock.monotonic_ms() + grace_ms, reason)
        self.wake()


def _presence_event(device: Device, kind: EventKind, reason: str, at_ms: int) -> DomainEvent:
    state = "online" if kind == "device_online" else "offline"
    return device_event(device, kind, f"Device is {state} ({reason})", at_ms, reason=reason)


class PresenceBatch:
    """Presence changes of one batch: decided in memory, in the order of the reports, and written together, in one statement per
    state. When a whole fleet connects at once, one statement per device would delay all other messages for seconds.

    The devices passed in must have been read in the same transaction."""

    def __init__(self) -> None:
        self._stored: dict[DeviceId, bool] = {}
        self._current: dict[DeviceId, bool] = {}
        self._last_seen_ms: dict[int, int] = {}
        self._last_event: dict[DeviceId, DomainEvent] = {}
        self._change_events: list[tuple[DeviceId, DomainEvent]] = []

    def touch(self, device: Device, at_ms: int) -> None:
        self._last_seen_ms[device.device_no] = max(at_ms, self._last_seen_ms.get(device.device_no, at_ms))

    def is_online(self, device: Device) -> bool:
        """After the reports so far."""
        return self._current.get(device.device_id, device.is_online)

    def set_online(self, device: Device, online: bool, event: DomainEvent) -> None:
        """Set the presence; `event` is emitted if this is a change."""
        before = self._stored.setdefault(device.device_id, device.is_online)
        if self._current.get(device.device_id, before) is not online:
            self._change_events.append((device.device_id, event))
        self._current[device.device_id] = online
        self._last_event[device.device_id] = event

    async def write(self, tx: DevicesTx) -> None:
        """Write all changes and emit their events. A concurrent writer has already emitted the event of a change that both made,
        so it is not emitted again; a change that reverts the other writer's is emitted although it was none when we read."""
        if self._last_seen_ms:
            await tx.devices.update_last_seen(self._last_seen_ms)
        changed: set[DeviceId] = set()
        for online in (True, False):
            device_ids = [device_id for device_id, now in self._current.items() if now is online]
            if device_ids:
                changed.update(await tx.devices.set_online_many(device_ids, online))
        expected = {device_id for device_id, online in self._current.items() if online is not self._stored[device_id]}
        not_emitted = {device_id: self._last_event[device_id] for device_id in expected - changed}
        for device_id, event in self._change_events:
            if not_emitted.get(device_id) is not event:
                tx.emit(event)
        for device_id in sorted(changed - expected):
            tx.emit(self._last_event[device_id])
