"""A fleet that comes at once costs the database as many statements as one device: what others report is not kept waiting for
it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from domain.devices.link import InboundDeviceConnected, InboundDeviceDisconnected, InboundDeviceSubscribed, InboundMessage
from domain.kernel.ids import DeviceId
from support.empty_database import empty_postgres
from support.in_process_app import InProcessApp, in_process_app
from support.two_instances import DATABASES, NEW_DEVICE

FEW, MANY = 2, 60


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Statements(Counter[str]):
    """What is asked of the session of one transaction, by kind; what is put off goes with the next one and costs no journey."""

    def watch(self, tx: Any) -> None:
        for kind in ("read", "read_batch", "write", "execute_many", "bulk_write"):
            setattr(tx.session, kind, self._counting(kind, getattr(tx.session, kind)))

    def _counting(self, kind: str, requested: Any) -> Any:
        async def counted(*args: Any, **params: Any) -> Any:
            self[kind] += 1
            return await requested(*args, **params)

        return counted


async def numbers_of(program: InProcessApp, count: int) -> list[tuple[DeviceId, int]]:
    owner = await program.sign_in("owner@example.com")
    made = [DeviceId((await owner.send_ok("POST", "/devices/register", NEW_DEVICE))["deviceId"]) for _ in range(count)]
    for device_id in made:
        await owner.send_ok("POST", f"/devices/{device_id}/credentials", {})
    async with program.services.uow.read() as tx:
        return [(device.device_id, device.device_no) for device in await tx.devices.list_by_ids(made)]


def come(device_id: DeviceId, number: int, at_ms: int) -> list[Any]:
    """What a device says of itself when it comes."""
    hello = b'{"fw": "1.2.0", "sched": 3}'
    return [
        InboundDeviceConnected(number, device_id, "mqtt/5", "192.0.2.1", at_ms),
        InboundDeviceSubscribed(number, device_id, "cmd", at_ms),
        InboundMessage(number, device_id, "status", b"online", 1, True, at_ms),
        InboundMessage(number, device_id, "hello", hello, 1, False, at_ms),
    ]


async def test_the_coming_of_many_is_as_many_statements_as_that_of_one(tmp_path: Path, database: str) -> None:
    settings = {"database_url": await empty_postgres()} if database == "postgres" else {}
    async with in_process_app(tmp_path, **settings) as program:
        await program.create_account("owner@example.com")
        costs = []
        for count in (FEW, MANY):
            fleet = await numbers_of(program, count)
            events = [event for one in fleet for event in come(*one, program.clock.now_ms())]
            costs.append(await apply(program, events))
            assert await online(program) >= {device_id for device_id, _ in fleet}
        assert costs[0] == costs[1]
        reported = (await (await program.sign_in("owner@example.com")).send_ok("GET", "/events?type=device_online&limit=200"))[
            "data"
        ]
        assert len(reported) == FEW + MANY
        gone = [InboundDeviceDisconnected(number, device_id, "revoked", program.clock.now_ms()) for device_id, number in fleet]
        assert sum((await apply(program, gone)).values()) <= sum(costs[0].values())
        assert len(await online(program)) == FEW


async def apply(program: InProcessApp, events: list[Any]) -> Statements:
    statements = Statements()
    done = await program.services.device_messages.decode(events)
    async with program.services.uow.write() as tx:
        statements.watch(tx)
        await program.services.device_messages.apply(tx, done.messages)
    return statements


async def online(program: InProcessApp) -> set[DeviceId]:
    async with program.services.uow.read() as tx:
        return {device.device_id for device in await tx.devices.list_online()}
