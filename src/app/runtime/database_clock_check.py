"""Whether this machine's clock agrees with the database's: rules of a cluster follow the arrival times of several machines."""

from __future__ import annotations

from adapters.storage.sql import SqlDatabase
from domain.kernel.clock import SECOND_MS, Clock

MAX_OFFSET_MS = SECOND_MS


async def find_clock_problem(server: SqlDatabase, clock: Clock) -> str | None:
    """What to do about a clock that is more than a second off; None if it agrees. The time that the question takes counts for
    neither side."""
    before_ms = clock.now_ms()
    server_ms = await server.clock_ms()
    after_ms = clock.now_ms()
    if server_ms is None or before_ms - MAX_OFFSET_MS <= server_ms <= after_ms + MAX_OFFSET_MS:
        return None
    offset_s, direction = (
        ((before_ms - server_ms) / 1000, "ahead of") if server_ms < before_ms else ((server_ms - after_ms) / 1000, "behind")
    )
    return (
        f"The clock of this machine is {offset_s:.1f} s {direction} the database's. Set up time synchronisation (NTP) on both: "
        "in a cluster, clocks may be at most a second apart."
    )
