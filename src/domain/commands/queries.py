"""Read devices and executions, and wait for what becomes of a command.

A session sees everything in its account. An API key sees only what its unexpired grants allow it to read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from domain.approvals.model import Approval, ApprovalStatus
from domain.approvals.ports import ApprovalWaiter
from domain.commands.model import Execution
from domain.commands.ports import CommandsTx, ExecutionWaiter
from domain.commands.submission import CommandSubmissionResult
from domain.devices.model import UNKNOWN_HEALTH, Device
from domain.devices.search import DeviceCounts, DeviceSearch
from domain.devices.service import DeviceDetails
from domain.grants.authorizer import Authorizer, get_readable_device
from domain.kernel.caller import ApiKeyCaller, Caller, SessionCaller
from domain.kernel.clock import ANY_TIME, SECOND_MS, Clock, TimeSpan
from domain.kernel.cursors import Position
from domain.kernel.dataclasses import service
from domain.kernel.errors import NotFound
from domain.kernel.ids import DeviceId, ExecutionId
from domain.kernel.unit_of_work import UnitOfWork

ALL_DEVICES = DeviceSearch()


@dataclass(frozen=True, slots=True)
class DevicePage:
    """`total`: how many devices match on all pages."""

    devices: Sequence[DeviceDetails]
    total: int


@service
class DeviceQueries:
    uow: UnitOfWork[CommandsTx]
    clock: Clock
    authorizer: Authorizer

    async def list_devices(self, caller: Caller, search: DeviceSearch = ALL_DEVICES) -> DevicePage:
        """A key finds the devices that its grants cover. An unknown project raises NotFound for a session and is empty for an API
        key."""
        async with self.uow.read() as tx:
            projects = {
                project.project_id: project for project, _ in await tx.projects.list_with_device_counts(caller.account_id)
            }
            if search.project_id is not None and search.project_id not in projects:
                if isinstance(caller, ApiKeyCaller):
                    return DevicePage([], 0)
                raise NotFound.for_resource("project", search.project_id)
            devices, total = await self._find_devices(tx, caller, search)
            health = await tx.device_health.list_by_numbers({device.device_no for device in devices})
        found = [
            DeviceDetails(device, projects[device.project_id], health.get(device.device_no, UNKNOWN_HEALTH))
            for device in devices
            if device.project_id in projects
        ]
        return DevicePage(found, total)

    async def _find_devices(self, tx: CommandsTx, caller: Caller, search: DeviceSearch) -> tuple[Sequence[Device], int]:
        """The page, and how many match. What a key may read is known only after reading, so its page is cut here."""
        if not isinstance(caller, ApiKeyCaller):
            devices = await tx.device_search.find(caller.account_id, search)
            is_all = search.limit is None and search.after is None
            return devices, len(devices) if is_all else await tx.device_search.count(caller.account_id, search)
        found = await tx.device_search.find(caller.account_id, replace(search, limit=None, after=None))
        readable = await self.authorizer.filter_readable(tx, caller, list(found), self.clock.now_ms())
        total = len(readable)
        if search.after is not None:
            behind = {each.device_id for each in await tx.device_search.find(caller.account_id, replace(search, limit=None))}
            readable = [device for device in readable if device.device_id in behind]
        return readable[: search.limit], total

    async def count_devices(self, caller: SessionCaller) -> DeviceCounts:
        async with self.uow.read() as tx:
            return await tx.device_search.count_by_state(caller.account_id)

    async def list_executions(
        self, caller: Caller, device_id: DeviceId, *, limit: int, before: Position | None = None, created: TimeSpan = ANY_TIME
    ) -> Sequence[Execution]:
        """Newest first. Raises NotFound."""
        async with self.uow.read() as tx:
            await get_readable_device(tx, self.authorizer, caller, device_id, self.clock.now_ms())
            return await tx.executions.page(device_id, limit=limit, before=before, created=created)

    async def get_execution(self, caller: Caller, device_id: DeviceId, execution_id: ExecutionId) -> Execution:
        async with self.uow.read() as tx:
            await get_readable_device(tx, self.authorizer, caller, device_id, self.clock.now_ms())
            execution = await tx.executions.get(caller.account_id, execution_id)
        if execution is None or execution.device_id != device_id:
            raise NotFound.for_resource("execution of this device", execution_id)
        return execution


@service
class SubmittedCommandWaiter:
    """Waits for what becomes of a submitted command: first for the decision, where it needs approval, then for the device's
    result."""

    uow: UnitOfWork[CommandsTx]
    clock: Clock
    execution_waiter: ExecutionWaiter
    approval_waiter: ApprovalWaiter

    async def wait(self, submitted: CommandSubmissionResult, wait_s: float) -> CommandSubmissionResult:
        """The finished execution, or the state of the command after `wait_s` seconds. A request that is denied or expires has no
        execution: the result is its approval."""
        began_ms = self.clock.monotonic_ms()
        execution = submitted.execution
        if submitted.approval is not None:
            approval = await self.wait_for_decision(submitted.approval, wait_s)
            if approval.execution_id is None:
                return replace(submitted, approval=approval)
            execution = await self._load(approval.execution_id)
            waited_s = (self.clock.monotonic_ms() - began_ms) / SECOND_MS
            wait_s = max(0.0, wait_s - waited_s)
        if execution is None:
            raise AssertionError("a submitted command is an execution or an approval")
        return replace(submitted, approval=None, execution=await self.wait_for_result(execution, wait_s))

    async def wait_for_result(self, execution: Execution, wait_s: float) -> Execution:
        """The finished execution, or its state after `wait_s` seconds."""
        with self.execution_waiter.watch(execution.execution_id, execution.requested_by) as watch:
            current = await self._load(execution.execution_id)
            if current.status.is_final:
                return current
            return await watch.wait(wait_s) or await self._load(execution.execution_id)

    async def wait_for_decision(self, approval: Approval, wait_s: float) -> Approval:
        """The decided approval, or its state after `wait_s` seconds."""
        with self.approval_waiter.watch(approval.approval_id, approval.requested_by.label) as watch:
            current = await self._load_approval(approval)
            if current.status is not ApprovalStatus.PENDING:
                return current
            return await watch.wait(wait_s) or await self._load_approval(approval)

    async def _load(self, execution_id: ExecutionId) -> Execution:
        async with self.uow.read(one_statement=True) as tx:
            current = await tx.executions.find(execution_id)
        if current is None:
            raise NotFound.for_resource("execution", execution_id)
        return current

    async def _load_approval(self, approval: Approval) -> Approval:
        async with self.uow.read(one_statement=True) as tx:
            current = await tx.approvals.get(approval.account_id, approval.approval_id)
        if current is None:
            raise NotFound.for_resource("approval", approval.approval_id)
        return current
