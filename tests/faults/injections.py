"""The faults, one function each: inject one into a service under work. A campaign repeats it and checks at the end.

A function returns when the fault is over; the campaign then waits until the service acknowledges again, and repeats.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import aiomqtt

from adapters.storage.sql.move import move_to_postgres
from faults.boards import Boards
from faults.checks import Verdict
from faults.cluster import Cluster
from faults.disk import SmallDisk
from faults.duplicates import DuplicatingDevice
from faults.older_database import OlderDatabase
from faults.rule_storm import RULES_PER_DEVICE, RuleStorm
from faults.setups import Installation, Setup
from faults.timed_rules import TimedRules
from faults.waiting_work import WaitingWork
from faults.wire_kills import WireKills
from faults.workload import Workload
from support.command_line import latchboard
from support.machine_clock import CACHE_S
from support.service import Service
from support.waiting import TIMEOUT_S
from support.webhook_receiver import Behaviour, drip, never_respond, reset

Part = TypeVar("Part")
DAY_S = 86_400
AHEAD_S = 40 * DAY_S
"""More than the days that readings are kept."""
SINCE_1970_S = -int(time.time())
LOCKED_TABLES = ("readings", "events", "executions", "devices", "deliveries", "stored_responses")
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
    wires: list[WireKills] = field(default_factory=list)


@dataclass(frozen=True)
class Fault:
    name: str
    setups: tuple[Setup, ...]
    inject: Callable[[World], Awaitable[None]]
    short: int = 1
    """How often in the short form."""
    long: int = 10
    per_service: int = 100
    """How often before the result is checked and a new service begins."""
    is_promised: bool = True
    """False where losses are to be expected; docs/reference/reliability.md says why."""


async def kill_service(world: World) -> None:
    await world.workload.service.kill_and_restart()


async def pause_instance(world: World) -> None:
    await _present(world.installation.instances).pause(random.uniform(3, 12) if world.long else 4)


def silence(*, database: bool, log: bool) -> Callable[[World], Awaitable[None]]:
    """The network of an instance swallows everything, and nothing is reset."""

    async def inject(world: World) -> None:
        instances = _present(world.installation.instances)
        await instances.cut_off(random.uniform(5, 15) if world.long else 6, database=database, log=log)

    return inject


async def kill_log_node(world: World) -> None:
    nodes, number = _present(world.installation.nodes), world.turn % 3
    nodes.kill(number)
    await asyncio.sleep(random.uniform(0, 3))
    nodes.start(number)
    await nodes.wait_until_ready()


async def kill_all_log_nodes(world: World) -> None:
    nodes = _present(world.installation.nodes)
    nodes.stop()
    await asyncio.sleep(random.uniform(0, 3))
    nodes.start()
    await nodes.wait_until_ready()


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


async def keep_postgres_away(world: World) -> None:
    """Telemetry is confirmed meanwhile."""
    await asyncio.to_thread(_cluster(world).stop)
    before, goes_on_at = world.workload.confirmed, time.monotonic() + (20 if world.long else 8)
    while time.monotonic() < goes_on_at:
        await world.workload.progress(50, within_s=5)
    assert world.workload.confirmed > before
    await asyncio.to_thread(_cluster(world).start)


async def wait_in_log(world: World) -> None:
    """PostgreSQL is away, and rules have to be judged afterwards by what arrived meanwhile."""
    async with _timed_rules(world) as (rules, clients):
        await asyncio.to_thread(_cluster(world).stop)
        await asyncio.sleep(2)
        await rules.hold(clients)
        await asyncio.to_thread(_cluster(world).start)
        await world.workload.progress(50)


async def wait_for_hung_owner(world: World) -> None:
    """Another instance than that of the devices hangs; it owns some of their partitions."""
    async with _timed_rules(world) as (rules, clients):
        pausing = asyncio.create_task(_present(world.installation.instances).pause(10, number=1 + world.turn % 2))
        await rules.hold(clients)
        await pausing


@asynccontextmanager
async def _timed_rules(world: World) -> AsyncIterator[tuple[TimedRules, list[aiomqtt.Client]]]:
    rules = TimedRules(world.workload, _present(world.installation.instances).instances[0])
    await rules.prepare()
    silence = Verdict()
    async with rules.beating() as clients:
        yield rules, clients
        await rules.check(silence)
        await rules.check_silence(silence)

    async def check(found: Verdict) -> None:
        found.add(silence)

    world.workload.checks.append(check)


async def kill_at_the_wire(world: World) -> None:
    """The service is killed when devices have commands. It comes back before their deadlines, or after them."""
    [wire] = world.wires or [await _wire_kills(world, world.workload.service)]

    async def end() -> None:
        world.workload.service.kill()
        await asyncio.sleep(random.choice((0, 2)))
        await asyncio.to_thread(world.workload.service.start)

    await wire.strike(end)


async def end_sender_at_the_wire(world: World) -> None:
    """The instance that devices are connected to is killed, or hangs for longer than their commands last, when they have them."""
    sender = _present(world.installation.instances).instances[world.turn % 2]
    wire = await _wire_kills(world, sender)

    async def end() -> None:
        assert sender.process is not None
        number = signal.SIGSTOP if world.turn % 4 < 2 else signal.SIGKILL
        os.kill(sender.process.pid, number)
        await asyncio.sleep(4)
        os.kill(sender.process.pid, signal.SIGCONT)
        if number == signal.SIGKILL:
            sender.kill()
            await asyncio.to_thread(sender.start)

    await wire.strike(end)


async def _wire_kills(world: World, sender: Service) -> WireKills:
    wire = WireKills(world.workload, sender)
    world.wires.append(wire)
    await wire.prepare()
    world.workload.checks.append(wire.check)
    return wire


async def restore_backup(world: World) -> None:
    """A backup; then work goes on; then the service is stopped, and the backup takes the place of its database."""
    service = world.workload.service
    backup = service.folder / f"backup-{world.turn}"
    async with _older_database(world) as database:
        await _run(service, "backup", backup)
        await database.go_on()
        await asyncio.to_thread(service.stop)
        database.forget()
        await _run(service, "restore", backup)
        await asyncio.to_thread(service.start)


async def fail_over(world: World) -> None:
    """PostgreSQL dies, and a standby that lacks its last commits takes over."""
    cluster = _cluster(world)
    async with _older_database(world) as database:
        standby = await asyncio.to_thread(cluster.copy_standby)
        await database.go_on()
        await asyncio.to_thread(cluster.stop)
        await asyncio.sleep(1)  # what the service has confirmed is heard by now
        database.forget()
        await asyncio.to_thread(cluster.take_over, standby)
        await _until_logged(world.workload.service, "everything was read anew", world.turn + 1)


@asynccontextmanager
async def _older_database(world: World) -> AsyncIterator[OlderDatabase]:
    database, told = OlderDatabase(world.workload, lambda: world.turn + 1), Verdict()
    async with world.workload.commander.turn:
        await database.prepare()
        yield database
        await database.check_cursors(told)

    async def check(found: Verdict) -> None:
        found.add(told)
        await database.check(found)

    world.workload.checks.append(check)


async def move_in_two_steps(world: World) -> None:
    """A move to PostgreSQL is interrupted late and abandoned, the service goes on, and then it is moved."""
    service, target = world.workload.service, _cluster(world).database_url
    await asyncio.to_thread(service.stop)
    with contextlib.suppress(_Interrupted):
        await move_to_postgres(service.data_dir / "latchboard.db", target, _interrupt_late)
        raise AssertionError("the move was to be interrupted")
    code, output = await asyncio.to_thread(service.expect_start_failure)
    assert (code, "move-to --abandon" in output) == (1, True), output
    await _run(service, "move-to", "--abandon")
    await asyncio.to_thread(service.start)
    await world.workload.progress(2_000 if world.long else 500)
    await asyncio.to_thread(service.stop)
    await _run(service, "move-to", target)
    service.settings["LATCHBOARD_DATABASE_URL"] = target
    await asyncio.to_thread(service.start)


class _Interrupted(Exception):
    pass


def _interrupt_late(table: str, _rows: int) -> None:
    if table == "readings":
        raise _Interrupted


async def _run(service: Service, *arguments: str | Path) -> None:
    code, output = await latchboard(service, *arguments)
    assert code == 0, output


async def _until_logged(service: Service, text: str, times: int) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while service.log_file.read_text(errors="replace").count(text) < times:
            await asyncio.sleep(0.1)


async def kill_in_a_storm(world: World) -> None:
    storm = RuleStorm(world.workload, 1_500 if world.long else 20 * RULES_PER_DEVICE)
    await storm.prepare()
    await storm.break_loose()
    await asyncio.sleep(random.uniform(0, 1))
    await world.workload.service.kill_and_restart()
    world.workload.checks.append(storm.check)


async def read_no_log(world: World) -> None:
    """The pipe of the log is full all the time. SIGTERM ends the service under load, and it starts again."""
    await world.workload.progress(2_000 if world.long else 500)
    await asyncio.to_thread(world.workload.service.restart)


async def kill_postgres(world: World) -> None:
    await asyncio.to_thread(_cluster(world).kill)
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
    disk = _present(world.installation.disk)
    await asyncio.to_thread(disk.fill)
    await asyncio.sleep(10 if world.long else 3)
    disk.free()


def fail_disk(fail: Callable[[SmallDisk], None]) -> Callable[[World], Awaitable[None]]:
    """Then what an operator does: stop the service, mount the disk again, start."""

    async def inject(world: World) -> None:
        disk, service = _present(world.installation.disk), world.workload.service
        await asyncio.to_thread(fail, disk)
        await asyncio.sleep(10 if world.long else 3)
        service.kill()
        await asyncio.to_thread(disk.unmount)
        await asyncio.to_thread(disk.mount)
        await asyncio.to_thread(service.start)

    return inject


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
    clock = _present(world.installation.clock)
    for offset_s in (3_600, -3_600, 0):
        clock.set(offset_s)
        await asyncio.sleep(CACHE_S + (5 if world.long else 2))


async def put_clock_ahead(world: World) -> None:
    """Forty days ahead for a minute, then right again."""
    clock = _present(world.installation.clock)
    await _prepare_waiting_work(world)
    clock.set(AHEAD_S)
    await asyncio.sleep(75 if world.long else 10)
    clock.set(0)
    await asyncio.sleep(CACHE_S + 2)


def boot_with(*offsets_s: int) -> Callable[[World], Awaitable[None]]:
    """The service is killed and starts with a wrong clock, which is right after a minute; the offsets take turns."""

    async def inject(world: World) -> None:
        clock, service = _present(world.installation.clock), world.workload.service
        await _prepare_waiting_work(world)
        service.kill()
        clock.set(offsets_s[world.turn % len(offsets_s)])
        await asyncio.to_thread(service.start)
        await asyncio.sleep(75 if world.long else 10)
        clock.set(0)
        await asyncio.sleep(CACHE_S + 2)

    return inject


async def _prepare_waiting_work(world: World) -> None:
    work = WaitingWork(world.workload)
    await world.workload.sign_in()
    await work.prepare()
    world.workload.checks.append(work.check)


async def keep_service_away(world: World) -> None:
    """Mosquitto goes on receiving while the service is dead for some seconds."""
    world.workload.service.kill()
    await asyncio.sleep(20 if world.long else 6)
    await asyncio.to_thread(world.workload.service.start)


async def leave_boards_alone(world: World) -> None:
    """The service is dead for some seconds; on the false clock for five hours, then for most of a day. Boards go on meanwhile."""
    workload, clock = world.workload, world.installation.clock
    hours = 0.0 if clock is None else (5.0, 23.0)[world.turn % 2]
    absence_s = (20.0, 8.0)[world.turn % 2] if clock is None else hours * 3_600
    boards = Boards(workload, time.time if clock is None else lambda: clock.now_ms() / 1000, absence_s)
    workload.checks.append(boards.check)
    await workload.sign_in()
    await boards.prepare()
    await asyncio.sleep(max(0.0, boards.begin_ts - boards.now_s()))
    workload.service.kill()
    if clock is not None:
        clock.step(hours=hours)
    await boards.act()
    await asyncio.to_thread(workload.service.start)


def restart_mosquitto(with_signal: signal.Signals) -> Callable[[World], Awaitable[None]]:
    async def inject(world: World) -> None:
        broker = _present(world.installation.broker)
        await asyncio.to_thread(broker.end, with_signal)
        await asyncio.sleep(random.uniform(0, 1))
        await asyncio.to_thread(broker.start)

    return inject


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


def _cluster(world: World) -> Cluster:
    return _present(world.installation.cluster)


def _present(part: Part | None) -> Part:
    assert part is not None, "the setup of this fault has such a part"
    return part


_SQLITE, _POSTGRES = (Setup.SQLITE,), (Setup.POSTGRES,)
_BOTH = _SQLITE + _POSTGRES
_CLUSTER, _SILENT = (Setup.CLUSTER,), (Setup.SILENT_CLUSTER,)
_DISK, _CLOCK, _MOSQUITTO = (Setup.SMALL_DISK,), (Setup.FALSE_CLOCK,), (Setup.MOSQUITTO,)
_DOUBTED, _MOVE, _UNREAD = (Setup.DOUBTED_CLOCK,), (Setup.MOVE,), (Setup.UNREAD_LOG,)

FAULTS = (
    Fault("kill -9 of the service", _SQLITE, kill_service, short=3, long=1_000),
    Fault("kill -9 of the service", _POSTGRES, kill_service, short=3, long=200),
    Fault("SIGTERM of the service", _BOTH, stop_service, short=2, long=20),
    Fault("service stopped (SIGSTOP)", _BOTH, pause_service, long=5),
    Fault("database connections ended, 10 a second", _POSTGRES, terminate_backends, short=5, long=60),
    Fault("PostgreSQL restarted (immediate)", _POSTGRES, restart_postgres, short=2, long=20),
    Fault("kill -9 of an instance", _CLUSTER, kill_service, short=3, long=200, per_service=50),
    Fault("instances updated one after the other", _CLUSTER, stop_service, long=20, per_service=20),
    Fault("an instance stopped (SIGSTOP)", _CLUSTER, pause_instance, short=2, long=100, per_service=25),
    Fault("silent network to PostgreSQL", _SILENT, silence(database=True, log=False), long=30, per_service=10),
    Fault("silent network to NATS", _SILENT, silence(database=False, log=True), long=30, per_service=10),
    Fault("silent network to both", _SILENT, silence(database=True, log=True), long=30, per_service=10),
    Fault("kill -9 of a NATS node", _CLUSTER, kill_log_node, short=2, long=50, per_service=25),
    Fault("kill -9 of all NATS nodes", _CLUSTER, kill_all_log_nodes, long=20, per_service=10),
    Fault("PostgreSQL restarted (immediate)", _CLUSTER, restart_postgres, long=10),
    Fault("PostgreSQL away, devices go on", _CLUSTER, keep_postgres_away, long=10),
    Fault("PostgreSQL away, timers of rules go on", _CLUSTER, wait_in_log, long=10, per_service=5),
    Fault("the owner of partitions hangs, timers of rules go on", _CLUSTER, wait_for_hung_owner, long=10, per_service=5),
    Fault("kill -9 while devices have commands", _BOTH, kill_at_the_wire, short=2, long=100, per_service=50),
    Fault("the sender ends while devices have commands", _CLUSTER, end_sender_at_the_wire, short=2, long=20, per_service=4),
    Fault("a backup restored", _SQLITE, restore_backup, long=20, per_service=5),
    Fault("failover to an older standby", _POSTGRES, fail_over, long=20, per_service=5),
    Fault("a move interrupted, with writes between", _MOVE, move_in_two_steps, long=20, per_service=1),
    Fault("kill -9 in a storm of rules", _BOTH, kill_in_a_storm, long=10, per_service=2),
    Fault("nobody reads the log", _UNREAD, read_no_log, short=2, long=20),
    Fault("kill -9 of PostgreSQL", _POSTGRES, kill_postgres, long=20),
    Fault("PostgreSQL stopped (SIGSTOP)", _POSTGRES, pause_postgres, long=5),
    Fault("a table locked", _POSTGRES, lock_table, long=len(LOCKED_TABLES)),
    Fault("idle connections closed", _POSTGRES, close_idle_connections, long=6),
    Fault("disk full", _DISK, fill_disk),
    Fault("disk read-only", _DISK, fail_disk(SmallDisk.make_read_only)),
    Fault("disk gone", _DISK, fail_disk(SmallDisk.vanish)),
    Fault("data directory moved away", _SQLITE, move_data_away),
    Fault("clock an hour ahead, then behind", _CLOCK, step_clock),
    Fault("clock ahead for a minute", _DOUBTED, put_clock_ahead, per_service=2),
    Fault("clock behind at boot", _DOUBTED, boot_with(-2 * DAY_S, SINCE_1970_S), short=2, per_service=2),
    Fault("clock ahead at boot", _DOUBTED, boot_with(AHEAD_S), per_service=2),
    Fault("service away from Mosquitto", _MOSQUITTO, keep_service_away),
    Fault("service away, boards go on", _BOTH + _CLUSTER, leave_boards_alone, long=20, per_service=5),
    Fault("service away for hours, boards go on", _CLOCK, leave_boards_alone, short=2, long=20, per_service=4),
    Fault("Mosquitto restarted (SIGTERM)", _MOSQUITTO, restart_mosquitto(signal.SIGTERM), short=2, long=20),
    Fault("kill -9 of Mosquitto", _MOSQUITTO, restart_mosquitto(signal.SIGKILL), long=20, is_promised=False),
    Fault("QoS 1 duplicates", _BOTH, send_duplicates, short=5, long=200),
    *(
        Fault(f"webhook receiver {does}", _SQLITE, misbehave(behaviour), long=5)
        for does, behaviour in (
            ("hangs", never_respond()),
            ("resets", reset()),
            ("drips", _DRIPPING_ANSWER),
            ("answers without an end", _ENDLESS_ANSWER),
        )
    ),
)
