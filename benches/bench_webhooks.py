"""What the courier, the delivery loop and the live feed carry, on loopback, with receivers in a process of their own.

Each function is one claim. Run as a program (`PYTHONPATH=src:tests python benches/bench_webhooks.py`) it prints those that are no
single time: how slow receivers change the others, and how long one event takes to a thousand clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop

from adapters.delivery.courier import HttpCourier
from adapters.delivery.guard import AddressGuard
from adapters.engine.native import NativeSigners
from adapters.storage.sql.database import SqlDatabase
from domain.webhooks.ports import Post
from support.webhook_world import MovableClock, WebhookWorld

ROOT = Path(__file__).parents[1]
ENVIRONMENT = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}"}
POSTS = 2_000
BODY = json.dumps(
    {"id": "whd_" + "x" * 20, "type": "relay_changed", "createdAt": "2026-11-21T04:00:00.000Z", "data": {"filler": "x" * 150}}
).encode()
SECRET = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY="


class Answer(asyncio.Protocol):
    """As little of an HTTP server as will do; `pause_s` before each answer."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._data = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while True:
            head, found, rest = self._data.partition(b"\r\n\r\n")
            at = head.lower().find(b"content-length:")
            if not found or at < 0:
                return
            length = int(head[at + 15 :].split(b"\r\n", 1)[0])
            if len(rest) < length:
                return
            self._data = rest[length:]
            asyncio.get_running_loop().call_later(self._pause_s, self._answer)

    def _answer(self) -> None:
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


async def receive() -> None:
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(lambda pause_s=pause_s: Answer(pause_s), "127.0.0.1", 0) for pause_s in (0, 20)]
    print(json.dumps([server.sockets[0].getsockname()[1] for server in servers]), flush=True)
    await asyncio.sleep(3_600)


@contextlib.contextmanager
def receivers() -> Iterator[tuple[str, str]]:
    """URLs of a fast receiver and of one that never answers in time."""
    process = subprocess.Popen([sys.executable, __file__, "receive"], stdout=subprocess.PIPE, env=ENVIRONMENT)
    assert process.stdout is not None
    fast, dead = json.loads(process.stdout.readline())
    try:
        yield f"http://127.0.0.1:{fast}/hook", f"http://127.0.0.1:{dead}/hook"
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def fast_url() -> Iterator[str]:
    with receivers() as (fast, _):
        yield fast


async def posting(post: Callable[[Post], Awaitable[Any]], url: str, in_flight: int) -> None:
    signer = NativeSigners().signer(SECRET)
    left = iter(range(POSTS))

    async def work() -> None:
        for number in left:
            [(service, standard)] = signer.sign_batch([(f"evt_{number}", 1_800_000_000, BODY)])
            headers = (("Content-Type", "application/json"), ("X-Service-Signature", service), ("webhook-signature", standard))
            await post(Post(url, headers, BODY, 10.0))

    await asyncio.gather(*(work() for _ in range(in_flight)))


async def with_aiohttp(url: str, in_flight: int) -> None:
    courier = HttpCourier(clock=MovableClock(), guard=AddressGuard(allow_private=True))
    await posting(courier.post, url, in_flight)
    await courier.close()
    await asyncio.sleep(0.05)  # uvloop closes sockets a turn later


async def with_httpx(url: str, in_flight: int) -> None:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(limits=limits, trust_env=False, follow_redirects=False) as client:

        async def post(what: Post) -> None:
            async with asyncio.timeout(what.deadline_s):
                async with client.stream("POST", what.url, content=what.body, headers=list(what.headers)) as response:
                    async for _ in response.aiter_raw(4_096):
                        break

        await posting(post, url, in_flight)


@pytest.mark.parametrize("in_flight", [10, 50])
@pytest.mark.parametrize("client", [with_aiohttp, with_httpx], ids=["aiohttp", "httpx"])
def bench_2000_signed_posts(benchmark: Any, client: Any, in_flight: int, fast_url: str) -> None:
    benchmark.pedantic(lambda: uvloop.run(client(fast_url, in_flight)), rounds=2, warmup_rounds=0)


@contextlib.asynccontextmanager
async def service() -> AsyncIterator[WebhookWorld]:
    with tempfile.TemporaryDirectory() as folder:
        database = SqlDatabase(f"sqlite+aiosqlite:///{folder}/bench.db", patience_s=60)
        await database.start()
        world = WebhookWorld(database.unit_of_work)
        world.deliveries._signers = NativeSigners()
        await world.populate()
        yield world
        await database.stop()
        await asyncio.sleep(0.05)


async def deliveries_per_second(url: str, webhooks: int, events: int) -> float:
    """From the first claim to the last attempt in the log; the events are there already."""
    async with service() as world:
        device = await world.device()
        for _ in range(webhooks):
            await world.webhook(url, device)
        async with world.uow.write() as tx:
            for number in range(events):
                await tx.record(world.fact("relay_changed", device.device_id, number=number))
        began = time.perf_counter()
        async with world.delivering():
            while world.loop.succeeded < webhooks * events or world.loop._ended:
                await asyncio.sleep(0.005)
            return webhooks * events / (time.perf_counter() - began)


def bench_3000_deliveries_with_their_log_in_sqlite(benchmark: Any, fast_url: str) -> None:
    benchmark.pedantic(lambda: uvloop.run(deliveries_per_second(fast_url, 30, 100)), rounds=2, warmup_rounds=0)


async def isolation(fast: str, dead: str, dead_count: int) -> list[float]:
    """Milliseconds from an event to its delivery at each of 45 fast webhooks, beside some that never answer."""
    async with service() as world:
        device = await world.device()
        fast_hooks = {(await world.webhook(fast, device)).webhook.webhook_id for _ in range(45)}
        for _ in range(dead_count):
            await world.webhook(dead, device)
        took: list[float] = []
        original = world.loop._answered

        def answered(task: Any) -> None:
            job, _ = world.loop._tasks[task]
            if job.webhook.webhook_id in fast_hooks:
                took.append(world.clock.now_ms() - job.delivery.created_ms)
            original(task)

        world.loop._answered = answered  # type: ignore[method-assign]
        async with world.delivering():
            for _ in range(100):
                await world.switch(device)
                await asyncio.sleep(0.05)
            while len(took) < 4_500:
                await asyncio.sleep(0.01)
        return took


async def fan_out(clients: int, events: int) -> tuple[float, list[float], float]:
    """Frames/s while one event after another goes to all clients; ms from the commit to each client; KiB a client."""
    import psutil

    from support.feed_world import feeding

    async with feeding() as feed:
        device = await feed.world.device()
        token = feed.callers.let_in("bench")
        before = psutil.Process().memory_info().rss
        crowd = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "listen", f"{feed.url}?token={token}", str(clients), str(events),
            stdout=asyncio.subprocess.PIPE, env=ENVIRONMENT,
        )  # fmt: skip
        assert crowd.stdout is not None
        await crowd.stdout.readline()
        each_kib = (psutil.Process().memory_info().rss - before) / clients / 1024
        began = time.perf_counter()
        for number in range(events):
            async with feed.world.uow.write() as tx:
                await tx.record(feed.world.fact("relay_changed", device.device_id, number=number, sent=time.time()))
            await asyncio.sleep(0)
        took = json.loads(await crowd.stdout.readline())
        rate = clients * events / (time.perf_counter() - began)
        await crowd.wait()
        return rate, took, each_kib


async def listen(url: str, clients: int, events: int) -> None:
    """A crowd of WebSocket clients; prints once all are in, and again when each has heard everything."""
    from websockets.asyncio.client import connect

    took: list[float] = []
    heard = asyncio.Event()
    inside = 0

    async def one() -> None:
        nonlocal inside
        async with connect(url, compression=None, open_timeout=60) as connection:
            await connection.recv()
            inside += 1
            for _ in range(events):
                took.append((time.time() - json.loads(await connection.recv())["sent"]) * 1000)
            if len(took) == clients * events:
                heard.set()

    async with asyncio.TaskGroup() as group:
        for number in range(clients):
            group.create_task(one())
            if number % 50 == 49:
                await asyncio.sleep(0.1)
        while inside < clients:
            await asyncio.sleep(0.05)
        print("inside", flush=True)
        await heard.wait()
        print(json.dumps(statistics.quantiles(took, n=100)), flush=True)


def quantiles(values: list[float]) -> str:
    cuts = statistics.quantiles(values, n=100)
    return f"p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms"


def main() -> None:
    if sys.argv[1:] == ["receive"]:
        uvloop.run(receive())
        return
    if sys.argv[1:2] == ["listen"]:
        uvloop.run(listen(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
        return
    rate, cuts, each_kib = uvloop.run(fan_out(1_000, 50))
    print(f"feed: {rate:.0f} frames/s, p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms, {each_kib:.0f} KiB a client")
    with receivers() as (fast, dead):
        print("deliveries/s:", round(uvloop.run(deliveries_per_second(fast, 50, 200))))
        print("alone:", quantiles(uvloop.run(isolation(fast, dead, 0))))
        print("beside 5 of 50 dead:", quantiles(uvloop.run(isolation(fast, dead, 5))))


if __name__ == "__main__":
    main()
