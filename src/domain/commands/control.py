"""What a caller of the Device Control family may look at: devices, executions, and a device's audit log.

A session sees all of its account. A key sees what a grant that has not expired lets it read, and of the rest nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.commands.model import Execution
from domain.commands.ports import CommandsTx
from domain.devices.lookup import device_of
from domain.devices.model import DeviceStatus
from domain.devices.service import Registered
from domain.grants.service import Gate
from domain.kernel.caller import ApiKeyCaller, Caller
from domain.kernel.clock import Clock
from domain.kernel.errors import NotFound
from domain.kernel.ids import DeviceId, ExecutionId, ProjectId
from domain.kernel.unit_of_work import UnitOfWork

MAX_PAGE = 200


@dataclass(frozen=True, slots=True)
class ExecutionPage:
    """`next_seq` is where the next page begins, None on the last one."""

    executions: tuple[Execution, ...]
    next_seq: int | None


class ControlService:
    def __init__(self, *, uow: UnitOfWork[CommandsTx], clock: Clock, gate: Gate) -> None:
        self._uow = uow
        self._clock = clock
        self._gate = gate

    async def devices(self, caller: Caller, project_id: ProjectId | None = None) -> Sequence[Registered]:
        """Oldest first. Raises NotFound for a session that names an unknown project; for a key that is simply empty."""
        async with self._uow.read() as tx:
            projects = {project.project_id: project for project, _ in await tx.projects.list(caller.account_id)}
            if project_id is not None and project_id not in projects:
                if isinstance(caller, ApiKeyCaller):
                    return []
                raise NotFound.of("project", project_id)
            devices = [
                device
                for device in await tx.devices.list(caller.account_id, project_id)
                if device.status is not DeviceStatus.DELETING
            ]
            devices = await self._gate.visible(tx, caller, devices, self._clock.now_ms())
        return [Registered(device, projects[device.project_id]) for device in devices if device.project_id in projects]

    async def executions(
        self, caller: Caller, device_id: DeviceId, *, limit: int, before_seq: int | None = None
    ) -> ExecutionPage:
        """Newest first."""
        async with self._uow.read() as tx:
            await self._readable(tx, caller, device_id)
            found = await tx.executions.page(device_id, limit=min(limit, MAX_PAGE) + 1, before_seq=before_seq)
        page = tuple(found[: min(limit, MAX_PAGE)])
        return ExecutionPage(page, page[-1].seq if len(found) > len(page) else None)

    async def execution(self, caller: Caller, device_id: DeviceId, execution_id: ExecutionId) -> Execution:
        async with self._uow.read() as tx:
            await self._readable(tx, caller, device_id)
            execution = await tx.executions.get(caller.account_id, execution_id)
        if execution is None or execution.device_id != device_id:
            raise NotFound.of("execution of this device", execution_id)
        return execution

    async def _readable(self, tx: CommandsTx, caller: Caller, device_id: DeviceId) -> None:
        device = await device_of(tx, caller.account_id, device_id)
        now_ms = self._clock.now_ms()
        await self._gate.permit(tx, caller, device, command=None, is_query=True, now_ms=now_ms)
