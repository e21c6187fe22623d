"""`latchboard clock`: a person says that the machine's clock is right. The running service reads it in the database.

`find_clock_doubt` is for `latchboard doctor`: does the clock agree with the time that is stored?
"""

from __future__ import annotations

import typer

from adapters.clock import SystemClock
from adapters.storage.sql import SqlDatabase
from adapters.storage.sql.migrations import HEAD
from app.cli.operator import open_database
from app.cli.support import load_settings_or_exit, run_async, stdout_console
from app.config.settings import Settings
from domain.devices.clock_watch import REMEDY, describe_doubt
from domain.kernel.clock import to_iso
from domain.kernel.steady_time import KEEP_INTERVAL_S
from domain.kernel.wall_clock import LONG_STOP_MS, MIN_JUMP_MS, ClockDoubt, DoubtKind

clock = typer.Typer(help="The clock of this machine, as the service judges it.", no_args_is_help=True)


@clock.command("trust")
def clock_trust() -> None:
    """Tell the running service that the clock of this machine is right."""
    settings, wall_ms = load_settings_or_exit(), SystemClock().now_ms()

    async def confirm() -> None:
        async with open_database(settings) as uow, uow.write(caller=None) as tx:
            await tx.steady_time.confirm_wall_time(wall_ms)

    run_async(confirm())
    stdout_console().print(
        f"The clock of this machine shows {to_iso(wall_ms)}. A running service believes it within {KEEP_INTERVAL_S:g} seconds.",
        markup=False,
    )


async def find_clock_doubt(settings: Settings, *, is_running: bool) -> str | None:
    """Why the service does not believe the clock, or would not at a start; None: it agrees with what is stored, or nothing is
    stored yet. Raises Unavailable, and what the database raises."""
    database, now_ms = SqlDatabase(settings.effective_database_url, pool_size=1), SystemClock().now_ms()
    try:
        if await database.revision() != HEAD:
            return None
        await database.start()
        async with database.uow.read() as tx:
            stored = await tx.steady_time.find(now_ms)
    finally:
        await database.stop()
    if stored is None or stored.wall_offset_ms is None:
        return None
    by_ms = now_ms - stored.steady_ms - stored.wall_offset_ms
    if by_ms > (MIN_JUMP_MS if is_running else LONG_STOP_MS):
        kind = DoubtKind.STEPPED if is_running else DoubtKind.AHEAD
    elif by_ms < -MIN_JUMP_MS:
        kind = DoubtKind.BEHIND
    else:
        return None
    return f"{describe_doubt(ClockDoubt(kind, by_ms, now_ms))} {REMEDY}"
