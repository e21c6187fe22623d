"""Commands of the program, run to their end by the fork server: imports are most of the processor time of a short command."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from pathlib import Path

from support.fork_server import ForkedProcess, fork_server
from support.service import Service, environment, program_command
from support.waiting import TIMEOUT_S


def launch_command(
    *arguments: str | Path, folder: Path, env: dict[str, str], out: int, errors: int
) -> subprocess.Popen[bytes] | ForkedProcess:
    """Start `latchboard *arguments`; its output goes to the descriptors."""
    words = [*map(str, arguments)]
    if home := fork_server():
        return home.start(words, folder=folder, env=env, out=out, errors=errors)
    command = [*program_command(), *words]
    return subprocess.Popen(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=errors)


def run_command(
    *arguments: str | Path, folder: Path, env: dict[str, str], is_merged: bool = True
) -> subprocess.CompletedProcess[str]:
    """`is_merged`: standard error is part of `stdout`."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as other:
        errors = out if is_merged else other
        process = launch_command(*arguments, folder=folder, env=env, out=out.fileno(), errors=errors.fileno())
        try:
            code = process.wait(TIMEOUT_S)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(TIMEOUT_S)
        out.seek(0)
        other.seek(0)
        return subprocess.CompletedProcess([*map(str, arguments)], code, out.read().decode(), other.read().decode())


async def command_output(*arguments: str | Path, folder: Path, env: dict[str, str]) -> tuple[int, str]:
    """Exit code and all output."""
    done = await asyncio.to_thread(run_command, *arguments, folder=folder, env=env)
    return done.returncode, done.stdout


async def latchboard(service: Service, *arguments: str | Path) -> tuple[int, str]:
    """Exit code and all output of a command with the settings of this service."""
    return await command_output(*arguments, folder=service.folder, env=environment(**service.settings))
