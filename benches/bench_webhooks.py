"""Throughput of the courier, the delivery worker and the live feed, on loopback, with receivers in another process.

Each function is one measurement. Run as a program (`PYTHONPATH=src:tests python benches/bench_webhooks.py`) it prints the
distributions: the effect of slow receivers on others, and the time from one event to a thousand clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop
from sqlalchemy import text

import loopback_peers
from adapters.delivery.address_guard import AddressGuard
from adapters.delivery.courier import NativeCourier
from adapters.engine.native import create_native_signer
from adapters.storage.sql.database import SqlDatabase
from adapters.storage.sql.tables import deliveries
from app.workers.due import DueWorker
from app.workers.periodic import delete_rows_of_deleted_webhooks
from domain.devices.model import Device
from domain.kernel.clock import Now
from domain.kernel.ids import EventId
from domain.webhooks.delivery import DeletedWebhookCleanup
from domain.webhooks.model import WebhookDelivery, WebhookDeliveryState
from domain.webhooks.ports import OutboundHttpRequest, OutboundHttpResponse
from domain.webhooks.requests import InFlightWebhookDelivery
from support.reference_courier import HttpxCourier
from support.webhook_world import MovableClock, WebhookWorld

ROOT = Path(__file__).parents[1]
_KEPT = ", ".join(column.name for column in deliveries.columns if column.name != "no")
COPIES = text(
    f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :at_count) "
    f"INSERT INTO deliveries ({_KEPT}) SELECT {_KEPT} FROM deliveries, n WHERE no = (SELECT max(no) FROM deliveries)"
)
"""Of the newest delivery."""
ENVIRONMENT = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}"}
POSTS = 2_000
BODY = json.dumps(
    {"id": "whd_" + "x" * 20, "type": "relay_changed", "createdAt": "2026-11-21T04:00:00.000Z", "data": {"filler": "x" * 150}}
).encode()
SECRET = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY="


@contextlib.contextmanager
def receivers() -> Iterator[tuple[str, str]]:
    """URLs of a fast receiver and of one that never answers in time."""
    with loopback_peers.receivers(0, 20) as there:
        yield there.urls[0], there.urls[1]


@pytest.fixture(scope="module")
def fast_url() -> Iterator[str]:
    with receivers() as (fast, _):
        yield fast


def signed_posts(url: str) -> Iterator[OutboundHttpRequest]:
    signer = create_native_signer(SECRET)
    for number in range(POSTS):
        [(service, standard)] = signer.sign_batch([(f"evt_{number}", 1_800_000_000, BODY)])
        headers = (("Content-Type", "application/json"), ("X-Service-Signature", service), ("webhook-signature", standard))
        yield OutboundHttpRequest(url, headers, BODY, 10.0)


async def posting(post: Callable[[OutboundHttpRequest], Awaitable[Any]], url: str, in_flight: int) -> None:
    left = signed_posts(url)

    async def work() -> None:
        for one in left:
            await post(one)

    await asyncio.gather(*(work() for _ in range(in_flight)))


async def with_courier(kind: type[NativeCourier] | type[HttpxCourier], url: str, in_flight: int) -> None:
    courier = kind(clock=MovableClock(), guard=AddressGuard(allow_private=True))
    left = enumerate(signed_posts(url))
    done = asyncio.Event()
    answered = 0

    def on_responses(replies: Sequence[tuple[int, OutboundHttpResponse]]) -> None:
        nonlocal answered
        answered += len(replies)
        courier.send(list(itertools.islice(left, len(replies))))
        if answered == POSTS:
            done.set()

    courier.on_responses(on_responses)
    courier.send(list(itertools.islice(left, in_flight)))
    await asyncio.wait_for(done.wait(), 120)
    await courier.close()
    await asyncio.sleep(0.05)  # uvloop closes sockets in the next round of the event loop


async def with_native(url: str, in_flight: int) -> None:
    await with_courier(NativeCourier, url, in_flight)


async def with_reference(url: str, in_flight: int) -> None:
    await with_courier(HttpxCourier, url, in_flight)


async def with_httpx(url: str, in_flight: int) -> None:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(limits=limits, trust_env=False, follow_redirects=False) as client:

        async def post(what: OutboundHttpRequest) -> None:
            async with asyncio.timeout(what.deadline_s):
                async with client.stream("POST", what.url, content=what.body, headers=list(what.headers)) as response:
                    async for _ in response.aiter_raw(4_096):
                        break

        await posting(post, url, in_flight)


@pytest.mark.parametrize("in_flight", [10, 50])
@pytest.mark.parametrize("client", [with_native, with_reference, with_httpx], ids=["native", "reference", "httpx"])
def bench_2000_signed_posts(benchmark: Any, client: Any, in_flight: int, fast_url: str) -> None:
    benchmark.pedantic(lambda: uvloop.run(client(fast_url, in_flight)), rounds=2, warmup_rounds=0)


@contextlib.asynccontextmanager
async def service() -> AsyncIterator[WebhookWorld]:
    with tempfile.TemporaryDirectory() as folder:
        database = SqlDatabase(f"sqlite+aiosqlite:///{folder}/bench.db", acquire_timeout_s=60)
        await database.start()
        world = WebhookWorld(database.unit_of_work, create_signer=create_native_signer)
        await world.populate()
        yield world
        await database.stop()
        await asyncio.sleep(0.05)


async def isolation(fast: str, dead: str, dead_count: int) -> list[float]:
    """Milliseconds from an event to its delivery at each of 45 fast webhooks, beside some that never answer."""
    async with service() as world:
        device = await world.device()
        fast_hooks = {(await world.webhook(fast, device)).webhook.webhook_id for _ in range(45)}
        for _ in range(dead_count):
            await world.webhook(dead, device)
        took: list[float] = []
        original = world.loop._record_attempt_end

        def note(attempt: InFlightWebhookDelivery, response: OutboundHttpResponse | None, at: Now) -> None:
            if attempt.webhook.webhook_id in fast_hooks:
                took.append(at.wall_ms - attempt.delivery.created_ms)
            original(attempt, response, at)

        world.loop._record_attempt_end = note  # type: ignore[method-assign]
        async with world.delivering():
            for _ in range(100):
                await world.switch(device)
                await asyncio.sleep(0.05)
            while len(took) < 4_500:
                await asyncio.sleep(0.01)
        return took


async def backlog(fast: str, dead: str, rows: int) -> None:
    """A dead receiver with many pending deliveries: their memory, the delay of other webhooks, and their removal."""
    import psutil

    process = psutil.Process()
    async with service() as world:
        device, watched = await world.device(), await world.device()
        for _ in range(20):
            await world.webhook(fast, watched)
        made = await world.webhook(dead, device)
        now_ms = world.clock.now_ms()
        delivery = WebhookDelivery(
            0,
            made.webhook.webhook_id,
            made.webhook.account_id,
            device.device_id,
            EventId("evt_" + "0" * 26),
            "relay_changed",
            BODY,
            WebhookDeliveryState.PENDING,
            0,
            now_ms,
            None,
            now_ms,
        )
        alone = await latencies(world, watched)
        async with world.uow.write() as tx:
            await tx.deliveries.add_many([delivery])
        async with world.uow.write() as tx:
            await tx.session.write(COPIES, at_count=rows - 1)
        gc.collect()
        before = process.memory_info().rss
        beside = await latencies(world, watched)
        grown = (process.memory_info().rss - before) / 2**20
        print(
            f"{rows} owed to a dead receiver: {grown:.0f} MiB more; others alone {quantiles(alone)}, beside it {quantiles(beside)}"
        )
        began = time.perf_counter()
        await world.webhooks.delete(world.session(), made.webhook.webhook_id)
        gone = time.perf_counter() - began
        sweep = DueWorker("webhook_cleanup", partial(delete_rows_of_deleted_webhooks, DeletedWebhookCleanup(uow=world.uow)))
        task = asyncio.create_task(sweep.run())
        during = await latencies(world, watched)
        while await left(world):
            await asyncio.sleep(0.5)
        task.cancel()
        print(
            f"deleted in {gone * 1000:.0f} ms, its rows away in {time.perf_counter() - began:.0f} s, others meanwhile {quantiles(during)}"
        )


async def left(world: WebhookWorld) -> bool:
    async with world.uow.read() as tx:
        return await tx.deliveries.find_orphaned_webhook_id() is not None


async def latencies(world: WebhookWorld, device: Device, events: int = 200) -> list[float]:
    """Milliseconds from an event to each of its deliveries, 20 events per second; other events do not count."""
    took: list[float] = []
    original = world.loop._record_attempt_end

    def note(attempt: InFlightWebhookDelivery, response: OutboundHttpResponse | None, at: Now) -> None:
        if attempt.delivery.device_id == device.device_id:
            took.append(at.wall_ms - attempt.delivery.created_ms)
        original(attempt, response, at)

    world.loop._record_attempt_end = note  # type: ignore[method-assign]
    task = asyncio.create_task(world.loop.run())
    for _ in range(events):
        await world.switch(device)
        await asyncio.sleep(0.05)
    async with asyncio.timeout(60):
        while len(took) < 20 * events:
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])
    world.loop._record_attempt_end = original  # type: ignore[method-assign]
    return took


async def fan_out(
    clients: int, events: int, pause_s: float = 0.0, *, in_python: bool = False
) -> tuple[float, list[float], float, float]:
    """Frames per second while one event after another is sent to all clients; ms from the commit to each client; KiB per client;
    µs per frame."""
    import psutil

    from support.feed_world import feed_world

    async with feed_world() as feed:
        device = await feed.world.device()
        token = feed.callers.accept_token("bench")
        before = psutil.Process().memory_info().rss
        url, arguments = f"{feed.url}?token={token}", (str(clients), str(events))
        place, _, path = url.removeprefix("ws://").partition("/")
        command = [sys.executable, __file__, "listen", url, *arguments]
        if not in_python:
            command = [loopback_peers.program(), "listen", place, f"/{path}", *arguments]
        crowd = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=ENVIRONMENT)
        assert crowd.stdout is not None
        await crowd.stdout.readline()
        each_kib = (psutil.Process().memory_info().rss - before) / clients / 1024
        began, worked = time.perf_counter(), time.process_time()
        for number in range(events):
            async with feed.world.uow.write() as tx:
                tx.emit(feed.world.domain_event("relay_changed", device.device_id, number=number, sent=time.time()))
            await asyncio.sleep(pause_s)
        took = json.loads(await crowd.stdout.readline())
        rate = clients * events / (time.perf_counter() - began)
        each_us = (time.process_time() - worked) * 1e6 / clients / events
        await crowd.wait()
        return rate, took, each_kib, each_us


class FeedConsumer(asyncio.Protocol):
    """A minimal WebSocket client, so that the service is measured and not a client library."""

    def __init__(self, host: str, path: str, crowd: Crowd) -> None:
        self._crowd = crowd
        self._rest = b""
        self._inside = False
        self._handshake = (
            f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        ).encode()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self._handshake)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        if not self._inside:
            _, found, data = data.partition(b"\r\n\r\n")
            self._inside = bool(found)
        at = 0
        while len(data) - at >= 4:
            size, head = data[at + 1], 2
            if size == 126:
                size, head = int.from_bytes(data[at + 2 : at + 4], "big"), 4
            if len(data) - at < head + size:
                break
            if data[at] == 0x81:
                self._crowd.hear(data[at + head : at + head + size])
            at += head + size
        self._rest = data[at:]


class Crowd:
    def __init__(self) -> None:
        self.states = 0
        self.took: list[float] = []

    def hear(self, text: bytes) -> None:
        sent = text.find(b'"sent":')
        if sent < 0:
            self.states += 1
        else:
            self.took.append((time.time() - float(text[sent + 7 : text.index(b",", sent)])) * 1000)


async def listen(url: str, clients: int, events: int) -> None:
    """Many WebSocket clients; prints a line when all are connected, and another when each has received everything."""
    host, _, path = url.removeprefix("ws://").partition("/")
    crowd, loop = Crowd(), asyncio.get_running_loop()
    address, _, port = host.partition(":")
    for number in range(clients):
        await loop.create_connection(lambda: FeedConsumer(host, f"/{path}", crowd), address, int(port))
        if number % 50 == 49:
            await asyncio.sleep(0.1)
    async with asyncio.timeout(600):
        while crowd.states < clients:
            await asyncio.sleep(0.02)
        print("inside", flush=True)
        while len(crowd.took) < clients * events:
            await asyncio.sleep(0.005)
    print(json.dumps(statistics.quantiles(crowd.took, n=100)), flush=True)


def quantiles(values: list[float]) -> str:
    cuts = statistics.quantiles(values, n=100)
    return f"p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms"


def main() -> None:
    if sys.argv[1:2] == ["listen"]:
        uvloop.run(listen(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
        return
    wanted = sys.argv[1:] or ["feed", "isolation", "backlog"]
    if "feed" in wanted:
        for pause_s, in_python in ((0.0, False), (0.0, True), (0.1, False)):
            rate, cuts, each_kib, each_us = uvloop.run(fan_out(1_000, 100 if pause_s else 300, pause_s, in_python=in_python))
            whose = "clients in Python" if in_python else "clients in Rust"
            print(f"feed, {whose}, an event every {pause_s} s: {rate:.0f} frames/s, {each_us:.1f} µs a frame,", end=" ")
            print(f"p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms, {each_kib:.0f} KiB a client", flush=True)
    with receivers() as (fast, dead):
        if "isolation" in wanted:
            for beside in (0, 5, 0, 5):
                print(f"45 fast webhooks beside {beside} dead:", quantiles(uvloop.run(isolation(fast, dead, beside))), flush=True)
        if "backlog" in wanted:
            uvloop.run(backlog(fast, dead, int(os.environ.get("LATCHBOARD_BENCH_OWED", "1000000"))))


if __name__ == "__main__":
    main()
