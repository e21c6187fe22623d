"""Runs the service once: composes the program, serves until a signal, prints the banner, and runs the demo when asked to."""

from __future__ import annotations

import asyncio
import contextlib

import structlog

from app.cli import banner
from app.cli.first_account import FirstLogin, create_first_account
from app.config.settings import Settings
from app.runtime import open_files
from app.wiring import lifecycle
from app.wiring.compose import compose
from app.wiring.program import Program

DEMO_STOP_TIMEOUT_S = 1.0

log = structlog.get_logger("service")


async def serve(settings: Settings, *, demo: bool = False) -> int:
    """Serve until a signal. Returns the exit code. Raises what `startup_error_message` has a message for."""
    open_files.raise_limit()  # before the parts take their share of it
    program = compose(settings)
    demo_tasks: list[asyncio.Task[None]] = []
    login: list[FirstLogin | None] = []

    async def prepare(program: Program) -> None:
        login.append(await create_first_account(program))

    async def started(program: Program, port: int) -> None:
        banner.print_banner(settings.model_copy(update={"http_port": port}), login[0], demo=demo)
        if demo:
            from app.simulator.demo import DemoFleet  # only the demo needs the simulator

            demo_tasks.append(asyncio.create_task(DemoFleet(program).run(), name="demo"))
            demo_tasks[0].add_done_callback(_log_demo_failure)

    try:
        await lifecycle.run(program, prepare, started)
    finally:
        for task in demo_tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await asyncio.wait_for(task, DEMO_STOP_TIMEOUT_S)
    return 0


def _log_demo_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("the demo failed; the service continues", exc_info=task.exception())
