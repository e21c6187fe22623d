"""Wait for what becomes of a submitted command: first for the decision, where it needs approval, then for the device's result."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from domain.approvals.model import Approval, ApprovalStatus
from domain.approvals.ports import ApprovalWaiter, HasApprovals
from domain.commands.command_submission import CommandSubmissionResult
from domain.commands.model import Execution
from domain.commands.ports import ExecutionWaiter, HasCommandExecutions
from domain.kernel.clock import SECOND_MS, Clock
from domain.kernel.dataclasses import service
from domain.kernel.errors import NotFound
from domain.kernel.ids import ExecutionId
from domain.kernel.unit_of_work import UnitOfWork


class SubmittedCommandWaiterTx(HasApprovals, HasCommandExecutions, Protocol): ...


@service
class SubmittedCommandWaiter:
    uow: UnitOfWork[SubmittedCommandWaiterTx]
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
