"""An `Idempotency-Key` over two instances on one PostgreSQL, one of which is killed in the middle of a request."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import httpx
import pytest

from support import postgres
from support.database_probe import rows
from support.device import cancel_tasks, create_device
from support.empty_database import empty_postgres
from support.service import ApiClient, Service
from support.waiting import TIMEOUT_S

pytestmark = pytest.mark.skipif(not postgres.available(), reason="needs PostgreSQL")
BODY = {"cmd": "ON", "waitSeconds": 30, "ttlSeconds": 3_600}


async def send(owner: ApiClient, path: str, key: str) -> httpx.Response:
    return await owner.send("POST", f"{path}/command", BODY, headers={"Idempotency-Key": key})


async def error_of_retry(owner: ApiClient, path: str, key: str) -> tuple[int, str]:
    answer = await send(owner, path, key)
    return answer.status_code, answer.json()["error"]


async def test_a_key_is_in_progress_while_its_instance_lives_and_decided_at_once_when_it_is_killed(tmp_path: Path) -> None:
    shared: dict[str, Any] = {
        "LATCHBOARD_DATABASE_URL": await empty_postgres(),
        "LATCHBOARD_SECRET_KEYS": "shared:" + base64.b64encode(b"k" * 32).decode(),
    }
    with Service(tmp_path / "one", **shared) as one, Service(tmp_path / "two", **shared, LATCHBOARD_BROKER="none") as two:
        async with one.api() as owner, two.api() as other:
            path = (await create_device(owner)).path  # not connected, so that the command waits
            waiting = [asyncio.create_task(send(other, path, key)) for key in ("committed", "uncommitted")]
            await owner.wait_until(f"{path}/executions", lambda page: len(page["data"]) == 2)
            await rows(one, "UPDATE stored_responses SET status = NULL WHERE key = 'uncommitted'")  # as before its commit
            for key in ("committed", "uncommitted"):
                assert await error_of_retry(owner, path, key) == (409, "IDEMPOTENCY_IN_PROGRESS")
            two.kill()
            async with asyncio.timeout(TIMEOUT_S):  # until PostgreSQL has noticed that the connection is gone
                while (lost := await error_of_retry(owner, path, "committed")) == (409, "IDEMPOTENCY_IN_PROGRESS"):
                    await asyncio.sleep(0.1)
            assert lost == (409, "IDEMPOTENCY_ANSWER_LOST")
            again = await owner.send("POST", f"{path}/command", {"cmd": "ON"}, headers={"Idempotency-Key": "uncommitted"})
            assert again.status_code == 200, again.text
            assert len((await owner.get(f"{path}/executions"))["data"]) == 3
            await cancel_tasks(*waiting)
