"""Random events, faults, rotations, grants that come and go, and kill -9: nothing owed is lost, nothing else is sent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sqlite3
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.receiver import Behaviour, Receiver, answers, receiving, resets, says_and_closes

SPEED = 40
ROUNDS = 60
SEED = 20261121
SETTLE_S = 1.0
"""Real seconds after a rotation during which something signed before may still be read off a socket."""


class Service:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._epoch_ms = time.time_ns() // 1_000_000
        self._process: asyncio.subprocess.Process | None = None
        self.kills = 0

    async def start(self) -> None:
        root = Path(__file__).parents[2]
        environment = os.environ | {"PYTHONPATH": f"{root / 'src'}{os.pathsep}{root / 'tests'}"}
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "support.webhook_process", self._path, str(self._epoch_ms), str(SPEED),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environment,
        )  # fmt: skip
        assert (await self._line())["ready"]

    async def do(self, what: str, **arguments: Any) -> Any:
        await self.begin(what, **arguments)
        return (await self._line())["answer"]

    async def begin(self, what: str, **arguments: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **arguments}).encode() + b"\n")
        await self._process.stdin.drain()

    async def kill(self) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        self.kills += 1

    async def _line(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), 60)
        assert line, "the service has ended"
        return json.loads(line)  # type: ignore[no-any-return]


@dataclass
class Hook:
    webhook_id: str
    key_id: str
    receiver: Receiver
    secrets: list[tuple[float, str]]
    grants: dict[str, str] = field(default_factory=dict)
    owed: set[int] = field(default_factory=set)
    maybe: set[int] = field(default_factory=set)
    ever_revoked: bool = False
    accepted: set[str] = field(default_factory=set)


def moody(hook_of: dict[int, Hook], chance: random.Random) -> Behaviour:
    """Fails in one way or another two times out of five, and remembers which events it has accepted."""
    good = answers()
    bad = [answers(500), answers(429, "Retry-After: 7\r\n"), resets(), says_and_closes(b""), answers(302, "Location: /\r\n")]

    async def behave(receiver: Receiver, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        event_id = receiver.got[-1].headers["webhook-id"]
        await asyncio.sleep(chance.random() * 0.01)
        if chance.random() < 0.4:
            return await chance.choice(bad)(receiver, reader, writer)
        hook_of[id(receiver)].accepted.add(event_id)
        return await good(receiver, reader, writer)

    return behave


@contextlib.asynccontextmanager
async def scene(path: Path, chance: random.Random) -> AsyncIterator[tuple[Service, list[str], list[Hook]]]:
    service = Service(path)
    await service.start()
    await service.do("populate")
    devices = [await service.do("device") for _ in range(3)]
    hooks: list[Hook] = []
    by_receiver: dict[int, Hook] = {}
    async with contextlib.AsyncExitStack() as stack:
        for index in range(3):
            behave = answers(503) if index == 2 else moody(by_receiver, chance)
            receiver = await stack.enter_async_context(receiving(behave))
            made = await service.do("webhook", url=receiver.url)
            hook = Hook(made["id"], made["key"], receiver, [(0.0, made["secret"])])
            by_receiver[id(receiver)] = hook
            hooks.append(hook)
            for device in devices[: index + 1]:
                hook.grants[device] = await service.do("grant", key=hook.key_id, device=device)
        try:
            yield service, devices, hooks
        finally:
            await service.kill()


async def test_nothing_owed_is_lost_and_nothing_else_is_sent(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    path = tmp_path / "latchboard.db"
    numbers = iter(range(1_000_000))
    async with scene(path, chance) as (service, devices, hooks):
        for _ in range(ROUNDS):
            await one_step(chance, service, devices, hooks, numbers)
        async with asyncio.timeout(90):
            while count(path, "PENDING"):
                await asyncio.sleep(0.2)
        assert service.kills >= 3
    check(path, hooks)


async def one_step(chance: random.Random, service: Service, devices: list[str], hooks: list[Hook], numbers: Any) -> None:
    hook, device = chance.choice(hooks), chance.choice(devices)
    step = chance.choices(["switch", "killed", "grant", "rotate", "wait"], [60, 8, 12, 8, 12])[0]
    if step == "grant" and device in hook.grants:
        hook.ever_revoked = True
        await service.do("revoke", grant=hook.grants.pop(device))
    elif step == "grant":
        hook.grants[device] = await service.do("grant", key=hook.key_id, device=device)
    elif step == "rotate":
        secret = await service.do("rotate", webhook=hook.webhook_id)
        hook.secrets.append((asyncio.get_running_loop().time(), secret))
    elif step == "wait":
        await asyncio.sleep(chance.random() * 0.2)
    else:
        batch = [next(numbers) for _ in range(chance.randrange(1, 8))]
        seers = [seer for seer in hooks if device in seer.grants]
        if step == "switch":
            await service.do("switch", device=device, numbers=batch)
        else:
            await service.begin("switch", device=device, numbers=batch)
            await asyncio.sleep(chance.random() * 0.05)
            await service.kill()
            await service.start()
        for seer in seers:
            (seer.owed if step == "switch" else seer.maybe).update(batch)


def check(path: Path, hooks: list[Hook]) -> None:
    database = sqlite3.connect(path)
    for hook in hooks:
        rows = database.execute(
            "SELECT no, state, attempts, event_id, data FROM deliveries WHERE webhook_id = ?", [hook.webhook_id]
        ).fetchall()
        written = [json.loads(data)["number"] for _, _, _, _, data in rows]
        assert len(written) == len(set(written))
        assert hook.owed <= set(written) <= hook.owed | hook.maybe
        for no, state, attempts, event_id, _ in rows:
            if state == "DELIVERED":
                assert event_id in hook.accepted
            elif state == "GIVEN_UP":
                [(ended,)] = database.execute(
                    "SELECT count(*) FROM attempts WHERE delivery_no = ? AND finished_ms IS NOT NULL", [no]
                )
                assert attempts == 6 <= ended
            else:
                assert state == "CANCELLED"
                assert hook.ever_revoked
        check_received(hook, set(written))
    database.close()


def check_received(hook: Hook, written: set[int]) -> None:
    assert len({got.headers["x-service-delivery"] for got in hook.receiver.got}) == len(hook.receiver.got)
    for got in hook.receiver.got:
        assert got.envelope["data"]["number"] in written
        valid = [secret for since, secret in hook.secrets if got.signed_with(secret)]
        assert len(valid) == 1
        retired = [since for since, secret in hook.secrets if since + SETTLE_S < got.at]
        assert valid[0] in [secret for _, secret in hook.secrets[max(0, len(retired) - 1) :]]


def count(path: Path, state: str) -> int:
    with contextlib.closing(sqlite3.connect(path)) as database:
        [(found,)] = database.execute("SELECT count(*) FROM deliveries WHERE state = ?", [state])
    return int(found)
