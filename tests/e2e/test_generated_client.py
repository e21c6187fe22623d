"""A client library that openapi-python-client generates from the served document does one real job: it makes a key with a grant
that ends, and switches a device with it.

The generator is run by uv, apart from the environment of the tests, because it needs older versions of packages that the
program uses. So this test needs the package index.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path

import pytest

from support.device import create_device
from support.service import EMAIL, PASSWORD, ApiClient, Service, environment
from support.thoroughness import thorough_run_only

pytestmark = pytest.mark.thorough

GENERATOR = "openapi-python-client==0.29.1"
GENERATION_TIMEOUT_S = 300
JOB = """
import json, sys
from datetime import datetime, timedelta, timezone
from latchboard_client import AuthenticatedClient, Client
from latchboard_client.api.api_keys import create_key
from latchboard_client.api.authentication import login_user
from latchboard_client.api.commands import send_command
from latchboard_client.api.grants import create_grant, list_grants
from latchboard_client.api.schedules import create_schedule
from latchboard_client.models import (
    ApiKeyCreateRequest, CommandResultResponse, CommandSendRequest, GrantCreateRequest, LoginRequest, ScheduleCreateRequest,
)

url, email, password, device_id = sys.argv[1:]
with Client(url, raise_on_unexpected_status=True) as anyone:
    login = login_user.sync(client=anyone, body=LoginRequest(email=email, password=password))
expires_at = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(hours=1)
with AuthenticatedClient(url, token=login.access_token) as owner:
    key = create_key.sync(client=owner, body=ApiKeyCreateRequest(name="Robot"))
    grant = GrantCreateRequest(commands=["ON"], api_key_id=key.key_id, expires_at=expires_at)
    assert create_grant.sync(device_id, client=owner, body=grant).grant_id
    [stored] = list_grants.sync(device_id, client=owner)
    assert stored.expires_at == expires_at, stored
    slot = create_schedule.sync(device_id, client=owner, body=ScheduleCreateRequest(slot=0, on_ts=4_000_000_000, off_ts=4_000_000_060))
    assert slot.rrule is None and slot.next_fire_at.year == 2096, slot
with AuthenticatedClient(url, token=key.key, prefix="", auth_header_name="X-Api-Key") as robot:
    done = send_command.sync(device_id, client=robot, body=CommandSendRequest(cmd="ON", wait_seconds=10))
    refused = send_command.sync(device_id, client=robot, body=CommandSendRequest(cmd="OFF"))
assert isinstance(done, CommandResultResponse), done
print(json.dumps({"status": done.status, "refused": refused.error}))
"""


@thorough_run_only
async def test_a_generated_python_client_switches_a_device(service: Service, owner: ApiClient, tmp_path: Path) -> None:
    document = tmp_path / "openapi.json"
    document.write_text((await owner.raw.get(f"{service.url}/openapi.json")).text)
    warnings = await generate(document, tmp_path / "client")
    pump = await create_device(owner)

    async with pump.online(service) as line:
        job = [sys.executable, "-c", JOB, service.url, EMAIL, PASSWORD, pump.device_id]
        printed = await run(job, 60, PYTHONPATH=tmp_path / "client")
        assert (await line.next_command())["cmd"] == "ON"

    assert json.loads(printed) == {"status": "DONE", "refused": "COMMAND_NOT_GRANTED"}
    assert "Warning" not in warnings, warnings


async def generate(document: Path, folder: Path) -> str:
    """What the generator printed."""
    uvx = shutil.which("uvx", path=str(Path(sys.executable).parent)) or "uvx"
    config = document.with_name("config.json")
    config.write_text(json.dumps({"post_hooks": [], "content_type_overrides": {"application/x-ndjson": "text/plain"}}))
    folder.mkdir()
    options = ["--path", document, "--output-path", folder / "latchboard_client", "--meta", "none", "--config", config]
    command = [uvx, "--from", GENERATOR, "openapi-python-client", "generate", *map(str, options)]
    return await run(command, GENERATION_TIMEOUT_S)


async def run(command: list[str], timeout_s: float, **settings: object) -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environment() | {name: str(value) for name, value in settings.items()},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(timeout_s):
            printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, printed.decode()
    return printed.decode()
