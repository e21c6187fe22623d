"""Random events, faults, rotations, grants that come and go, and kill -9: nothing owed is lost, nothing else is sent.

On SQLite with one process, on PostgreSQL with two that share the work by leases; either may be killed at any moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sqlite3
import sys
import time
from bisect import bisect
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.device import cancel_tasks
from support.empty_database import empty_postgres, empty_sqlite
from support.storage import STORAGES
from support.waiting import TIMEOUT_S
from support.webhook_receiver import Behaviour, ReceivedRequest, Receiver, reset, respond, send_and_close, webhook_receiver

SPEED = 40
ROUNDS, KILLS = 60, 3
SEED = 20261121
QUIET_S = {1: 1.0, 2: 3.0}
"""By instances, the seconds of `Beats` after a change during which something sent before may still be read off a socket. Two of them do
not tell each other of changes here (the program's do: test_webhooks_instances), so a turn that one has begun, it also ends."""
FOR_EVER = float("inf")


class Beats:
    """A time that hardly passes while this process stands still or gets no processor: then it reads late what came in time."""

    EVERY_S = 0.02

    def __init__(self) -> None:
        self._at: list[float] = []

    async def run(self) -> None:
        while True:
            self._at.append(now())
            await asyncio.sleep(self.EVERY_S)

    def between(self, began: float, ended: float) -> float:
        return (bisect(self._at, ended) - bisect(self._at, began)) * self.EVERY_S


class Service:
    """One process or several over one database; what one is told, it is told at random."""

    def __init__(self, kind: str, url: str, path: Path, chance: random.Random) -> None:
        self._kind = kind
        self._url = url
        self._path = path
        self._chance = chance
        self._epoch_ms = time.time_ns() // 1_000_000
        self._processes: list[asyncio.subprocess.Process] = []
        self.kills = 0

    async def start(self) -> None:
        root = Path(__file__).parents[2]
        environment = os.environ | {"PYTHONPATH": f"{root / 'src'}{os.pathsep}{root / 'tests'}"}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "support.webhook_process",
            self._url,
            str(self._epoch_ms),
            str(SPEED),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
        )
        assert (await self._line(process))["ready"]
        self._processes.append(process)

    async def do(self, what: str, **arguments: Any) -> Any:
        return (await self._line(await self.begin(what, **arguments)))["answer"]

    async def begin(self, what: str, **arguments: Any) -> asyncio.subprocess.Process:
        process = self._chance.choice(self._processes)
        assert process.stdin is not None
        process.stdin.write(json.dumps({"do": what, **arguments}).encode() + b"\n")
        await process.stdin.drain()
        return process

    async def kill(self, process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        self._processes.remove(process)
        self.kills += 1

    async def stop(self) -> None:
        for process in list(self._processes):
            await self.kill(process)

    async def query(self, sql: str) -> Sequence[Sequence[Any]]:
        if self._kind == "sqlite":
            with contextlib.closing(sqlite3.connect(self._path)) as database:
                return database.execute(sql).fetchall()
        import asyncpg

        connection = await asyncpg.connect(self._url.replace("+asyncpg", ""))
        try:
            return [tuple(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()

    async def _line(self, process: asyncio.subprocess.Process) -> dict[str, Any]:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), TIMEOUT_S)
        assert line, "the service has ended"
        return json.loads(line)  # type: ignore[no-any-return]


@dataclass
class WebhookState:
    webhook_id: str
    key_id: str
    receiver: Receiver
    secrets: list[tuple[float, str]]
    beats: Beats
    grants: dict[str, str] = field(default_factory=dict)
    seen: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """By device, the stretches of time in which the key saw it."""
    pending: set[int] = field(default_factory=set)
    maybe: set[int] = field(default_factory=set)
    quiet_s: float = QUIET_S[1]
    ever_dropped: bool = False
    accepted: set[str] = field(default_factory=set)

    def saw(self, device: str, at: float) -> bool:
        """Whether it saw the device then or a moment before."""
        return any(began <= at and self.beats.between(ended, at) <= self.quiet_s for began, ended in self.seen.get(device, []))


def moody(webhook_of: dict[int, WebhookState], chance: random.Random) -> Behaviour:
    """Fails in one way or another two times out of five, and remembers which events it has accepted."""
    good = respond()
    bad = [
        respond(500),
        respond(429, "Retry-After: 7\r\n"),
        reset(),
        send_and_close(b""),
        respond(302, "Location: /\r\n"),
        send_and_close(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"),
    ]

    async def behave(receiver: Receiver, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        event_id = receiver.requests[-1].headers["webhook-id"]
        await asyncio.sleep(chance.random() * 0.01)
        if chance.random() < 0.4:
            return await chance.choice(bad)(receiver, reader, writer)
        webhook_of[id(receiver)].accepted.add(event_id)
        return await good(receiver, reader, writer)

    return behave


@contextlib.asynccontextmanager
async def scene(service: Service, instances: int, chance: random.Random) -> AsyncIterator[tuple[list[str], list[WebhookState]]]:
    for _ in range(instances):
        await service.start()
    await service.do("populate")
    devices = [await service.do("device") for _ in range(3)]
    webhooks: list[WebhookState] = []
    by_receiver: dict[int, WebhookState] = {}
    beats = Beats()
    beating = asyncio.create_task(beats.run())
    async with contextlib.AsyncExitStack() as stack:
        for index in range(3):
            behave = respond(503) if index == 2 else moody(by_receiver, chance)
            receiver = await stack.enter_async_context(webhook_receiver(behave))
            made = await service.do("webhook", url=receiver.url)
            hook_row = WebhookState(made["id"], made["key"], receiver, [(0.0, made["secret"])], beats, quiet_s=QUIET_S[instances])
            by_receiver[id(receiver)] = hook_row
            webhooks.append(hook_row)
            for device in devices[: index + 1]:
                await give(service, hook_row, device)
        try:
            yield devices, webhooks
        finally:
            await service.stop()
            await cancel_tasks(beating)


@pytest.mark.parametrize("kind", [kind for kind in STORAGES if kind != "memory"])
async def test_no_pending_delivery_is_lost_and_nothing_else_is_sent(kind: str, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    path = tmp_path / "latchboard.db"
    service = Service(kind, empty_sqlite(path) if kind == "sqlite" else await empty_postgres(), path, chance)
    numbers = iter(range(1_000_000))
    async with scene(service, 1 if kind == "sqlite" else 2, chance) as (devices, webhooks):
        rounds = 0
        while rounds < ROUNDS or service.kills < KILLS:
            await one_step(chance, service, devices, webhooks, numbers)
            rounds += 1
        async with asyncio.timeout(4 * TIMEOUT_S):
            while (await service.query("SELECT count(*) FROM deliveries WHERE state = 'PENDING'"))[0][0]:
                await asyncio.sleep(0.2)
    await check(service, webhooks)


async def one_step(
    chance: random.Random, service: Service, devices: list[str], webhooks: list[WebhookState], numbers: Any
) -> None:
    hook_row, device = chance.choice(webhooks), chance.choice(devices)
    step = chance.choices(["switch", "killed", "grant", "rotate", "pause", "wait"], [60, 8, 12, 8, 3, 9])[0]
    if step == "grant" and device in hook_row.grants:
        hook_row.ever_dropped = True
        await service.do("revoke", grant=hook_row.grants.pop(device))
        began, _ = hook_row.seen[device].pop()
        hook_row.seen[device].append((began, now()))
    elif step == "grant":
        await give(service, hook_row, device)
    elif step == "rotate":
        secret = await service.do("rotate", webhook=hook_row.webhook_id)
        hook_row.secrets.append((now(), secret))
    elif step == "pause":
        hook_row.ever_dropped = True
        await service.do("pause", webhook=hook_row.webhook_id)
    elif step == "wait":
        await asyncio.sleep(chance.random() * 0.2)
    else:
        batch = [next(numbers) for _ in range(chance.randrange(1, 8))]
        seers = [seer for seer in webhooks if device in seer.grants]
        if step == "switch":
            await service.do("switch", device=device, numbers=batch)
        else:
            process = await service.begin("switch", device=device, numbers=batch)
            await asyncio.sleep(chance.random() * 0.05)
            await service.kill(process)
            await service.start()
        for seer in seers:
            (seer.pending if step == "switch" else seer.maybe).update(batch)


async def give(service: Service, hook_row: WebhookState, device: str) -> None:
    began = now()
    hook_row.grants[device] = await service.do("grant", key=hook_row.key_id, device=device)
    hook_row.seen.setdefault(device, []).append((began, FOR_EVER))


def now() -> float:
    return asyncio.get_running_loop().time()


async def check(service: Service, webhooks: list[WebhookState]) -> None:
    logged = {row[0] for row in await service.query("SELECT delivery_id FROM attempts")}
    ended = dict(
        await service.query("SELECT delivery_no, count(*) FROM attempts WHERE finished_ms IS NOT NULL GROUP BY delivery_no")
    )
    rows = await service.query("SELECT webhook_id, no, state, attempts, event_id, data FROM deliveries")
    for hook_row in webhooks:
        mine = [row[1:] for row in rows if row[0] == hook_row.webhook_id]
        written = [json.loads(data)["number"] for _, _, _, _, data in mine]
        assert len(written) == len(set(written))
        assert hook_row.pending <= set(written) <= hook_row.pending | hook_row.maybe
        for no, state, attempts, event_id, _ in mine:
            if state == "DELIVERED":
                assert event_id in hook_row.accepted
            elif state == "GIVEN_UP":
                assert attempts == 6 <= ended[no]
            else:
                assert state == "CANCELLED"
                assert hook_row.ever_dropped
        for got in hook_row.receiver.requests:
            check_received(hook_row, got, set(written), logged)


def check_received(hook_row: WebhookState, got: ReceivedRequest, written: set[int], logged: set[str]) -> None:
    """In the log before it was sent, of an event in scope, with a grant, and signed with a secret of that time."""
    assert got.headers["x-service-delivery"] == got.envelope["id"]
    assert got.envelope["id"] in logged
    assert got.envelope["data"]["number"] in written
    assert hook_row.saw(got.envelope["data"]["deviceId"], got.at)
    valid = [secret for _, secret in hook_row.secrets if got.signed_with(secret)]
    assert len(valid) == 1
    retired = [since for since, secret in hook_row.secrets if hook_row.beats.between(since, got.at) > hook_row.quiet_s]
    assert valid[0] in [secret for _, secret in hook_row.secrets[max(0, len(retired) - 1) :]]
