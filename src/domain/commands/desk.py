"""What must be known of devices before commands are queued for them, looked up once for all of them.

Two looks for any number of devices: their definitions, and how many of their commands have not ended. From then on every
decision is made without I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from domain.commands import policy
from domain.commands.model import Definition, TriggeredBy
from domain.commands.ports import CommandsTx, Facing
from domain.devices.model import Device, DeviceStatus
from domain.grants.model import Subject
from domain.grants.service import subject_of
from domain.kernel.caller import ApiKeyCaller, Session, System
from domain.kernel.errors import Conflict, NotFound
from domain.kernel.facts import Json
from domain.kernel.ids import AccountId, DeviceId

Named = Mapping[str, Definition]
_NONE: Named = {}


@dataclass(slots=True)
class Desk:
    """`_own`: the definitions of each device and, by their own ids, of each type."""

    _own: dict[str, dict[str, Definition]]
    _open: dict[DeviceId, int]

    @classmethod
    async def of(cls, tx: CommandsTx, devices: Sequence[Device]) -> Desk:
        device_ids = {device.device_id for device in devices}
        types = {device.device_type_id for device in devices if device.device_type_id is not None}
        own: dict[str, dict[str, Definition]] = {}
        for definition in await tx.definitions.of_all(device_ids, types):
            place = definition.device_id or definition.device_type_id or ""
            own.setdefault(place, {})[definition.name] = definition
        return cls(own, dict(await tx.executions.open_counts(device_ids)))

    @classmethod
    def at(cls, facing: Facing) -> Desk:
        """For one device that was looked up already, with everything else."""
        own: dict[str, dict[str, Definition]] = {}
        for definition in facing.definitions:
            own.setdefault(definition.device_id or definition.device_type_id or "", {})[definition.name] = definition
        return cls(own, {facing.device.device_id: facing.open})

    def named(self, device: Device, cmd: str) -> Definition:
        """What counts for the device under this name. Raises Invalid `UNKNOWN_COMMAND`."""
        of_device, of_type = self._of(device)
        found = of_device.get(cmd) or of_type.get(cmd) or policy.BUILT_IN.get(cmd)
        return found or policy.named(policy.effective(of_type.values(), of_device.values()), cmd)

    def take_place(self, device: Device) -> None:
        """One command more of the device is open. Raises Conflict `TOO_MANY_QUEUED`."""
        present = self._open.get(device.device_id, 0)
        if present >= policy.MAX_OPEN:
            raise Conflict(
                f"{policy.MAX_OPEN} commands of this device have not ended yet. Wait for them, or give a shorter ttlSeconds.",
                code="TOO_MANY_QUEUED",
            )
        self._open[device.device_id] = present + 1

    def give_back(self, device: Device) -> None:
        """A place that was taken is not needed after all."""
        self._open[device.device_id] -= 1

    def _of(self, device: Device) -> tuple[Named, Named]:
        return self._own.get(device.device_id, _NONE), self._own.get(device.device_type_id or "", _NONE)


async def facing_of(tx: CommandsTx, caller: Session | ApiKeyCaller, device_id: DeviceId) -> Facing:
    """All that a command of this caller for the device is decided by. Raises NotFound."""
    return await facing_in(tx, caller.account_id, device_id, subject_of(caller))


async def facing_in(tx: CommandsTx, account_id: AccountId, device_id: DeviceId, subject: Subject | None) -> Facing:
    """The same with the grants of this subject. Raises NotFound."""
    facing = await tx.facing.of(account_id, device_id, subject)
    if facing is None or facing.device.status is DeviceStatus.DELETING:
        raise NotFound.of("device", device_id)
    return facing


@dataclass(frozen=True, slots=True)
class Request:
    """A command for a device, as it was asked for."""

    device: Device
    cmd: str
    params: Json
    ttl_ms: int


@dataclass(frozen=True, slots=True)
class Errand:
    """A command that runs with nobody present."""

    caller: System
    request: Request
    source: TriggeredBy
