"""Read devices and executions.

A session sees everything in its account. An API key sees only what its unexpired grants allow it to read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from domain.accounts.ports import HasProjects
from domain.commands.model import Execution
from domain.commands.ports import HasExecutions
from domain.devices.health import UNKNOWN_HEALTH, HasDeviceHealth
from domain.devices.lookup import get_device
from domain.devices.model import DeviceStatus
from domain.devices.ports import HasDevices
from domain.devices.service import DeviceDetails
from domain.grants.authorizer import Authorizer
from domain.grants.ports import AuthorizationTx
from domain.kernel.caller import ApiKeyCaller, Caller
from domain.kernel.clock import Clock
from domain.kernel.errors import NotFound
from domain.kernel.ids import DeviceId, ExecutionId, ProjectId
from domain.kernel.unit_of_work import UnitOfWork

MAX_PAGE_SIZE = 200


class DeviceQueryTx(AuthorizationTx, HasDeviceHealth, HasDevices, HasExecutions, HasProjects, Protocol): ...


@dataclass(frozen=True, slots=True)
class ExecutionPage:
    """`next_seq`: pass it as `before_seq` for the next page; None on the last page."""

    executions: tuple[Execution, ...]
    next_seq: int | None


class DeviceQueryService:
    def __init__(self, *, uow: UnitOfWork[DeviceQueryTx], clock: Clock, authorizer: Authorizer) -> None:
        self._uow = uow
        self._clock = clock
        self._authorizer = authorizer

    async def list_devices(self, caller: Caller, project_id: ProjectId | None = None) -> Sequence[DeviceDetails]:
        """Oldest first. An unknown project raises NotFound for a session and is empty for an API key."""
        async with self._uow.read() as tx:
            projects = {
                project.project_id: project for project, _ in await tx.projects.list_with_device_counts(caller.account_id)
            }
            if project_id is not None and project_id not in projects:
                if isinstance(caller, ApiKeyCaller):
                    return []
                raise NotFound.for_resource("project", project_id)
            devices = [
                device
                for device in await tx.devices.list(caller.account_id, project_id)
                if device.status is not DeviceStatus.DELETING
            ]
            devices = await self._authorizer.filter_readable(tx, caller, devices, self._clock.now_ms())
            health = await tx.device_health.list_by_numbers({device.device_no for device in devices})
        return [
            DeviceDetails(device, projects[device.project_id], health.get(device.device_no, UNKNOWN_HEALTH))
            for device in devices
            if device.project_id in projects
        ]

    async def list_executions(
        self, caller: Caller, device_id: DeviceId, *, limit: int, before_seq: int | None = None
    ) -> ExecutionPage:
        """Newest first."""
        async with self._uow.read() as tx:
            await self._check_readable(tx, caller, device_id)
            found = await tx.executions.page(device_id, limit=min(limit, MAX_PAGE_SIZE) + 1, before_seq=before_seq)
        page = tuple(found[: min(limit, MAX_PAGE_SIZE)])
        return ExecutionPage(page, page[-1].seq if len(found) > len(page) else None)

    async def get_execution(self, caller: Caller, device_id: DeviceId, execution_id: ExecutionId) -> Execution:
        async with self._uow.read() as tx:
            await self._check_readable(tx, caller, device_id)
            execution = await tx.executions.get(caller.account_id, execution_id)
        if execution is None or execution.device_id != device_id:
            raise NotFound.for_resource("execution of this device", execution_id)
        return execution

    async def _check_readable(self, tx: DeviceQueryTx, caller: Caller, device_id: DeviceId) -> None:
        device = await get_device(tx, caller.account_id, device_id)
        now_ms = self._clock.now_ms()
        await self._authorizer.authorize(tx, caller, device, command=None, is_query=True, now_ms=now_ms)
