"""Runs the service once: composes the program, serves until a signal, prints the banner, and runs the demo when asked to."""

from __future__ import annotations

import asyncio
import contextlib

import structlog

from app.cli import startup_banner
from app.cli.first_account_at_start import CreatedFirstAccount, IssuedFirstRunLink, create_first_account
from app.config.settings import Settings
from app.runtime import start
from app.runtime.processes import WorkerProcessContext
from app.wiring import lifecycle
from app.wiring.compose import compose
from app.wiring.program import ComposedApplication

DEMO_STOP_TIMEOUT_S = 1.0

log = structlog.get_logger("service")


async def serve(
    settings: Settings, *, demo: bool = False, worker: WorkerProcessContext | None = None, first_run_token: str | None = None
) -> int:
    """Serve until a signal. `worker`: set in a worker process; they all have the same `first_run_token`. Returns the exit code.
    Raises what `startup_error_message` has a message for."""
    start.raise_limit()  # before the parts take their share of it
    program = compose(settings, worker)
    demo_tasks: list[asyncio.Task[None]] = []
    login: list[CreatedFirstAccount | IssuedFirstRunLink | None] = []

    async def prepare(program: ComposedApplication) -> None:
        login.append(
            await create_first_account(program, startup_banner.network_url(settings), make_up=demo, token=first_run_token)
        )

    async def started(program: ComposedApplication, port: int) -> None:
        shown = settings.model_copy(update={"http_port": port})
        if worker is not None:
            worker.report_ready()
            if not worker.is_first_start:
                return
        if not demo:
            startup_banner.print_banner(shown, login[0])
            return
        from app.simulator.demo import DemoFleet  # only the demo needs the simulator
        from app.simulator.demo_projects_keys_and_schedule import HIGHLIGHTS

        startup_banner.print_banner(shown, login[0], highlights=HIGHLIGHTS, demo=True)
        demo_fleet = DemoFleet(program, startup_banner.http_url(shown), _owner_password(settings, login[0]))
        demo_tasks.append(asyncio.create_task(demo_fleet.run(), name="demo"))
        demo_tasks[0].add_done_callback(_log_demo_failure)

    try:
        await lifecycle.run(program, prepare, started)
    finally:
        for task in demo_tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await asyncio.wait_for(task, DEMO_STOP_TIMEOUT_S)
    return 0


def _owner_password(settings: Settings, login: CreatedFirstAccount | IssuedFirstRunLink | None) -> str | None:
    """The password of a login that was made at this start."""
    if not isinstance(login, CreatedFirstAccount):
        return None
    return login.password or (settings.owner_password.get_secret_value() if settings.owner_password else None)


def _log_demo_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("the demo failed; the service continues", exc_info=task.exception())
