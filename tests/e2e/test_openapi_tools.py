"""Redocly finds nothing in the served document, and a client that hey-api generates from it does one real job.

npm fetches both, so this test needs the package index.
"""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from support.device import create_device
from support.node_packages import install, node, run
from support.service import EMAIL, PASSWORD, ApiClient, Service
from support.thoroughness import thorough_run_only
from support.waiting import TIMEOUT_S

pytestmark = [pytest.mark.thorough, thorough_run_only]

TOOLS = ("@redocly/cli@2", "@hey-api/openapi-ts@0.95", "typescript@5", "esbuild@0.27")
REDOCLY = "extends: [recommended-strict]\n"
JOB = """
import { createKey, createGrant, listGrants, loginUser, sendCommand } from "./client/sdk.gen";
import { createClient } from "./client/client";

const [, , baseUrl, email, password, deviceId] = process.argv;
const anyone = createClient({ baseUrl, throwOnError: true });
const login = await loginUser({ client: anyone, body: { email, password }, throwOnError: true });
if (!("accessToken" in login.data)) throw new Error("this account has a second factor");
const owner = createClient({ baseUrl, headers: { Authorization: `Bearer ${login.data.accessToken}` } });
const key = await createKey({ client: owner, body: { name: "Robot" }, throwOnError: true });
const path = { deviceId };
await createGrant({ client: owner, path, body: { apiKeyId: key.data.keyId, commands: ["ON"] }, throwOnError: true });
const grants = await listGrants({ client: owner, path, throwOnError: true });
const robot = createClient({ baseUrl, headers: { "X-Api-Key": key.data.key } });
const done = await sendCommand({ client: robot, path, body: { cmd: "ON", waitSeconds: 10 }, throwOnError: true });
const refused = await sendCommand({ client: robot, path, body: { cmd: "OFF" } });
console.log(JSON.stringify([grants.data.length, "status" in done.data && done.data.status, refused.error?.error]));
"""


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("openapi-tools")
    (folder / "package.json").write_text('{"type": "module"}')
    install(folder, *TOOLS)
    return folder


@pytest.fixture
async def document(service: Service, tools: Path) -> Path:
    """As the service serves it."""
    async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
        served = (await client.get(f"{service.url}/openapi.json")).json()
    file = tools / "openapi.json"
    file.write_text(json.dumps(served))
    return file


async def test_redocly_finds_nothing(document: Path) -> None:
    (document.parent / "redocly.yaml").write_text(REDOCLY)
    output = run("npx", "--no-install", "redocly", "lint", "--format=stylish", document, folder=document.parent)
    assert "description is valid" in output


async def test_a_client_of_hey_api_makes_a_key_and_switches(service: Service, owner: ApiClient, document: Path) -> None:
    folder = document.parent
    run("npx", "--no-install", "openapi-ts", "-i", document, "-o", folder / "client", folder=folder)
    (folder / "job.ts").write_text(JOB)
    (folder / "tsconfig.json").write_text(
        '{"compilerOptions": {"strict": true, "noEmit": true, "target": "es2022", "module": "esnext", "lib": ["es2022", "dom", '
        '"dom.iterable"], "moduleResolution": "bundler", "skipLibCheck": true, "types": []}, "files": ["job.ts", "globals.d.ts"]}'
    )
    (folder / "globals.d.ts").write_text("declare const process: { argv: string[] };\n")
    run("npx", "--no-install", "tsc", "--project", folder, folder=folder)
    run(
        "npx",
        "--no-install",
        "esbuild",
        "job.ts",
        "--bundle",
        "--platform=node",
        "--format=esm",
        "--outfile=job.mjs",
        folder=folder,
    )
    pump = await create_device(owner)
    async with pump.online(service), node(folder / "job.mjs", service.url, EMAIL, PASSWORD, pump.device_id) as job:
        assert await job.next() == [1, "DONE", "COMMAND_NOT_GRANTED"]
