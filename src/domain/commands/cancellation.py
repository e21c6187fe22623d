"""Call off commands that wait for their device. What was sent cannot be called off; another command can undo it."""

from __future__ import annotations

from collections.abc import Sequence

from domain.commands.authority import CALLED_OFF, QueuedCommandAuthority
from domain.commands.contexts import get_context_for_caller, permission_request
from domain.commands.model import CommandContext, Execution, ExecutionStatus, find_definition
from domain.commands.ports import CommandsTx
from domain.grants.authorizer import Authorizer
from domain.grants.checks import GrantCheckInput
from domain.kernel.caller import ApiKeyCaller, Role, SessionCaller
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.errors import Conflict, NotFound, PermissionDenied
from domain.kernel.ids import DeviceId, ExecutionId
from domain.kernel.unit_of_work import UnitOfWork

NEVER_SENT = (ExecutionStatus.CANCELLED, ExecutionStatus.EXPIRED)


@service
class CommandCancellationService:
    """Owners and Admins call off everything; others what they asked for themselves, and what they might send. An API key calls
    off its own commands."""

    uow: UnitOfWork[CommandsTx]
    clock: Clock
    authorizer: Authorizer
    authority: QueuedCommandAuthority

    async def cancel(self, caller: SessionCaller | ApiKeyCaller, device_id: DeviceId, execution_id: ExecutionId) -> int:
        """How many were called off: 0 for one that had ended without being sent.

        Raises NotFound, PermissionDenied, Conflict `ALREADY_SENT`, also for one that may have been sent before a crash; that one
        is not sent any more."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.VIEWER) as tx:
            context = await get_context_for_caller(tx, caller, device_id)
            execution = await tx.executions.get(caller.account_id, execution_id)
            if execution is None or execution.device_id != device_id:
                raise NotFound.for_resource("execution of this device", execution_id)
            await self._check_may_cancel(tx, caller, context, execution, now_ms)
            if execution.status in NEVER_SENT:
                return 0
            if execution.status is ExecutionStatus.QUEUED:
                cancelled = await self._end(tx, caller, [execution], now_ms)
                if execution.sent_ms is None and cancelled:
                    return cancelled
        raise Conflict(
            "This command was sent, or may have been. Read its execution; to undo it, send another command.", code="ALREADY_SENT"
        )

    async def cancel_all(self, caller: SessionCaller, device_id: DeviceId) -> int:
        """How many of the device's waiting commands were called off. Raises NotFound; PermissionDenied when the caller may not
        call off one of them: then none is."""
        now_ms = self.clock.now_ms()
        async with self.uow.write(caller, Role.MEMBER) as tx:
            context = await get_context_for_caller(tx, caller, device_id)
            found = await tx.executions.list_open_by_device(device_id)
            queued = [each for each in found if each.status is ExecutionStatus.QUEUED]
            for each in queued:
                await self._check_may_cancel(tx, caller, context, each, now_ms)
            return await self._end(tx, caller, queued, now_ms)

    async def _check_may_cancel(
        self, tx: CommandsTx, caller: SessionCaller | ApiKeyCaller, context: CommandContext, execution: Execution, now_ms: int
    ) -> None:
        if isinstance(caller, ApiKeyCaller):
            if not context.grants:
                await self.authorizer.authorize(tx, caller, context.device, GrantCheckInput(None), now_ms, known=context.grants)
            if execution.key_id != caller.key_id:
                raise PermissionDenied(
                    "An API key calls off only commands that it sent itself. Ask an Owner or Admin.", code="COMMAND_NOT_GRANTED"
                )
            return
        if execution.key_id is None and execution.membership_id == caller.membership_id:
            return
        definition = find_definition(context, execution.cmd, execution.channel)
        request = (
            GrantCheckInput(execution.cmd, channels=(execution.channel,))
            if definition is None
            else permission_request(context.device, definition, execution.channel)
        )
        await self.authorizer.authorize(tx, caller, context.device, request, now_ms, spend=False, known=context.grants)

    async def _end(self, tx: CommandsTx, caller: SessionCaller | ApiKeyCaller, queued: Sequence[Execution], now_ms: int) -> int:
        codes = {each.execution_id: CALLED_OFF for each in queued}
        events = await self.authority.cancel(tx, codes, queued, caller.label, now_ms)
        for event in events:
            tx.emit(event)
        return sum(event.data["status"] == ExecutionStatus.CANCELLED.value for event in events)
