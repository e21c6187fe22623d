"""An agent is refused, asks with a reason, is approved by a person in a browser, and switches; then the log proves the whole story."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from playwright.async_api import expect

from support.browser import PHONE, open_browser, require_chromium
from support.command_line import command_output
from support.device import Device, create_device
from support.mcp_agent import Agent, agent_over_http
from support.service import ApiClient, Service, environment
from support.waiting import TIMEOUT_S

REASON = "frost is forecast for tonight"


async def latchboard(service: Service, *arguments: str) -> str:
    code, output = await command_output(*arguments, folder=service.folder, env=environment(**service.settings))
    assert code == 0, output
    return output


async def test_from_the_refusal_to_the_proof(service: Service, owner: ApiClient, tmp_path: Path) -> None:
    require_chromium()
    pump = await create_device(owner, "Field pump")
    command = {"name": "FLOOD", "label": "Flood the field", "requiresApproval": True}
    await owner.post(f"{pump.path}/commands", command, expect=201)
    key = await owner.post("/keys", {"name": "Gardener bot"}, expect=201)
    async with pump.online(service), agent_over_http(service, key["key"]) as agent:
        await refused(pump, agent)
        await owner.post(f"{pump.path}/grants", {"apiKeyId": key["keyId"], "commands": ["FLOOD"]}, expect=201)
        approval_id, execution_id = await approved_in_a_browser(service, pump, agent)
    await proven(service, tmp_path, approval_id, execution_id)


async def refused(pump: Device, agent: Agent) -> None:
    answer = await agent.use("send_command", device_id=pump.device_id, command="FLOOD", reason=REASON)
    assert (answer["allowed"], answer["error"]) == (False, "GRANT_MISSING")


async def approved_in_a_browser(service: Service, pump: Device, agent: Agent) -> tuple[str, str]:
    """The agent waits while a person reads its reason and approves; returns the ids of approval and execution."""
    async with open_browser(service, PHONE) as browser:
        page = await browser.open_signed_in()
        await page.goto(f"{service.url}/#/approvals")
        asked = await agent.use("send_command", device_id=pump.device_id, command="FLOOD", reason=REASON, wait_seconds=0)
        assert asked["status"] == "PENDING"
        waiting = asyncio.create_task(
            agent.use("wait_for_approval", device_id=pump.device_id, approval_id=asked["approvalId"], wait_seconds=25)
        )
        request = page.get_by_role("list", name="Waiting").get_by_role("listitem").filter(has_text="FLOOD")
        await expect(request).to_contain_text(REASON)
        await request.get_by_role("button", name="Approve").click()
        decided = await asyncio.wait_for(waiting, TIMEOUT_S)
        await expect(page.get_by_text("approved", exact=True).first).to_be_visible()
    assert decided["execution"]["status"] == "DONE"  # the device's own word
    return asked["approvalId"], decided["execution"]["executionId"]


async def proven(service: Service, folder: Path, approval_id: str, execution_id: str) -> None:
    await latchboard(service, "audit", "seal")
    key = (await latchboard(service, "audit", "public-key")).split()[0]
    for named in (approval_id, execution_id):
        file = folder / f"{named}.ndjson"
        await latchboard(service, "audit", "export", "--command", named, "-o", str(file))
        assert "VERIFIED" in await latchboard(service, "audit", "verify", str(file), "--public-key", key)
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        story = [line["record"] for line in lines if "record" in line]
        by_type = {each["eventType"]: each for each in story}
        assert story[0]["eventType"] == "approval_requested"
        assert {"approval_requested", "approval_decided", "command_sent", "command_result"} <= by_type.keys()
        asked, decided = by_type["approval_requested"], by_type["approval_decided"]
        assert asked["data"]["reason"] == REASON
        assert (asked["source"].partition(":")[0], decided["source"].partition(":")[0]) == ("apikey", "user")
        results = [each["data"] for each in story if each["eventType"] == "command_result"]
        assert [(each["executionId"], each["status"]) for each in results] == [(execution_id, "DONE")]
