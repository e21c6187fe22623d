"""Who may connect, told to the link: always from what is stored, never from what somebody meant to change.

A change is committed first and carried to the link before it is answered. Two changes of one device may overtake each other on
the way, so the link is not told the change but the state: read and told one at a time. A link that fails loses nothing: the
device stays in the link's debt and is told again later, and a start tells everything. A device whose password no key of the ring
opens cannot be let in, and is no reason to let nobody in.
"""

from __future__ import annotations

from collections.abc import Callable

from domain.devices.link import DeviceLink
from domain.devices.model import Device, DeviceCredentials, DeviceStatus
from domain.devices.ports import DevicesTx, Vault
from domain.kernel.errors import SecretUnreadable
from domain.kernel.ids import DeviceId
from domain.kernel.turnstile import Turnstile
from domain.kernel.unit_of_work import UnitOfWork

BATCH = 100


class Admission:
    def __init__(
        self,
        *,
        uow: UnitOfWork[DevicesTx],
        link: DeviceLink,
        vault: Vault,
        turnstile: Turnstile,
        bell: Callable[[], None],
        on_admitted: Callable[[DeviceId], None],
    ) -> None:
        """`bell` wakes whoever calls `settle_owed`. `on_admitted`: an expelled device's retained messages are gone, so what the
        link should hold for it (the schedule plan) must be told anew. `turnstile` is the admission's own."""
        self._uow = uow
        self._link = link
        self._vault = vault
        self._turnstile = turnstile
        self._bell = bell
        self._on_admitted = on_admitted
        self._owed: set[DeviceId] = set()
        self.failures = 0
        self.unreadable = 0
        """Devices that the last start could not let in, because their passwords were sealed with keys that are lost."""

    @property
    def owed(self) -> int:
        """Devices whose stored state the link does not know yet."""
        return len(self._owed)

    async def settle(self, device_id: DeviceId) -> bool:
        """Bring the link in line with the database. False when the link failed; it will be told again."""
        try:
            async with self._turnstile:
                await self._tell(device_id)
        except Exception:  # whatever a link or its broker may raise: the stored change holds, and must be answered
            self.failures += 1
            self._owed.add(device_id)
            self._bell()
            return False
        self._owed.discard(device_id)
        return True

    async def settle_owed(self) -> bool:
        """Try again for some that failed. True when nothing is owed any more."""
        for device_id in list(self._owed)[:BATCH]:
            if not await self.settle(device_id):
                return False
        return not self._owed

    async def admit_all(self) -> int:
        """At start: every device that may connect. Returns how many. Raises what the link raises."""
        async with self._uow.read() as tx:
            stored = await tx.credentials.admitted()
        admitted = [await self._admit(device, credentials) for device, credentials in stored]
        self.unreadable = admitted.count(False)
        return admitted.count(True)

    async def _tell(self, device_id: DeviceId) -> None:
        async with self._uow.read() as tx:
            device = await tx.devices.find(device_id)
            credentials = await tx.credentials.get(device_id)
        if device is None or credentials is None or device.status is not DeviceStatus.ACTIVE:
            await self._link.expel(device_id)
        elif await self._admit(device, credentials):
            self._on_admitted(device_id)
        else:
            await self._link.expel(device_id)

    async def _admit(self, device: Device, credentials: DeviceCredentials) -> bool:
        try:
            password = self._vault.open(credentials.sealed, device.device_id)
        except SecretUnreadable:
            return False
        await self._link.admit(device.device_id, device.device_no, password, device.profile)
        return True
