"""`latchboard serve --workers 2` on PostgreSQL, from outside: two processes behind one HTTP port, and their parent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiomqtt
import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from app.runtime.processes import SILENCE_TIMEOUT_S
from support import postgres
from support.device import Device, create_device
from support.empty_database import empty_postgres
from support.ports import free_ports
from support.service import PASSWORD, ApiClient, FeedClient, Service
from support.waiting import OPERATION_TIMEOUT_S, TIMEOUT_S

needs_postgres = pytest.mark.skipif(not postgres.available(), reason="needs PostgreSQL")
WORKERS = 2
OWN_PAGE = {"X-CSRF-Protection": "1"}
RESTARTS = "latchboard_worker_process_restarts_total{"
REQUESTS = "latchboard_http_requests_total{"


class Workers(Service):
    """The service with two worker processes; each has a port of its own beside the shared one."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        first = next(port for port in free_ports(8) if _is_free(port + 1))
        super().__init__(
            folder,
            LATCHBOARD_DATABASE_URL=asyncio.run(empty_postgres()),
            LATCHBOARD_WORKERS=WORKERS,
            LATCHBOARD_WORKER_PORT=first,
            **settings,
        )

    def own_url(self, worker: int) -> str:
        return f"http://127.0.0.1:{int(self.settings['LATCHBOARD_WORKER_PORT']) + worker - 1}"

    @asynccontextmanager
    async def own_feed(self, worker: int, owner: ApiClient, query: str) -> AsyncIterator[FeedClient]:
        address = f"{self.own_url(worker)}/api/v1/ws{query}".replace("http", "ws", 1)
        async with connect(address, additional_headers=owner.headers, open_timeout=TIMEOUT_S, close_timeout=1) as opened:
            feed = FeedClient(opened)
            await feed.wait_for("initial_state")
            yield feed

    def start(self) -> None:
        super().start()
        asyncio.run(self.all_ready())

    async def all_ready(self) -> None:
        async with httpx.AsyncClient(timeout=OPERATION_TIMEOUT_S) as client, asyncio.timeout(TIMEOUT_S):
            for worker in range(1, WORKERS + 1):
                while not await _is_ready(client, self.own_url(worker)):
                    await asyncio.sleep(0.05)

    def pids(self) -> list[int]:
        assert self.process is not None
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    async def pid_of(self, worker: int) -> int:
        """From its log line."""
        lines = [json.loads(line) for line in self.log(100_000).splitlines() if '"a worker process is ready"' in line]
        return int([line["pid"] for line in lines if line["worker"] == worker][-1])

    async def sample(self, worker: int, name: str) -> float:
        """The sum of a metric's samples at one worker."""
        async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
            text = (await client.get(f"{self.own_url(worker)}/metrics")).text
        return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))


def _is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind(("127.0.0.1", port))
        return True
    return False


def is_alive(pid: int) -> bool:
    """False for a zombie too: the test process may be its new parent, which does not ask for its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


async def _is_ready(client: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await client.get(f"{url}/readyz")).status_code == 200
    except httpx.TransportError:
        return False


async def get_on_new_connection(url: str) -> int:
    async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
        return (await client.get(url)).status_code


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Workers]:
    """For each test: all of a test process share one PostgreSQL database."""
    with Workers(tmp_path) as running:
        yield running


@needs_postgres
async def test_both_workers_answer_and_a_command_reaches_its_device_through_either(program: Workers) -> None:
    before = [await program.sample(worker, REQUESTS) for worker in (1, 2)]
    assert {await get_on_new_connection(f"{program.url}/healthz") for _ in range(100)} == {200}
    after = [await program.sample(worker, REQUESTS) for worker in (1, 2)]
    assert all(now - then > 1 for then, now in zip(before, after, strict=True)), (before, after)  # 1: the sample itself
    async with program.api() as owner:
        pump = await reachable_device(program, owner)
        async with pump.online(program):
            for worker in (1, 2):
                url = f"{program.own_url(worker)}/api/v1{pump.path}/command"
                answer = await owner.raw.post(url, json={"cmd": "ON", "waitSeconds": 30}, headers=owner.headers)
                assert answer.json()["status"] == "DONE", answer.text


@needs_postgres
async def test_the_feed_of_each_worker_has_every_reading_also_after_the_holder_of_the_devices_was_killed(
    program: Workers,
) -> None:
    async with program.api() as owner:
        pump = await reachable_device(program, owner)
        wanted = f"?types=telemetry&deviceId={pump.device_id}"
        cursors: dict[int, Any] = {}
        for round_ in range(2):
            async with pump.online(program) as line:
                for worker in (1, 2):
                    if round_ == 0:
                        async with program.own_feed(worker, owner, wanted) as feed:
                            await line.report(value=worker)
                            cursors[worker] = (await feed.wait_for("telemetry", value=worker))["cursor"]
                    else:
                        await line.report(value=10 + worker)
                        await until_resumed(program, worker, owner, f"{wanted}&cursor={cursors[worker]}", value=10 + worker)
            if round_ == 0:
                killed = await program.pid_of(1)
                os.kill(killed, signal.SIGKILL)
                async with asyncio.timeout(TIMEOUT_S):
                    while killed in program.pids():  # a client that it accepts while it dies waits for a long time
                        await asyncio.sleep(0.01)
                await until_reachable(program, owner, pump)


async def until_resumed(program: Workers, worker: int, owner: ApiClient, query: str, value: int) -> None:
    """The worker may not have been replaced yet. It may take the devices over meanwhile: then it closes its feeds, and the client
    connects again."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            with contextlib.suppress(ConnectionClosed, InvalidHandshake, OSError):
                async with program.own_feed(worker, owner, query) as feed:
                    await feed.wait_for("telemetry", value=value)
                    return
            await asyncio.sleep(0.05)


@needs_postgres
@pytest.mark.parametrize("victim", [1, 2])
async def test_a_killed_worker_is_replaced_while_the_other_answers_and_devices_come_back(program: Workers, victim: int) -> None:
    async with program.api() as owner:
        pump = await create_device(owner)
        killed, survivor = await program.pid_of(victim), 3 - victim
        restarts = {worker: await program.sample(worker, RESTARTS) for worker in (1, 2)}
        os.kill(killed, signal.SIGKILL)
        assert await get_on_new_connection(f"{program.own_url(survivor)}/healthz") == 200
        async with asyncio.timeout(TIMEOUT_S):
            while await program.pid_of(victim) == killed:
                await asyncio.sleep(0.05)
        assert killed not in program.pids()
        assert len(program.pids()) == WORKERS
        await program.all_ready()
        assert await program.sample(victim, RESTARTS) == restarts[victim] + 1
        assert await program.sample(survivor, RESTARTS) == restarts[survivor]
        await until_reachable(program, owner, pump)
    ended = json.loads([line for line in program.error_lines() if "has ended and is replaced" in line][-1])
    assert (ended["worker"], ended["exit_code"]) == (victim, -signal.SIGKILL)


async def reachable_device(program: Workers, owner: ApiClient) -> Device:
    """Another worker than the one that creates it may hold the devices; it learns the password a moment later."""
    device = await create_device(owner)
    await until_reachable(program, owner, device)
    return device


async def until_reachable(program: Workers, owner: ApiClient, device: Device) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not await _can_command(program, owner, device):
            await asyncio.sleep(0.1)


async def _can_command(program: Workers, owner: ApiClient, pump: Device) -> bool:
    """False while no worker holds the devices."""
    try:
        async with pump.online(program):
            done = await owner.post(f"{pump.path}/command", {"cmd": "ON", "waitSeconds": 30})
            return bool(done["status"] == "DONE")
    except aiomqtt.MqttError:
        return False


@needs_postgres
def test_sigterm_ends_the_parent_and_all_workers(program: Workers) -> None:
    workers = program.pids()
    assert len(workers) == WORKERS
    program.stop()
    assert not any(is_alive(pid) for pid in workers)
    assert program.log(100_000).count('"stopped"') == WORKERS
    assert program.error_lines() == []


@needs_postgres
def test_the_workers_stop_when_their_parent_is_killed(program: Workers) -> None:
    workers = program.pids()
    assert len(workers) == WORKERS
    program.kill()
    deadline = time.monotonic() + TIMEOUT_S
    while any(is_alive(pid) for pid in workers):
        assert time.monotonic() < deadline, program.log()
        time.sleep(0.05)
    assert program.log(100_000).count('"stopped"') == WORKERS


def post_first_run(program: Workers, worker: int, below: str, body: dict[str, str]) -> httpx.Response:
    url = f"{program.own_url(worker)}/dashboard/session/first-run{below}"
    return httpx.post(url, json=body, headers=OWN_PAGE, timeout=TIMEOUT_S)


@needs_postgres
def test_the_link_of_the_first_start_works_at_either_worker(tmp_path: Path) -> None:
    first_run = {"LATCHBOARD_OWNER_EMAIL": "", "LATCHBOARD_OWNER_PASSWORD": ""}
    program = Workers(tmp_path)
    for name in first_run:
        del program.settings[name]
    with program:
        [link] = [word for word in (program.data_dir / "first-run-link.txt").read_text().split() if "/first-run/" in word]
        token = link.rpartition("/")[2]
        for worker in (1, 2):
            state = post_first_run(program, worker, "/state", {"token": token})
            assert state.json()["state"] == "READY", state.text
        person = {"token": token, "name": "A", "email": "a@example.com", "password": PASSWORD}
        assert post_first_run(program, 2, "", person).status_code < 300
        state = post_first_run(program, 1, "/state", {"token": token})
        assert state.json()["state"] == "DONE"


@needs_postgres
def test_a_port_in_use_ends_the_start_with_a_message(tmp_path: Path) -> None:
    second = Workers(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", second.port))
        taken.listen()
        code, output = second.expect_start_failure()
    assert code == 1
    assert f"127.0.0.1:{second.port}" in output
    assert "LATCHBOARD_HTTP_PORT" in output


def test_workers_on_sqlite_are_refused_with_what_to_do(tmp_path: Path) -> None:
    service = Service(tmp_path)
    process = service.launch("serve", "--workers", "2")
    assert process.wait(TIMEOUT_S) == 2
    assert "LATCHBOARD_DATABASE_URL" in service.log()
    assert "move-to" in service.log()
    assert not service.data_dir.exists()


@needs_postgres
@pytest.mark.parametrize("role", ["leader", "other"])
async def test_a_worker_that_hangs_is_replaced_and_the_devices_are_taken_over_once(program: Workers, role: str) -> None:
    """A stopped process keeps its ports, its connections, and what the kernel gives it: nobody waits for it any longer."""
    async with program.api() as owner:
        pump = await reachable_device(program, owner)
        leader = leader_of(program)
        victim = leader if role == "leader" else 3 - leader
        stopped, survivor = await program.pid_of(victim), 3 - victim
        async with httpx.AsyncClient(base_url=program.own_url(victim), timeout=TIMEOUT_S) as kept:
            assert (await kept.get("/healthz")).status_code == 200
            os.kill(stopped, signal.SIGSTOP)
            try:
                with pytest.raises(httpx.TransportError):  # it has a clear end, although the process never runs again
                    await asyncio.wait_for(kept.get("/healthz"), TIMEOUT_S)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(stopped, signal.SIGCONT)
        assert await get_on_new_connection(f"{program.own_url(survivor)}/healthz") == 200
        async with asyncio.timeout(TIMEOUT_S):
            while await program.pid_of(victim) == stopped:
                await asyncio.sleep(0.05)
        await program.all_ready()
        await until_reachable(program, owner, pump)
        assert {await get_on_new_connection(f"{program.url}/healthz") for _ in range(50)} == {200}
    assert not is_alive(stopped)
    lines = program.log(100_000)
    assert lines.count("has not answered for") == 1
    assert "Address already in use" not in lines
    assert "a worker failed and will be restarted" not in lines
    assert lines.count("this instance is now the leader") == (1 if role == "leader" else 0)


def leader_of(program: Workers) -> int:
    """The worker that has written last that devices can connect."""
    held = [json.loads(line) for line in program.log(100_000).splitlines() if '"devices can connect"' in line]
    return int(held[-1]["worker"])


@needs_postgres
async def test_a_worker_that_is_stopped_for_a_moment_goes_on(program: Workers) -> None:
    before = program.pids()
    for worker in (1, 2):
        pid = await program.pid_of(worker)
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(0.5)
        os.kill(pid, signal.SIGCONT)
        assert await get_on_new_connection(f"{program.own_url(worker)}/healthz") == 200
    assert program.pids() == before


@needs_postgres
async def test_workers_that_were_stopped_with_their_parent_go_on(program: Workers) -> None:
    """Ctrl-Z, or a virtual machine that was frozen: no worker is to blame for the time that was missing."""
    assert program.process is not None
    stopped = [program.process.pid, *program.pids()]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    await asyncio.sleep(SILENCE_TIMEOUT_S + 1)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    await asyncio.sleep(1)
    await program.all_ready()
    assert "has not answered for" not in program.log(100_000)
