"""The tools and resources of the Model Context Protocol server. Each tool is one or a few calls of the API as one key.

Every call is an ordinary request, so that grants, limits and the log hold for it. Tools never invent an outcome: DONE is what the
device said. A refusal, a limit and a waiting approval come back as a result with `advice` that an agent can act on, and not as an
exception: trying again does not help.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any

import httpx
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import ToolAnnotations
from pydantic import Field

from domain.devices.channels import MAX_CHANNEL
from domain.kernel.dataclasses import service
from domain.kernel.folding import fold

INSTRUCTIONS = (
    "Latchboard switches real pumps, heaters and gates. You act as one API key, which may do only what people granted. Before "
    "you switch, say why in `reason`: people read it when they approve, and it stays in the log. If a command waits for "
    "approval, wait; do not look for another way to the same effect. Only status DONE means that the device did it."
)
MAX_DEVICES = 100
MAX_WAIT_S = 25
"""Of one call to the API; a client may call the tool again."""
APPROVAL_POLL_S = 1.0
REQUEST_TIMEOUT_S = 45.0
"""Longer than the longest `waitSeconds`."""
_PATH = re.compile(r"(?:/[A-Za-z0-9_-]{1,128})+")
"""What the tools call. An agent gives the ids in it, and no id makes it the path of another operation."""


class McpApiError(Exception):
    """The service refused the call. `body` is its error object."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(str(body.get("message", status)))
        self.status = status
        self.body = body


@service
class McpApiHttpClient:
    """`client` has the base URL of the API and the key in its headers."""

    client: httpx.AsyncClient

    async def get(self, path: str, **query: Any) -> Any:
        """Raises McpApiError."""
        given = {name: value for name, value in query.items() if value is not None}
        body, _ = await self._call("GET", path, params=given)
        return body

    async def get_all(self, path: str) -> list[Any]:
        """Every entry of a list. Raises McpApiError."""
        entries: list[Any] = []
        following: dict[str, Any] = {}
        while True:
            page, cursor = await self._call("GET", path, params=following)
            entries += page
            if cursor is None:
                return entries
            following = {"cursor": cursor}

    async def post(self, path: str, body: dict[str, Any], *, idempotency_key: str) -> Any:
        """Raises McpApiError."""
        response, _ = await self._call("POST", path, json=body, headers={"Idempotency-Key": idempotency_key})
        return response

    async def _call(self, method: str, path: str, **request: Any) -> tuple[Any, str | None]:
        """The body, and the cursor of the page after it."""
        if _PATH.fullmatch(path) is None:
            raise McpApiError(404, {"error": "NOT_FOUND", "message": "There is no such id. Use those that the tools return."})
        try:
            response = await self.client.request(method, path, timeout=REQUEST_TIMEOUT_S, **request)
            body = response.json()
        except (httpx.HTTPError, ValueError) as error:
            message = (
                f"{self.client.base_url} gave no usable answer ({error or type(error).__name__}). Nothing is known to be done."
            )
            raise McpApiError(503, {"error": "UNAVAILABLE", "message": message}) from error
        if response.is_error:
            raise McpApiError(response.status_code, body)
        link = response.links.get("next")
        return body, None if link is None else httpx.URL(link["url"]).params["cursor"]


Connect = Callable[[Context[Any, Any]], AbstractAsyncContextManager[McpApiHttpClient]]
"""Gives the API as the caller's key sees it. Raises McpApiError when the caller has no key."""

DeviceId = Annotated[str, Field(description="Device id (dev_…) from list_devices.")]
Channel = Annotated[int, Field(ge=1, le=MAX_CHANNEL, description="Channel from list_devices; 1 is the relay.")]
Wait = Annotated[int, Field(ge=0, le=MAX_WAIT_S, description="Seconds to wait for the result.")]


def create_server(connect: Connect, *, version: str) -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("latchboard", title="Latchboard", instructions=INSTRUCTIONS, version=version)
    _add_reading_tools(server, connect)
    _add_command_tools(server, connect)

    @server.resource(
        "latchboard://devices/{device_id}", mime_type="application/json", description="A device and its last values."
    )
    async def device(device_id: str, ctx: Context[Any, Any]) -> dict[str, Any]:
        return await _answer(ctx, connect, lambda api: _describe_device(api, device_id))

    return server


def create_http_app(server: MCPServer[Any], path: str, max_body_bytes: int) -> Any:
    """The ASGI application of `server`. Every message needs a key, so a page that rebinds a name to this address can do nothing;
    therefore any host name is allowed."""
    return server.streamable_http_app(
        streamable_http_path=path,
        json_response=True,
        stateless_http=True,
        max_request_body_size=max_body_bytes,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )


async def _answer(
    ctx: Context[Any, Any], connect: Connect, work: Callable[[McpApiHttpClient], Awaitable[dict[str, Any]]]
) -> dict[str, Any]:
    try:
        async with connect(ctx) as api:
            return await work(api)
    except McpApiError as error:
        return refusal(error)


def _add_reading_tools(server: MCPServer[Any], connect: Connect) -> None:
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)

    @server.tool(annotations=reads)
    async def list_devices(ctx: Context[Any, Any], name_contains: str | None = None) -> dict[str, Any]:
        """Devices that this key may see: id, name, whether online, relay state, and the channels of those that have more."""
        return await _answer(ctx, connect, lambda api: _list_devices(api, name_contains))

    @server.tool(annotations=reads)
    async def list_commands(ctx: Context[Any, Any], device_id: DeviceId) -> dict[str, Any]:
        """Commands of a device with parameter schema, whether a person must approve each, and whether this key may run it now."""
        return await _answer(ctx, connect, lambda api: _list_commands(api, device_id))

    @server.tool(annotations=reads)
    async def explain_access(ctx: Context[Any, Any], device_id: DeviceId, command: str, channel: Channel = 1) -> dict[str, Any]:
        """Whether this key may run the command now: by which grant, or what is missing and when it would be allowed."""
        return await _answer(ctx, connect, lambda api: api.get(f"/devices/{device_id}/access", cmd=command, channel=channel))

    @server.tool(annotations=reads)
    async def read_telemetry(
        ctx: Context[Any, Any],
        device_id: DeviceId,
        metric: str | None = None,
        limit: Annotated[int, Field(ge=1, le=1000)] = 100,
        since_ms: Annotated[int | None, Field(description="Unix milliseconds.")] = None,
        step: Annotated[str | None, Field(description="Bucket such as 1m, 1h, 1d; gives min, max, mean per bucket.")] = None,
    ) -> dict[str, Any]:
        """Stored readings, newest first. Without `metric`: readings of all metrics."""

        async def read(api: McpApiHttpClient) -> dict[str, Any]:
            path = f"/devices/{device_id}/telemetry"
            return {"readings": await api.get(path, metric=metric, limit=limit, since=since_ms, step=step)}

        return await _answer(ctx, connect, read)

    @server.tool(annotations=reads)
    async def list_executions(
        ctx: Context[Any, Any], device_id: DeviceId, limit: Annotated[int, Field(ge=1, le=100)] = 20
    ) -> dict[str, Any]:
        """The device's latest commands, by anyone, with their outcome; newest first."""
        return await _answer(ctx, connect, lambda api: api.get(f"/devices/{device_id}/executions", limit=limit))


def _add_command_tools(server: MCPServer[Any], connect: Connect) -> None:
    switches = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True)
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)

    @server.tool(annotations=switches)
    async def send_command(
        ctx: Context[Any, Any],
        device_id: DeviceId,
        command: Annotated[str, Field(description="Name of the command, such as ON or OFF.")],
        reason: Annotated[str, Field(min_length=3, max_length=280, description="Why. People who approve read it.")],
        channel: Channel = 1,
        params: dict[str, Any] | None = None,
        wait_seconds: Wait = 10,
        ttl_seconds: Annotated[int | None, Field(description="Not run after this many seconds; 60 by default.")] = None,
        request_id: Annotated[str | None, Field(description="The same id never runs twice; give one if you may retry.")] = None,
    ) -> dict[str, Any]:
        """Switch a real device. Returns the device's own answer, a waiting approval, or a refusal with advice."""
        body: dict[str, Any] = {"cmd": command, "channel": channel, "reason": reason, "waitSeconds": wait_seconds}
        body |= {"params": params} if params is not None else {}
        body |= {"ttlSeconds": ttl_seconds} if ttl_seconds is not None else {}

        async def send(api: McpApiHttpClient) -> dict[str, Any]:
            sent = await api.post(f"/devices/{device_id}/command", body, idempotency_key=request_id or uuid.uuid4().hex)
            return waiting(sent) if sent.get("approvalRequired") else outcome(sent)

        return await _answer(ctx, connect, send)

    @server.tool(annotations=reads)
    async def wait_for_approval(
        ctx: Context[Any, Any], device_id: DeviceId, approval_id: str, wait_seconds: Wait = MAX_WAIT_S
    ) -> dict[str, Any]:
        """Wait for a person's decision on a command, then for the device's answer. Returns the state reached by then."""
        return await _answer(ctx, connect, lambda api: _wait_for_approval(api, device_id, approval_id, wait_seconds))

    @server.tool(annotations=reads)
    async def get_execution(ctx: Context[Any, Any], device_id: DeviceId, execution_id: str) -> dict[str, Any]:
        """The state of a command that was sent: only DONE means that the device did it."""

        async def get(api: McpApiHttpClient) -> dict[str, Any]:
            return outcome(await api.get(f"/devices/{device_id}/executions/{execution_id}"))

        return await _answer(ctx, connect, get)


async def _list_devices(api: McpApiHttpClient, name_contains: str | None) -> dict[str, Any]:
    devices = await api.get_all("/devices")
    wanted = fold(name_contains or "")
    found = [device for device in devices if wanted in fold(device["name"])]
    fields = ("deviceId", "name", "isOnline", "relayState", "lastSeen", "description", "location")
    shown = [{field: device[field] for field in fields if device.get(field) is not None} for device in found[:MAX_DEVICES]]
    for device, each in zip(found, shown, strict=False):
        if len(device["channels"]) > 1 or device["channels"][0]["kind"] != "RELAY":
            each["channels"] = [{name: one[name] for name in ("channel", "kind", "name", "state")} for one in device["channels"]]
    return {"devices": shown, "total": len(found), "cut": len(found) > MAX_DEVICES}


async def _list_commands(api: McpApiHttpClient, device_id: str) -> dict[str, Any]:
    commands = await api.get_all(f"/devices/{device_id}/commands")
    answers = await asyncio.gather(
        *(
            api.get(f"/devices/{device_id}/access", cmd=command["name"], channel=min(command["channels"], default=1))
            for command in commands
        )
    )
    return {"commands": [command | {"access": answer} for command, answer in zip(commands, answers, strict=True)]}


async def _wait_for_approval(api: McpApiHttpClient, device_id: str, approval_id: str, wait_seconds: int) -> dict[str, Any]:
    deadline = time.monotonic() + wait_seconds
    while True:
        approval = await api.get(f"/devices/{device_id}/approvals/{approval_id}")
        execution_id = approval.get("executionId")
        if execution_id is not None:
            execution = await api.get(f"/devices/{device_id}/executions/{execution_id}")
            if execution["finishedAt"] is not None or time.monotonic() >= deadline:
                return {"approval": approval, "execution": outcome(execution)}
        elif approval["status"] != "PENDING" or time.monotonic() >= deadline:
            return {"approval": approval, "advice": PENDING_ADVICE if approval["status"] == "PENDING" else DENIED_ADVICE}
        await asyncio.sleep(APPROVAL_POLL_S)


async def _describe_device(api: McpApiHttpClient, device_id: str) -> dict[str, Any]:
    devices = {device["deviceId"]: device for device in await api.get_all("/devices")}
    if device_id not in devices:
        raise McpApiError(404, {"error": "NOT_FOUND", "message": f"No device {device_id} for this key."})
    return {"device": devices[device_id], "latest": await api.get(f"/devices/{device_id}/telemetry/latest")}


ADVICE = {
    "UNAUTHENTICATED": "The API key is missing, wrong, disabled or deleted. Ask the person who gave it to you. Do not try again.",
    "GRANT_MISSING": "This key may do nothing on this device. Ask a person to grant it; name the device and the command.",
    "COMMAND_NOT_GRANTED": "This key may run other commands on this device, not this one. Use explain_access, or ask a person.",
    "CHANNEL_NOT_GRANTED": "This key may switch other channels of the device, not this one. Use explain_access, or ask.",
    "SCOPE_TOO_NARROW": "This key may read this device only. Ask a person for a wider grant if the task needs one.",
    "GRANT_EXPIRED": "The permission has ended. Ask a person to renew it.",
    "OUTSIDE_GRANT_WINDOW": "The key may not do this now. explain_access says from when; wait, or ask a person.",
    "RATE_LIMITED": "Too many commands. Wait `retryAfter` seconds, then try once.",
    "DEVICE_PENDING": "The device was never set up: it has no credentials. Tell a person.",
    "DEVICE_DISABLED": "A person has disabled the device. Do not look for a way around it.",
    "INVALID_PARAMS": "Correct the parameters: list_commands has their schema.",
    "UNKNOWN_CHANNEL": "The device has no such channel: list_devices names those that it has.",
    "UNKNOWN_COMMAND": "The device has no such command: list_commands names those that it has.",
    "NOT_FOUND": "There is no such thing for this key. list_devices shows the devices that it may see.",
    "UNAVAILABLE": "It is not known to be done. Look with get_execution or list_executions before you send it again.",
}
PENDING_ADVICE = "Nobody has decided yet. Call wait_for_approval again, or tell the person that the request waits."
DENIED_ADVICE = "The command is not run. Read the note, and do not ask again unchanged."
OUTCOME_ADVICE = {
    "QUEUED": "The device is offline. The command runs only if the device returns before expiresAt; see get_execution.",
    "SENT": "The device has not answered yet. Do not report it as done; see get_execution.",
    "ACKED": "The device has the command and works on it. Do not report it as done; see get_execution.",
    "FAILED": "The device could not do it; `result` says why. Tell the person.",
    "TIMED_OUT": "The device did not answer, so it is unknown whether it acted. Tell the person before you try again.",
    "CANCELLED": "It was called off before it was sent; `result` says why. It was not run. Ask the person before you try again.",
    "EXPIRED": "The device was away until the deadline. The command was not run and never will be.",
}


def refusal(error: McpApiError) -> dict[str, Any]:
    code = str(error.body.get("error", "UNKNOWN"))
    advice = ADVICE.get(code, "Nothing was done. Read the message, and ask a person if it does not help.")
    return {"allowed": False, **error.body, "advice": advice}


def waiting(approval: dict[str, Any]) -> dict[str, Any]:
    advice = (
        "A person must approve this command; nothing has been switched. Call wait_for_approval with this approvalId, and tell "
        "the person that the request waits. Do not send the command again."
    )
    return {"status": "PENDING", "approvalId": approval["approvalId"], "advice": advice}


def outcome(execution: dict[str, Any]) -> dict[str, Any]:
    """The execution, with advice unless the device has confirmed it."""
    advice = OUTCOME_ADVICE.get(str(execution.get("status")))
    return execution if advice is None else {**execution, "advice": advice}
