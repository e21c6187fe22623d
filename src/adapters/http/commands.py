"""Commands over HTTP: what a device can be told, telling it, and what came of it. All but definitions also by API key."""

from __future__ import annotations

import base64
import binascii

from quart import Blueprint

from adapters.http import commands_schema as schema
from adapters.http.auth import Access, current_caller, current_session
from adapters.http.errors import rate_limit
from adapters.http.operation import Outcome, operation
from adapters.http.schema import Done
from domain.commands.control import ControlService
from domain.commands.definitions import DefinitionService
from domain.commands.service import CommandService, Submitted
from domain.grants.limit import RATE_WINDOW_S
from domain.kernel.errors import Invalid
from domain.kernel.ids import CommandId, DeviceId, ExecutionId

TAG = "Commands"
Sent = Outcome[schema.Answered | schema.Accepted | schema.Waiting]
READING = {403: "GRANT_MISSING GRANT_EXPIRED", 404: "NOT_FOUND"}
SENDING = {
    400: "VALIDATION_ERROR INVALID_JSON UNKNOWN_COMMAND INVALID_PARAMS",
    403: "DEVICE_DISABLED ROLE_REQUIRED GRANT_MISSING COMMAND_NOT_GRANTED SCOPE_TOO_NARROW GRANT_EXPIRED OUTSIDE_GRANT_WINDOW",
    404: "NOT_FOUND",
    409: "TOO_MANY_QUEUED",
    429: "RATE_LIMITED",
}
DEFINING = {403: "ROLE_REQUIRED", 404: "NOT_FOUND", 409: "COMMAND_EXISTS"}
SENT = {200: schema.Answered | schema.Accepted, 202: schema.Waiting}


def commands_blueprint(commands: CommandService, definitions: DefinitionService, control: ControlService) -> Blueprint:
    bp = Blueprint("commands", __name__, url_prefix="/api/v1")
    _sending(bp, commands)
    _definitions(bp, definitions)
    _executions(bp, control)
    return bp


def _sending(bp: Blueprint, commands: CommandService) -> None:
    @operation(
        bp, "POST", "/devices/<device_id>/command", tag=TAG, access=Access.KEY, summary="Send a command",
        returns=SENT, errors=SENDING, idempotent=True, limited=True,
    )  # fmt: skip
    async def send_command(device_id: str, body: schema.Command) -> Sent:
        """202 when the command needs approval first. With `waitSeconds` the answer also has the device's `result`."""
        ttl_ms = body.ttl_seconds * 1000 if body.ttl_seconds is not None else None
        submitted = await commands.submit(current_caller(), DeviceId(device_id), body.cmd, body.params, ttl_ms=ttl_ms)
        return await _sent(commands, submitted, body.wait_seconds)

    @operation(
        bp, "POST", "/devices/<device_id>/command/on", tag=TAG, access=Access.KEY, summary="Switch on",
        returns=SENT, errors=SENDING, idempotent=True, limited=True,
    )  # fmt: skip
    async def send_on(device_id: str) -> Sent:
        """The command ON."""
        return await _sent(commands, await commands.submit(current_caller(), DeviceId(device_id), "ON"), None)

    @operation(
        bp, "POST", "/devices/<device_id>/command/off", tag=TAG, access=Access.KEY, summary="Switch off",
        returns=SENT, errors=SENDING, idempotent=True, limited=True,
    )  # fmt: skip
    async def send_off(device_id: str) -> Sent:
        """The command OFF."""
        return await _sent(commands, await commands.submit(current_caller(), DeviceId(device_id), "OFF"), None)


def _definitions(bp: Blueprint, definitions: DefinitionService) -> None:
    @operation(
        bp, "GET", "/devices/<device_id>/commands", tag=TAG, access=Access.KEY, summary="What the device can be told",
        errors=READING,
    )  # fmt: skip
    async def list_commands(device_id: str) -> list[schema.DefinitionReply]:
        """Built-ins first. One entry a name: the device's own definition, else its type's, else the built-in."""
        found = await definitions.list(current_caller(), DeviceId(device_id))
        return [schema.DefinitionReply.of(one) for one in found]

    @operation(
        bp, "POST", "/devices/<device_id>/commands", tag=TAG, access=Access.SESSION, summary="Define a command",
        status=201, errors=DEFINING, idempotent=True,
    )  # fmt: skip
    async def create_command(device_id: str, body: schema.NewDefinition) -> schema.CommandId:
        """A name that is built in, or the type's, is overridden for this device."""
        made = await definitions.create(current_session(), DeviceId(device_id), body.draft())
        return schema.CommandId(command_id=made.command_id or "")

    @operation(
        bp, "PATCH", "/devices/<device_id>/commands/<command_id>", tag=TAG, access=Access.SESSION,
        summary="Change a command", errors=DEFINING,
    )  # fmt: skip
    async def update_command(device_id: str, command_id: str, body: schema.DefinitionChanges) -> Done:
        """What is left out stays. A command that needs approval is changed by an Owner or Admin only."""
        await definitions.edit(current_session(), DeviceId(device_id), CommandId(command_id), body.changes())
        return Done()

    @operation(
        bp, "DELETE", "/devices/<device_id>/commands/<command_id>", tag=TAG, access=Access.SESSION,
        summary="Remove a command", errors=DEFINING,
    )  # fmt: skip
    async def delete_command(device_id: str, command_id: str) -> Done:
        """What it had overridden counts again."""
        await definitions.delete(current_session(), DeviceId(device_id), CommandId(command_id))
        return Done()


def _executions(bp: Blueprint, control: ControlService) -> None:
    @operation(
        bp, "GET", "/devices/<device_id>/executions", tag=TAG, access=Access.KEY, summary="Commands sent to a device",
        errors=READING,
    )  # fmt: skip
    async def list_executions(device_id: str, query: schema.ExecutionsQuery) -> schema.ExecutionsPage:
        """Newest first; `cursor` continues."""
        before_seq = _read_cursor(query.cursor)
        page = await control.executions(current_caller(), DeviceId(device_id), limit=query.limit, before_seq=before_seq)
        return schema.ExecutionsPage(
            data=[schema.ExecutionReply.of(one) for one in page.executions],
            has_more=page.next_seq is not None,
            cursor=_cursor(page.next_seq),
        )

    @operation(
        bp, "GET", "/devices/<device_id>/executions/<execution_id>", tag=TAG, access=Access.KEY,
        summary="One command sent to a device", errors=READING,
    )  # fmt: skip
    async def get_execution(device_id: str, execution_id: str) -> schema.ExecutionReply:
        """Where the command is, and what the device said."""
        found = await control.execution(current_caller(), DeviceId(device_id), ExecutionId(execution_id))
        return schema.ExecutionReply.of(found)


async def _sent(commands: CommandService, submitted: Submitted, wait_s: float | None) -> Sent:
    quota = submitted.quota
    headers = {} if quota is None else rate_limit(quota.limit, RATE_WINDOW_S, quota.remaining, quota.reset_s)
    if submitted.approval is not None:
        return Outcome(schema.Waiting(approval_id=submitted.approval.approval_id), 202, headers)
    if submitted.execution is None:
        raise AssertionError("a submitted command is an execution or an approval")
    if not wait_s:
        return Outcome(schema.Accepted.of(submitted.execution), 200, headers)
    return Outcome(schema.Answered.of(await commands.outcome(submitted.execution, wait_s)), 200, headers)


def _cursor(seq: int | None) -> str | None:
    return None if seq is None else base64.urlsafe_b64encode(b"x%d" % seq).decode().rstrip("=")


def _read_cursor(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        plain = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        plain = b""
    if not (plain[:1] == b"x" and plain[1:].isdigit() and len(plain) < 20):
        raise Invalid.field("cursor", "is none of ours. Use the one a page gave you, or leave it out to start anew.")
    return int(plain[1:])
