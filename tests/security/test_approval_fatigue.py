"""A program that asks in a loop: it cannot wear people down until they approve unseen, nor hide what others ask for."""

from __future__ import annotations

from pathlib import Path

from domain.approvals.model import MAX_PENDING_PER_PROGRAM
from security.people import a_key
from support.in_process_app import ApiCaller, in_process_app

NEW = {"name": "Gate", "boardType": "ESP32", "appType": "GATE"}
GUARDED = {"name": "OPEN", "label": "Open", "requiresApproval": True}


async def a_gate(owner: ApiCaller) -> str:
    device = f"/devices/{(await owner.send_ok('POST', '/devices/register', NEW))['deviceId']}"
    await owner.send_ok("POST", f"{device}/credentials", {})
    await owner.send_ok("POST", f"{device}/commands", GUARDED)
    return device


async def test_one_key_holds_so_many_requests_over_all_devices_and_others_still_ask(tmp_path: Path) -> None:
    async with in_process_app(tmp_path) as program:
        await program.create_account("ada@example.com")
        owner = await program.sign_in("ada@example.com")
        gates = [await a_gate(owner) for _ in range(2)]
        keys = []
        for _ in range(2):
            key, key_id = await a_key(owner)
            for gate in gates:
                await owner.send_ok("POST", f"{gate}/grants", {"commands": ["*"], "apiKeyId": key_id})
            keys.append(key)
        loop, other = keys
        answers = [
            await loop.send("POST", f"{gates[number % 2]}/command", {"cmd": "OPEN"})
            for number in range(MAX_PENDING_PER_PROGRAM + 3)
        ]
        assert [answer.status_code for answer in answers] == [202] * MAX_PENDING_PER_PROGRAM + [429] * 3
        problem = answers[-1].json()
        assert problem["error"] == "TOO_MANY_REQUESTS_WAIT"
        assert "before an Owner or Admin has decided" in problem["message"]
        assert int(answers[-1].headers["Retry-After"]) > 0
        assert (await other.send("POST", f"{gates[0]}/command", {"cmd": "OPEN"})).status_code == 202
        first = answers[0].json()["approvalId"]
        await owner.send_ok("POST", f"{gates[0]}/approvals/{first}/deny")
        assert (await loop.send("POST", f"{gates[1]}/command", {"cmd": "OPEN"})).status_code == 202


async def test_asking_and_withdrawing_in_turns_is_bounded_too(tmp_path: Path) -> None:
    async with in_process_app(tmp_path) as program:
        await program.create_account("ada@example.com")
        owner = await program.sign_in("ada@example.com")
        gate = await a_gate(owner)
        key, key_id = await a_key(owner)
        await owner.send_ok("POST", f"{gate}/grants", {"commands": ["*"], "apiKeyId": key_id})
        for _ in range(MAX_PENDING_PER_PROGRAM):
            asked = await key.send("POST", f"{gate}/command", {"cmd": "OPEN"})
            await key.send_ok("POST", f"{gate}/approvals/{asked.json()['approvalId']}/withdraw")
        refused = await key.send("POST", f"{gate}/command", {"cmd": "OPEN"})
        assert (refused.status_code, refused.json()["error"]) == (429, "TOO_MANY_REQUESTS_WAIT")
