"""SIGKILL while boards claim: each that made its token before its first request gets credentials, and becomes one device."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from domain.kernel.clock import to_iso
from support import empty_database
from support.device import Device
from support.service import Service
from support.transports import ALL_DATABASES
from support.waiting import TIMEOUT_S

BOARDS, KILLS = 60, 3
AT_ONCE = BOARDS // KILLS


def claim_of(code: str, number: int) -> dict[str, str]:
    return {"code": code, "hardwareId": f"24:6f:28:aa:01:{number:02x}", "claimToken": f"{number:032d}"}


async def claim_and_kill(service: Service, board: httpx.AsyncClient, claims: list[dict[str, str]]) -> list[Any]:
    """Send them all at once, and kill after the first answer. What each board got: None where the answer was lost."""

    async def send(claim: dict[str, str]) -> Any:
        with contextlib.suppress(httpx.TransportError):
            return (await board.post("/provisioning/claim", json=claim)).json()
        return None

    sending = [asyncio.create_task(send(claim)) for claim in claims]
    await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
    service.kill()
    return await asyncio.gather(*sending)


@pytest.mark.parametrize("kind", ALL_DATABASES)
async def test_a_lost_answer_is_given_again_until_the_board_has_connected(tmp_path: Path, kind: str) -> None:
    settings = {"LATCHBOARD_DATABASE_URL": await empty_database.empty_postgres()} if kind == "postgres" else {}
    service, got = Service(tmp_path, **settings), []
    with service:
        async with service.api() as owner, httpx.AsyncClient(base_url=f"{service.url}/api/v1", timeout=TIMEOUT_S) as board:
            code = {"name": "Hall", "boardType": "ESP32", "appType": "PUMP", "maxDevices": BOARDS, "requiresApproval": False}
            expiry = to_iso(time.time_ns() // 1_000_000 + 3_600_000)
            made = await owner.post("/provisioning-codes", {**code, "expiresAt": expiry}, expect=201)
            claims = [claim_of(made["code"], number) for number in range(BOARDS)]
            for start in range(0, BOARDS, AT_ONCE):
                got += await claim_and_kill(service, board, claims[start : start + AT_ONCE])
                await asyncio.to_thread(service.start)
            assert None in got, "the kills came too late"
            for claim, first in zip(claims, got, strict=True):
                again = await board.post("/provisioning/claim", json=claim)
                assert again.status_code == 201, again.text
                assert first in (None, again.json())
                given = again.json()
            assert len(await owner.get("/devices?limit=100")) == BOARDS, "no device twice"
            device = Device(given["deviceId"], given)
            async with device.online(service):
                await owner.wait_until(device.path, lambda found: found["isOnline"])
                refused = await board.post("/provisioning/claim", json=claims[-1])
                assert (refused.status_code, refused.json()["error"]) == (409, "ALREADY_CLAIMED")
            await owner.wait_until(device.path, lambda found: not found["isOnline"])
            assert (await board.post("/provisioning/claim", json=claims[-1])).status_code == 409
    assert service.error_lines() == []
