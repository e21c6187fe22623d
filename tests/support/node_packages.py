"""The packages in `clients` that are written in TypeScript or JavaScript: built from a copy, and run by Node.js.

npm fetches what they are built with, so tests that use this need the package index.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.service import environment, program_command

CLIENTS = Path(__file__).resolve().parents[2] / "clients"
NPM = ("npm", "--no-package-lock", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")
BUILD_TIMEOUT_S = 300
TIMEOUT_S = 60.0


def run(*command: str | Path, folder: Path) -> str:
    """What the command printed; it must succeed."""
    options: dict[str, Any] = {"cwd": folder, "env": environment(), "text": True, "timeout": BUILD_TIMEOUT_S}
    done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    assert done.returncode == 0, f"{command}:\n{done.stdout}"
    return done.stdout


def install(folder: Path, *packages: str) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    run(*NPM, "install", *packages, folder=folder)


def build_typescript_client(folder: Path) -> Path:
    """A built copy of the package, in `folder`/latchboard-client."""
    package = folder / "clients" / "typescript"
    shutil.copytree(CLIENTS / "typescript", package, ignore=shutil.ignore_patterns("node_modules", "dist", "generated"))
    (folder / "target").mkdir()
    run(*program_command(), "openapi", "--output", folder / "target" / "openapi.json", folder=folder)
    install(package)
    run("npm", "run", "--silent", "build", folder=package)
    return package


class NodeProgram:
    """A running program that prints JSON, one object in a line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def next(self) -> Any:
        assert self.process.stdout is not None
        async with asyncio.timeout(TIMEOUT_S):
            line = await self.process.stdout.readline()
        if not line:
            assert self.process.stderr is not None
            pytest.fail(f"the program has ended:\n{(await self.process.stderr.read()).decode()}")
        return json.loads(line)

    async def send(self, what: Any) -> None:
        """One line of JSON to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what).encode() + b"\n")
        await self.process.stdin.drain()


@asynccontextmanager
async def node(script: Path, *arguments: str) -> AsyncIterator[NodeProgram]:
    """Run the script. At the end it must have exited with 0, or is killed if the test failed."""
    flags = ["--experimental-websocket", "--no-warnings"]  # Node.js 20 has WebSocket behind a flag
    process = await asyncio.create_subprocess_exec(
        "node",
        *flags,
        script,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(),
        cwd=script.parent,
    )
    try:
        yield NodeProgram(process)
        async with asyncio.timeout(TIMEOUT_S):
            _, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
