"""A service with webhooks in a process of its own, to be killed.

Commands come as JSON lines on stdin; each is answered once it is durable.

    python -m support.webhook_process DATABASE_URL EPOCH_MS SPEED

The clock runs `SPEED` times as fast as the real one since `EPOCH_MS`, over all restarts.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import structlog

from adapters.storage.sql.database import SqlDatabase
from domain.kernel.ids import DeviceId, GrantId, KeyId, WebhookId
from support.waiting import TIMEOUT_S
from support.webhook_world import ACCOUNT, WebhookWorld


class FastClock:
    def __init__(self, epoch_ms: int, speed: int) -> None:
        self._epoch_ms = epoch_ms
        self._speed = speed

    def now_ms(self) -> int:
        return self._epoch_ms + (time.time_ns() // 1_000_000 - self._epoch_ms) * self._speed

    def monotonic_ms(self) -> int:
        return self.now_ms()

    def steady_ms(self) -> int:
        return self.now_ms()


class StdinCommands:
    def __init__(self, world: WebhookWorld) -> None:
        self.world = world

    async def populate(self) -> None:
        await self.world.populate()

    async def device(self) -> str:
        return (await self.world.device()).device_id

    async def webhook(self, url: str) -> dict[str, str]:
        made = await self.world.webhook(url)
        return {"id": made.webhook.webhook_id, "key": made.webhook.key_id, "secret": made.secret}

    async def grant(self, key: str, device: str) -> str:
        async with self.world.uow.read() as tx:
            found = await tx.devices.get(ACCOUNT, DeviceId(device))
        return (await self.world.grant(KeyId(key), found)).grant_id

    async def revoke(self, grant: str) -> None:
        async with self.world.uow.read() as tx:
            found = await tx.grants.get_for_update(ACCOUNT, GrantId(grant))
        await self.world.revoke(found)

    async def rotate(self, webhook: str) -> str:
        return (await self.world.webhooks.rotate_secret(self.world.session(), WebhookId(webhook))).secret

    async def pause(self, webhook: str) -> None:
        """Disable and enable the webhook: its pending deliveries are discarded."""
        for enabled in (False, True):
            await self.world.webhooks.update(self.world.session(), webhook, enabled=enabled)

    async def switch(self, device: str, numbers: list[int]) -> None:
        async with self.world.uow.write() as tx:
            for number in numbers:
                tx.emit(self.world.domain_event("relay_changed", DeviceId(device), number=number))


async def hurry(world: WebhookWorld) -> None:
    """The worker sleeps in real seconds; with a fast clock it must be woken."""
    while True:
        await asyncio.sleep(0.05)
        world.wake_event.set()


def log_to_stderr() -> None:
    """Standard output is for answers."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))


async def main(url: str, epoch_ms: int, speed: int) -> None:
    database = SqlDatabase(url, acquire_timeout_s=20)
    await database.start()
    world = WebhookWorld(database.unit_of_work, clock=FastClock(epoch_ms, speed), exclusive=url.startswith("sqlite"))
    commands = StdinCommands(world)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    delivering = asyncio.create_task(world.loop.run())
    hurrying = asyncio.create_task(hurry(world))
    print(json.dumps({"ready": True}), flush=True)
    while line := await reader.readline():
        command: dict[str, Any] = json.loads(line)
        answer = await getattr(commands, command.pop("do"))(**command)
        print(json.dumps({"answer": answer}), flush=True)
    hurrying.cancel()
    delivering.cancel()
    await asyncio.wait([delivering], timeout=TIMEOUT_S)
    await world.courier.close()
    await database.stop()


if __name__ == "__main__":
    log_to_stderr()
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
