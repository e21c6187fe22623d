"""The faults, one function each: inject one into a service under work. A campaign repeats it and checks at the end.

A function returns when the fault is over; the campaign then waits until the service acknowledges again, and repeats.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from faults.cluster import Cluster
from faults.workload import Workload

SQLITE, POSTGRES = "sqlite", "postgres"
LOCKED_TABLES = ("readings", "events", "executions", "devices", "deliveries", "answers")


@dataclass(frozen=True)
class World:
    """What a fault may touch. `cluster` is None on SQLite."""

    workload: Workload
    cluster: Cluster | None
    turn: int
    long: bool

    @property
    def database(self) -> Cluster:
        assert self.cluster is not None
        return self.cluster


@dataclass(frozen=True)
class Fault:
    name: str
    databases: tuple[str, ...]
    inject: Callable[[World], Awaitable[None]]
    short: int
    """How often in the short form."""
    long: int


async def kill_service(world: World) -> None:
    await world.workload.service.kill_and_restart()


async def stop_service(world: World) -> None:
    """SIGTERM under load, and a start."""
    await asyncio.to_thread(world.workload.service.restart)


async def pause_service(world: World) -> None:
    process = world.workload.service.process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    await asyncio.sleep(12 if world.long else 3)
    os.kill(process.pid, signal.SIGCONT)


async def terminate_backends(world: World) -> None:
    """Ten a second, busy ones first."""
    for _ in range(10):
        await world.database.terminate_busy_backends(1)
        await asyncio.sleep(0.1)


async def restart_postgres(world: World) -> None:
    await asyncio.to_thread(world.database.stop)
    await asyncio.sleep(random.uniform(0, 1))
    await asyncio.to_thread(world.database.start)


async def kill_postgres(world: World) -> None:
    await asyncio.to_thread(world.database.kill)
    await asyncio.sleep(2)  # its children notice within a second
    await asyncio.to_thread(world.database.start)


async def pause_postgres(world: World) -> None:
    world.database.pause()
    await asyncio.sleep(20 if world.long else 7)
    world.database.resume()


async def lock_table(world: World) -> None:
    await world.database.lock_table(LOCKED_TABLES[world.turn % len(LOCKED_TABLES)], 60 if world.long else 7)


async def close_idle_connections(world: World) -> None:
    """As a pooler does: whatever was idle for 200 ms is gone."""
    await world.database.execute("ALTER SYSTEM SET idle_session_timeout = '200ms'")
    await world.database.execute("SELECT pg_reload_conf()")
    await asyncio.sleep(10 if world.long else 4)
    await world.database.execute("ALTER SYSTEM RESET idle_session_timeout")
    await world.database.execute("SELECT pg_reload_conf()")


FAULTS = (
    Fault("kill -9 of the service", (SQLITE, POSTGRES), kill_service, short=3, long=100),
    Fault("SIGTERM of the service", (SQLITE,), stop_service, short=2, long=20),
    Fault("service stopped (SIGSTOP)", (SQLITE, POSTGRES), pause_service, short=1, long=5),
    Fault("database connections ended, 10 a second", (POSTGRES,), terminate_backends, short=5, long=60),
    Fault("PostgreSQL restarted (immediate)", (POSTGRES,), restart_postgres, short=2, long=20),
    Fault("kill -9 of PostgreSQL", (POSTGRES,), kill_postgres, short=1, long=20),
    Fault("PostgreSQL stopped (SIGSTOP)", (POSTGRES,), pause_postgres, short=1, long=5),
    Fault("a table locked", (POSTGRES,), lock_table, short=1, long=len(LOCKED_TABLES)),
    Fault("idle connections closed", (POSTGRES,), close_idle_connections, short=1, long=6),
)
