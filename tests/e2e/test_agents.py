"""An AI agent over the Model Context Protocol: refused, told why, granted, made to wait for a person, and then switching for real."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from mcp.shared.exceptions import MCPError

from support.device import Device, create_device
from support.mcp_agent import Agent, agent_over_http, agent_over_stdio
from support.service import ApiClient, Service
from support.waiting import TIMEOUT_S


async def create_key(owner: ApiClient) -> tuple[str, str]:
    made = await owner.post("/keys", {"name": "Gardener bot"}, expect=201)
    return made["keyId"], made["key"]


async def grant(owner: ApiClient, pump: Device, key_id: str, **fields: object) -> None:
    await owner.post(f"{pump.path}/grants", {"apiKeyId": key_id, **fields}, expect=201)


async def test_an_agent_is_refused_asks_is_approved_and_switches(tmp_path: Path) -> None:
    with Service(tmp_path) as service:
        async with service.api() as owner:
            pump = await create_device(owner)
            await owner.post(
                f"{pump.path}/commands", {"name": "FLOOD", "label": "Flood the field", "requiresApproval": True}, expect=201
            )
            key_id, key = await create_key(owner)
            async with pump.online(service), agent_over_http(service, key) as agent:
                await refused_then_granted(owner, pump, key_id, agent)
                await waits_for_a_person(owner, pump, agent)
            async with agent_over_stdio(service, key) as agent:
                await told_the_truth_about_an_offline_device(pump, agent)


async def refused_then_granted(owner: ApiClient, pump: Device, key_id: str, agent: Agent) -> None:
    assert (await agent.use("list_devices"))["devices"] == []
    unseen = await agent.use("send_command", device_id=pump.device_id, command="ON", reason="the soil is dry")
    assert (unseen["allowed"], unseen["error"]) == (False, "GRANT_MISSING")

    await grant(owner, pump, key_id, commands=["STATUS"], scope="READ")
    [seen] = (await agent.use("list_devices", name_contains="pump"))["devices"]
    assert seen["deviceId"] == pump.device_id
    narrow = await agent.use("send_command", device_id=pump.device_id, command="ON", reason="the soil is dry")
    assert narrow["allowed"] is False
    assert narrow["error"] in ("COMMAND_NOT_GRANTED", "SCOPE_TOO_NARROW")
    assert "person" in narrow["advice"]

    await grant(owner, pump, key_id, commands=["ON", "FLOOD"])
    commands = {each["name"]: each for each in (await agent.use("list_commands", device_id=pump.device_id))["commands"]}
    assert commands["ON"]["access"]["allowed"] is True
    assert commands["OFF"]["access"]["allowed"] is False
    assert commands["FLOOD"]["requiresApproval"] is True
    done = await agent.use("send_command", device_id=pump.device_id, command="ON", reason="the soil is dry", request_id="dry-1")
    assert (done["status"], "advice" in done) == ("DONE", False)
    again = await agent.use("send_command", device_id=pump.device_id, command="ON", reason="the soil is dry", request_id="dry-1")
    assert again["executionId"] == done["executionId"]


async def waits_for_a_person(owner: ApiClient, pump: Device, agent: Agent) -> None:
    asked = await agent.use("send_command", device_id=pump.device_id, command="FLOOD", reason="frost is forecast", wait_seconds=0)
    assert asked["status"] == "PENDING"
    approval_id = asked["approvalId"]
    still = await agent.use("wait_for_approval", device_id=pump.device_id, approval_id=approval_id, wait_seconds=0)
    assert still["approval"]["status"] == "PENDING"
    [request] = await owner.get("/approvals?status=PENDING")
    assert (request["approvalId"], request["reason"]) == (approval_id, "frost is forecast")
    waiting = asyncio.create_task(agent.use("wait_for_approval", device_id=pump.device_id, approval_id=approval_id))
    await owner.post(f"{pump.path}/approvals/{approval_id}/approve")
    decided = await waiting
    assert decided["execution"]["status"] == "DONE"


async def told_the_truth_about_an_offline_device(pump: Device, agent: Agent) -> None:
    tools = {tool.name for tool in (await agent.client.list_tools()).tools}
    assert {"list_devices", "explain_access", "send_command", "wait_for_approval", "read_telemetry"} <= tools
    queued = await agent.use("send_command", device_id=pump.device_id, command="ON", reason="morning", wait_seconds=0)
    assert queued["status"] == "QUEUED"
    assert "offline" in queued["advice"]


@pytest.mark.parametrize("whole", [True, False], ids=["late", "never whole"])
async def test_an_early_refusal_leaves_a_usable_or_closed_connection(tmp_path: Path, whole: bool) -> None:
    """The head and the body of a message come separately, as many clients send them."""
    with Service(tmp_path) as service:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        async with asyncio.timeout(TIMEOUT_S):
            writer.write(b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n")
            await writer.drain()
            await asyncio.sleep(0.3)  # the refusal is ready in between
            writer.write(b"{}" if whole else b"{")
            head = await reader.readuntil(b"\r\n\r\n")
            assert b" 401 " in head.splitlines()[0]
            assert (b"connection: close" not in head.lower()) == whole
            if whole:
                writer.write(b"GET /api/v1/catalog/boards HTTP/1.1\r\nHost: x\r\n\r\n")
            rest = await reader.readuntil(b"HTTP/1.1 ") if whole else await reader.read()
            assert b"UNAUTHENTICATED" in rest
        writer.close()


async def test_a_message_without_a_key_and_a_key_that_was_deleted_are_refused(tmp_path: Path) -> None:
    with Service(tmp_path) as service:
        async with httpx.AsyncClient(base_url=service.url, timeout=TIMEOUT_S) as anybody:
            for headers in ({}, {"Authorization": "Bearer eyJhbGciOi"}, {"X-Api-Key": "whsec_1"}):
                answer = await anybody.post("/mcp", json={}, headers=headers)
                assert (answer.status_code, answer.json()["error"]) == (401, "UNAUTHENTICATED")
        async with service.api() as owner:
            key_id, key = await create_key(owner)
            async with agent_over_http(service, key) as agent:
                await agent.use("list_devices")
                await owner.delete(f"/keys/{key_id}")
                with pytest.raises(MCPError):
                    await agent.use("list_devices")
        async with httpx.AsyncClient(base_url=service.url, timeout=TIMEOUT_S) as former:
            answer = await former.post("/mcp", json={}, headers={"X-Api-Key": key})
            assert (answer.status_code, answer.json()["error"]) == (401, "UNAUTHENTICATED")
