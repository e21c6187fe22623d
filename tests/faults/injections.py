"""The faults, one function each: inject one into a service under work. A campaign repeats it and checks at the end.

A function returns when the fault is over; the campaign then waits until the service acknowledges again, and repeats.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from faults.duplicates import DuplicatingDevice
from faults.false_time import CACHE_S
from faults.setups import Installation, Setup
from faults.workload import Workload
from support.webhook_receiver import Behaviour, drip, never_respond, reset

LOCKED_TABLES = ("readings", "events", "executions", "devices", "deliveries", "answers")
_ENDLESS_ANSWER = drip(bytes(64 * 1024), b"HTTP/1.1 500 x\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n", every_s=0.001)
_DRIPPING_ANSWER = drip(b"X-Filler: 1\r\n", b"HTTP/1.1 200 OK\r\n")


@dataclass
class World:
    """What a fault may touch. `turn` counts its injections, from 0."""

    workload: Workload
    installation: Installation
    long: bool
    turn: int = 0
    kept: dict[str, DuplicatingDevice] = field(default_factory=dict)


@dataclass(frozen=True)
class Fault:
    name: str
    setups: tuple[Setup, ...]
    inject: Callable[[World], Awaitable[None]]
    short: int
    """How often in the short form."""
    long: int
    per_service: int = 100
    """How often before the result is checked and a new service begins."""
    is_promised: bool = True
    """False where losses are to be expected; docs/reference/reliability.md says why."""


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
        await _cluster(world).terminate_busy_backends(1)
        await asyncio.sleep(0.1)


async def restart_postgres(world: World) -> None:
    await asyncio.to_thread(_cluster(world).stop)
    await asyncio.sleep(random.uniform(0, 1))
    await asyncio.to_thread(_cluster(world).start)


async def kill_postgres(world: World) -> None:
    await asyncio.to_thread(_cluster(world).kill)
    await asyncio.sleep(2)  # its children notice within a second
    await asyncio.to_thread(_cluster(world).start)


async def pause_postgres(world: World) -> None:
    _cluster(world).pause()
    await asyncio.sleep(20 if world.long else 7)
    _cluster(world).resume()


async def lock_table(world: World) -> None:
    await _cluster(world).lock_table(LOCKED_TABLES[world.turn % len(LOCKED_TABLES)], 60 if world.long else 7)


async def close_idle_connections(world: World) -> None:
    """As a pooler does: whatever was idle for 200 ms is gone."""
    cluster = _cluster(world)
    await cluster.execute("ALTER SYSTEM SET idle_session_timeout = '200ms'")
    await cluster.execute("SELECT pg_reload_conf()")
    await asyncio.sleep(10 if world.long else 4)
    await cluster.execute("ALTER SYSTEM RESET idle_session_timeout")
    await cluster.execute("SELECT pg_reload_conf()")


async def fill_disk(world: World) -> None:
    disk = world.installation.disk
    assert disk is not None
    await asyncio.to_thread(disk.fill)
    await asyncio.sleep(10 if world.long else 3)
    disk.free()


async def make_disk_read_only(world: World) -> None:
    """Then what an operator does: stop the service, mount the disk again, start."""
    disk = world.installation.disk
    assert disk is not None
    await _fail_disk(world, disk.make_read_only)


async def let_disk_vanish(world: World) -> None:
    disk = world.installation.disk
    assert disk is not None
    await _fail_disk(world, disk.vanish)


async def _fail_disk(world: World, fail: Callable[[], None]) -> None:
    disk, service = world.installation.disk, world.workload.service
    assert disk is not None
    await asyncio.to_thread(fail)
    await asyncio.sleep(10 if world.long else 3)
    service.kill()
    await asyncio.to_thread(disk.unmount)
    await asyncio.to_thread(disk.mount)
    await asyncio.to_thread(service.start)


async def move_data_away(world: World) -> None:
    """The data directory is renamed under the running service, and put back while it is stopped."""
    service = world.workload.service
    away = service.data_dir.with_name("moved")
    shutil.move(service.data_dir, away)
    await asyncio.sleep(10 if world.long else 3)
    service.kill()
    shutil.rmtree(service.data_dir, ignore_errors=True)
    shutil.move(away, service.data_dir)
    await asyncio.to_thread(service.start)


async def step_clock(world: World) -> None:
    """An hour ahead, then an hour behind, then right again."""
    clock = world.installation.clock
    assert clock is not None
    for offset_s in (3_600, -3_600, 0):
        clock.set(offset_s)
        await asyncio.sleep(CACHE_S + (5 if world.long else 2))


async def keep_service_away(world: World) -> None:
    """Mosquitto goes on receiving while the service is dead for some seconds."""
    world.workload.service.kill()
    await asyncio.sleep(20 if world.long else 6)
    await asyncio.to_thread(world.workload.service.start)


async def restart_mosquitto(world: World) -> None:
    await _end_mosquitto(world, signal.SIGTERM)


async def kill_mosquitto(world: World) -> None:
    await _end_mosquitto(world, signal.SIGKILL)


async def _end_mosquitto(world: World, with_signal: signal.Signals) -> None:
    broker = world.installation.broker
    assert broker is not None
    await asyncio.to_thread(broker.end, with_signal)
    await asyncio.sleep(random.uniform(0, 1))
    await asyncio.to_thread(broker.start)


async def send_duplicates(world: World) -> None:
    if world.turn == 0:
        world.kept["device"] = await DuplicatingDevice.create(world.workload)
    await world.kept["device"].send_round()


def misbehave(behaviour: Behaviour) -> Callable[[World], Awaitable[None]]:
    async def inject(world: World) -> None:
        receiver = world.workload.receiver
        receiver.behave = behaviour
        await asyncio.sleep(20 if world.long else 3)
        receiver.behave = world.workload.accept

    return inject


def _cluster(world: World):  # type: ignore[no-untyped-def]
    assert world.installation.cluster is not None
    return world.installation.cluster


_SQLITE, _POSTGRES = (Setup.SQLITE,), (Setup.POSTGRES,)
_BOTH = _SQLITE + _POSTGRES
_DISK, _CLOCK, _MOSQUITTO = (Setup.SMALL_DISK,), (Setup.FALSE_CLOCK,), (Setup.MOSQUITTO,)

FAULTS = (
    Fault("kill -9 of the service", _SQLITE, kill_service, short=3, long=1_000),
    Fault("kill -9 of the service", _POSTGRES, kill_service, short=3, long=200),
    Fault("SIGTERM of the service", _BOTH, stop_service, short=2, long=20),
    Fault("service stopped (SIGSTOP)", _BOTH, pause_service, short=1, long=5),
    Fault("database connections ended, 10 a second", _POSTGRES, terminate_backends, short=5, long=60),
    Fault("PostgreSQL restarted (immediate)", _POSTGRES, restart_postgres, short=2, long=20),
    Fault("kill -9 of PostgreSQL", _POSTGRES, kill_postgres, short=1, long=20),
    Fault("PostgreSQL stopped (SIGSTOP)", _POSTGRES, pause_postgres, short=1, long=5),
    Fault("a table locked", _POSTGRES, lock_table, short=1, long=len(LOCKED_TABLES)),
    Fault("idle connections closed", _POSTGRES, close_idle_connections, short=1, long=6),
    Fault("disk full", _DISK, fill_disk, short=1, long=10),
    Fault("disk read-only", _DISK, make_disk_read_only, short=1, long=10),
    Fault("disk gone", _DISK, let_disk_vanish, short=1, long=10),
    Fault("data directory moved away", _SQLITE, move_data_away, short=1, long=10),
    Fault("clock an hour ahead, then behind", _CLOCK, step_clock, short=1, long=10),
    Fault("service away from Mosquitto", _MOSQUITTO, keep_service_away, short=1, long=10),
    Fault("Mosquitto restarted (SIGTERM)", _MOSQUITTO, restart_mosquitto, short=2, long=20),
    Fault("kill -9 of Mosquitto", _MOSQUITTO, kill_mosquitto, short=1, long=20, is_promised=False),
    Fault("QoS 1 duplicates", _BOTH, send_duplicates, short=5, long=200),
    Fault("webhook receiver hangs", _SQLITE, misbehave(never_respond()), short=1, long=5),
    Fault("webhook receiver resets", _SQLITE, misbehave(reset()), short=1, long=5),
    Fault("webhook receiver drips", _SQLITE, misbehave(_DRIPPING_ANSWER), short=1, long=5),
    Fault("webhook receiver answers without an end", _SQLITE, misbehave(_ENDLESS_ANSWER), short=1, long=5),
)
