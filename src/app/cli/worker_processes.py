"""`latchboard serve --workers N`: N processes share the HTTP port, and one of them, the leader, holds the devices."""

from __future__ import annotations

import asyncio
import importlib
import os
import secrets
import signal
import string
from pathlib import Path
from tempfile import TemporaryDirectory

import structlog
import typer

from app.cli.support import run_async
from app.config.settings import Settings
from app.runtime.processes import WorkerProcessContext, WorkerProcessSupervisor
from app.wiring.adapters import with_free_ports
from app.wiring.http_listeners import reserve_port
from domain.team.first_run import FIRST_RUN_TOKEN_LENGTH

_IMPORTED_ONCE = ("app.cli.serve", "adapters.delivery.courier", "adapters.engine.native", "adapters.mqtt.embedded", "asyncpg")
"""The workers share the memory of what the parent has imported, and a replacement starts sooner."""


def run_workers(settings: Settings) -> int:
    """Run until a signal. Returns the exit code. Raises PortInUseError."""
    settings = with_free_ports(settings)
    for name in _IMPORTED_ONCE:
        importlib.import_module(name)
    token = "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(FIRST_RUN_TOKEN_LENGTH))
    with reserve_port(settings.http_host, settings.http_port), TemporaryDirectory(prefix="latchboard-") as folder:
        return WorkerProcessSupervisor(
            settings.workers, Path(folder), lambda identity: _run_worker(settings, identity, token)
        ).run()


def _run_worker(settings: Settings, identity: WorkerProcessContext, first_run_token: str) -> int:
    from app.cli.serve import serve

    structlog.contextvars.bind_contextvars(worker=identity.number)

    async def work() -> int:
        asyncio.get_running_loop().add_reader(identity.parent_pipe, _on_parent_gone, identity.parent_pipe)
        return await serve(settings, worker=identity, first_run_token=first_run_token)

    try:
        return run_async(work())
    except typer.Exit as exit_request:
        return exit_request.exit_code


def _on_parent_gone(pipe: int) -> None:
    asyncio.get_running_loop().remove_reader(pipe)
    structlog.get_logger("workers").error("the parent process has ended, so this worker stops")
    os.kill(os.getpid(), signal.SIGTERM)
