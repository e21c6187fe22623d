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
from domain.devices.ports import DevicesTx
from domain.devices.rollcall import RollCall
from domain.kernel.clock import Clock
from domain.kernel.facts import EventKind, Fact
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import UnitOfWork

GRACE_MS = 2_000
RETURN_MS = 30_000
"""After a restart of the service or its broker: firmwares back off for up to about half a minute before they try again."""
BATCH = 500


@dataclass(frozen=True, slots=True)
class Notice:
    """A device that is announced as gone at `due_ms` unless it is back by then."""

    due_ms: int
    reason: str


class PresenceService:
    def __init__(
        self,
        *,
        uow: UnitOfWork[DevicesTx],
        clock: Clock,
        link: DeviceLink,
        bell: Callable[[], None],
        grace_ms: int = GRACE_MS,
        return_ms: int = RETURN_MS,
    ) -> None:
        """`bell` wakes whoever calls `expire` at `next_due_ms`."""
        self._uow = uow
        self._clock = clock
        self._link = link
        self._bell = bell
        self._grace_ms = grace_ms
        self._return_ms = return_ms
        self._notices: dict[DeviceId, Notice] = {}

    def on_connected(self, roll: RollCall, device: Device, at_ms: int) -> None:
        if device.status is not DeviceStatus.ACTIVE:
            return  # a message that was on its way when the device was shut out
        self._notices.pop(device.device_id, None)
        roll.saw(device, at_ms)
        roll.put(device, True, _fact(device, "device_online", "connected", at_ms))

    def on_disconnected(self, roll: RollCall, device: Device, reason: str, at_ms: int) -> None:
        if reason == REVOKED:
            self._notices.pop(device.device_id, None)
            roll.put(device, False, _fact(device, "device_offline", REVOKED, at_ms))
        elif reason == STOPPED:
            self._suspect(device, LOST, self._clock.now_ms() + self._return_ms)
        else:
            self._suspect(device, reason, self._clock.now_ms() + self._grace_ms)

    def on_status(self, roll: RollCall, device: Device, online: bool, at_ms: int) -> None:
        """The device's own word, or its will's. The will of a connection that a new one has replaced may come late, so an
        `offline` is a suspicion like any other."""
        if online:
            self.on_connected(roll, device, at_ms)
        elif device.device_id not in self._notices:
            self._suspect(device, LOST, self._clock.now_ms() + self._grace_ms)

    async def gone(self, tx: DevicesTx, device: Device, at_ms: int) -> None:
        """Announce at once: we have shut the device out."""
        self._notices.pop(device.device_id, None)
        if await tx.devices.set_online(device.device_id, False):
            await tx.record(_fact(device, "device_offline", REVOKED, at_ms))

    async def recover(self) -> int:
        """At start: put every device that is marked online on notice. Returns how many."""
        async with self._uow.read() as tx:
            marked = await tx.devices.online()
        due_ms = self._clock.now_ms() + self._return_ms
        for device in marked:
            self._notices.setdefault(device.device_id, Notice(due_ms, LOST))
        self._bell()
        return len(marked)

    def next_due_ms(self) -> int | None:
        return min((notice.due_ms for notice in self._notices.values()), default=None)

    async def expire(self) -> int:
        """Announce devices whose grace is over, a bounded number in one transaction. Returns how many notices were settled."""
        now_ms = self._clock.now_ms()
        due = [(device_id, notice) for device_id, notice in self._notices.items() if notice.due_ms <= now_ms][:BATCH]
        if not due:
            return 0
        told = dict(due)
        async with self._uow.write() as tx:
            roll = RollCall()
            for device in await tx.devices.find_all({device_id for device_id, _ in due}):
                notice = told[device.device_id]
                if self._notices.get(device.device_id) is notice and not self._link.connected(device.device_id):
                    roll.put(device, False, _fact(device, "device_offline", notice.reason, now_ms))
            await roll.write(tx)
        for device_id, notice in due:
            if self._notices.get(device_id) is notice:
                del self._notices[device_id]
        return len(due)

    def _suspect(self, device: Device, reason: str, due_ms: int) -> None:
        self._notices[device.device_id] = Notice(due_ms, reason)
        self._bell()


def _fact(device: Device, kind: EventKind, reason: str, at_ms: int) -> Fact:
    state = "online" if kind == "device_online" else "offline"
    return Fact(
        account_id=device.account_id,
        kind=kind,
        description=f"Device is {state} ({reason})",
        at_ms=at_ms,
        source="device",
        device_id=device.device_id,
        data={"reason": reason},
        device_name=device.name,
    )
