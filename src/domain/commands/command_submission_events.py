"""The events of commands that are accepted, or wait for approval."""

from __future__ import annotations

from domain.approvals.model import Approval
from domain.commands.local_dispatch_queue import DispatchEntry
from domain.commands.model import CommandRequest
from domain.kernel.caller import ApiKeyCaller, Caller, SessionCaller
from domain.kernel.clock import to_iso
from domain.kernel.domain_event import DomainEvent, Json


def command_sent_event(caller: Caller, command: DispatchEntry, now_ms: int, reason: str | None) -> DomainEvent:
    execution, device = command.execution, command.device
    data: dict[str, Json] = {"executionId": execution.execution_id, "cmd": execution.cmd, "source": execution.source.value}
    if execution.approval_id is not None:
        data["approvalId"] = execution.approval_id
    if reason is not None:
        data["reason"] = reason
    text = f"Command {execution.cmd} accepted for the device{_because(reason)}"
    return DomainEvent.from_caller(
        caller, "command_sent", text, now_ms, device_id=device.device_id, device_name=device.name, data=data
    )


def approval_requested_event(
    caller: SessionCaller | ApiKeyCaller, request: CommandRequest, approval: Approval, now_ms: int
) -> DomainEvent:
    data: dict[str, Json] = {
        "approvalId": approval.approval_id,
        "cmd": request.cmd,
        "requestedBy": approval.requested_by.label,
        "reason": approval.reason,
        "expiresAt": to_iso(approval.expires_ms),
    }
    text = f"Command {request.cmd} waits for approval{_because(approval.reason)}"
    device = request.device
    return DomainEvent.from_caller(
        caller, "approval_requested", text, now_ms, device_id=device.device_id, device_name=device.name, data=data
    )


def _because(reason: str | None) -> str:
    return f": {reason}" if reason else ""
