"""Rate limits against a model, through HTTP and real SQLite: in any 60 seconds exactly the limit passes, also under
concurrency."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from security.people import a_key
from security.state_machines import run_machine, running_app
from support.in_process_app import InProcessApp
from support.thoroughness import usual_or_thorough
from support.two_instances import DATABASES

MINUTE_MS = 60_000
NEW = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}
GUARDED = {"name": "FLUSH", "label": "Flush", "requiresApproval": True}
_numbers = count(1)


class Limits(RuleBasedStateMachine):
    """The model: the limit and the times of use of each of the key's grants, oldest first. A call uses the first grant that has
    capacity; a denied call uses none."""

    def __init__(self, runner: asyncio.Runner, program: InProcessApp) -> None:
        super().__init__()
        self.runner, self.program = runner, program
        self.grants: list[tuple[int, list[int]]] = []

    @initialize(limits=st.lists(st.integers(1, 6), min_size=1, max_size=3))
    def begin(self, limits: list[int]) -> None:
        self.runner.run(self._begin(limits))

    async def _begin(self, limits: list[int]) -> None:
        email = f"owner{next(_numbers)}@example.com"
        await self.program.create_account(email)
        self.owner = await self.program.sign_in(email)
        self.devices = []
        for _ in range(2):
            device = f"/devices/{(await self.owner.send_ok('POST', '/devices/register', NEW))['deviceId']}"
            await self.owner.send_ok("POST", f"{device}/credentials", {})
            await self.owner.send_ok("POST", f"{device}/commands", GUARDED)
            self.devices.append(device)
        self.key, key_id = await a_key(self.owner)
        for limit in limits:
            body = {"commands": ["STATUS", "FLUSH"], "apiKeyId": key_id, "rateLimitPerMinute": limit, "appliesVia": "project"}
            await self.owner.send_ok("POST", f"{self.devices[0]}/grants", body)
            self.grants.append((limit, []))

    def left(self) -> int:
        since_ms = self.program.clock.now_ms() - MINUTE_MS
        return sum(limit - sum(at_ms > since_ms for at_ms in uses) for limit, uses in self.grants)

    def take(self) -> None:
        now_ms = self.program.clock.now_ms()
        for limit, uses in self.grants:
            if sum(at_ms > now_ms - MINUTE_MS for at_ms in uses) < limit:
                uses.append(now_ms)
                return
        raise AssertionError("nothing is left")

    def next_free_ms(self) -> int:
        now_ms = self.program.clock.now_ms()
        return min(sorted(uses)[-limit] + MINUTE_MS for limit, uses in self.grants) - now_ms

    async def _burst(self, body: dict[str, Any], times: int, path: str = "command") -> list[httpx.Response]:
        calls = (self.key.send("POST", f"{self.devices[number % 2]}/{path}", body) for number in range(times))
        return list(await asyncio.gather(*calls))

    @rule(times=st.integers(1, 12), cmd=st.sampled_from(["STATUS", "STATUS", "FLUSH"]))
    def send_at_once(self, times: int, cmd: str) -> None:
        allowed = min(times, self.left())
        answers = self.runner.run(self._burst({"cmd": cmd, "ttlSeconds": 1}, times))
        passed = [answer for answer in answers if answer.status_code == (202 if cmd == "FLUSH" else 200)]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert (len(passed), len(refused)) == (allowed, times - allowed), [answer.text for answer in answers]
        for _ in range(allowed):
            self.take()
        for answer in refused:
            assert int(answer.headers["Retry-After"]) == -(-self.next_free_ms() // 1000) == answer.json()["retryAfter"]

    @rule(
        body=st.sampled_from(
            [{"cmd": "ON"}, {"cmd": "NOTHING"}, {"cmd": "STATUS", "params": 1}, {"cmd": "STATUS", "ttlSeconds": 0}]
        )
    )
    def be_refused_for_another_reason(self, body: dict[str, Any]) -> None:
        for answer in self.runner.run(self._burst(body, 3)):
            assert answer.status_code in (400, 403)

    @rule()
    def explain_access_of_a_call(self) -> None:
        for _ in range(3):
            assert self.runner.run(self.key.send("GET", self.devices[0] + "/executions")).status_code == 200

    @rule(ms=st.sampled_from([1, 999, 20_000, 59_999, 60_000]))
    def wait(self, ms: int) -> None:
        self.program.clock.forward(seconds=ms / 1000)
        self.runner.run(self.program.services.dispatch.expire_batch())  # otherwise the device's queue would become full

    @invariant()
    def no_minute_saw_more_than_the_limit(self) -> None:
        for limit, uses in self.grants:
            assert all(sum(at_ms - MINUTE_MS < other <= at_ms for other in uses) <= limit for at_ms in uses)


@pytest.mark.parametrize("database", DATABASES)
def test_a_rate_limit_is_exact_under_concurrency(tmp_path: Path, database: str) -> None:
    with running_app(tmp_path, database) as (runner, program):
        run_machine(lambda: Limits(runner, program), examples=15 if database == "sqlite" else usual_or_thorough(4, 15), steps=15)


async def _of_many(program: InProcessApp, limit: int, times: int) -> list[int]:
    await program.create_account("ada@example.com")
    owner = await program.sign_in("ada@example.com")
    device = f"/devices/{(await owner.send_ok('POST', '/devices/register', NEW))['deviceId']}"
    await owner.send_ok("POST", f"{device}/credentials", {})
    await owner.send_ok("POST", f"{device}/commands", GUARDED)
    key, key_id = await a_key(owner)
    await owner.send_ok("POST", f"{device}/grants", {"commands": ["*"], "apiKeyId": key_id, "rateLimitPerMinute": limit})
    calls = (key.send("POST", f"{device}/command", {"cmd": "FLUSH"}) for _ in range(times))
    return [answer.status_code for answer in await asyncio.gather(*calls)]


def test_exactly_the_limit_of_two_hundred_concurrent_commands_passes(tmp_path: Path) -> None:
    with running_app(tmp_path) as (runner, program):
        statuses = runner.run(_of_many(program, 17, 200))
    assert (statuses.count(202), statuses.count(429)) == (17, 183)


async def _waiting(program: InProcessApp) -> list[int]:
    await program.create_account("ada@example.com")
    owner = await program.sign_in("ada@example.com")
    device = f"/devices/{(await owner.send_ok('POST', '/devices/register', NEW))['deviceId']}"
    await owner.send_ok("POST", f"{device}/credentials", {})
    await owner.send_ok("POST", f"{device}/commands", GUARDED)
    keys = []
    for _ in range(6):
        key, key_id = await a_key(owner)
        await owner.send_ok("POST", f"{device}/grants", {"commands": ["*"], "apiKeyId": key_id})
        keys.append(key)
    key = keys.pop()
    calls = (each.send("POST", f"{device}/command", {"cmd": "FLUSH"}) for each in keys for _ in range(25))
    statuses = [answer.status_code for answer in await asyncio.gather(*calls)]
    [first, *_] = await owner.send_ok("GET", f"{device}/approvals")
    await owner.send_ok("POST", f"{device}/approvals/{first['approvalId']}/deny")
    again = [await key.send("POST", f"{device}/command", {"cmd": "FLUSH"}) for _ in range(2)]
    assert [answer.status_code for answer in again] == [202, 409]
    assert again[1].json()["error"] == "TOO_MANY_QUEUED"
    return statuses


def test_at_most_a_hundred_requests_wait_for_approval(tmp_path: Path) -> None:
    with running_app(tmp_path) as (runner, program):
        statuses = runner.run(_waiting(program))
    assert (statuses.count(202), statuses.count(409)) == (100, 25)
