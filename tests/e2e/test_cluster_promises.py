"""What a cluster promises to devices and people while its instances are killed: presence is told once, a command runs once, and a
revoked device is refused everywhere."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiomqtt
import asyncpg
import pytest

from faults.setups import Setup, installation
from faults.workload import Commander, Switch
from support import postgres
from support.cluster import at, online_at, service_pair, several_devices
from support.device import cancel_tasks, create_device
from support.nats import nats_nodes
from support.service import ApiClient, Service
from support.thoroughness import usual_or_thorough
from support.waiting import until

pytestmark = pytest.mark.skipif(not postgres.available(), reason="needs PostgreSQL")

PRESENCE_S = 90.0
"""More than the 30 s in which a device of a killed instance may come back."""
COMMANDS, KILLS = usual_or_thorough((60, 3), (1_000, 12))
WAIT_S = 120.0


@pytest.fixture
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Service]]:
    with nats_nodes() as nodes:
        asyncio.run(nodes.wait_until_ready())
        with service_pair(nodes, tmp_path_factory) as started:
            yield started


async def events_of(owner: ApiClient, device_id: str, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await owner.get(f"/events?limit=200&deviceId={device_id}&type={kind}"))["data"]
    return found


async def test_a_device_that_stays_away_is_told_offline_once_although_every_instance_is_killed(
    pair: tuple[Service, Service],
) -> None:
    first, second = pair
    away, back = await several_devices(first, 2)
    async with contextlib.AsyncExitStack() as lines:
        for device in (away, back):
            await (await lines.enter_async_context(online_at(device, first))).report(n=1)
        async with first.api() as owner:  # telemetry is confirmed before the connection is stored
            for device in (away, back):
                await owner.wait_until(device.path, lambda found: found["isOnline"])
        first.kill()
    async with online_at(back, second):
        await asyncio.to_thread(first.start)
        second.kill()  # it had put both devices on notice
    await asyncio.to_thread(second.start)
    async with online_at(back, first) as line, first.api() as owner:
        await line.report(n=2)
        offline = await until(lambda: events_of(owner, away.device_id, "device_offline"), bool, within_s=PRESENCE_S)
        assert await events_of(owner, back.device_id, "device_offline") == []
        assert (await owner.get(back.path))["isOnline"] is True
        async with online_at(away, second):
            await owner.wait_until(away.path, lambda found: found["isOnline"])
        assert len(offline) == 1
        assert len(await events_of(owner, away.device_id, "device_online")) == 2


async def test_commands_run_once_by_their_ids_while_instances_are_killed(tmp_path: Path) -> None:
    if reason := Setup.CLUSTER.missing():
        pytest.skip(reason)
    async with installation(Setup.CLUSTER, tmp_path) as installed:
        with installed.service as group:
            async with group.api() as api:
                switch = Switch(await create_device(api))
                at(switch.device, group)
                commander = Commander(switch.device)
                tasks = [asyncio.create_task(switch.run(group)), asyncio.create_task(commander.run(group, api))]
                try:
                    for turn in range(1, KILLS + 1):
                        while len(commander.executions) < turn * COMMANDS // (KILLS + 1):
                            await asyncio.sleep(0.05)
                        assert installed.instances is not None
                        await installed.instances.kill_and_restart()
                    while len(commander.executions) < COMMANDS:
                        await asyncio.sleep(0.05)
                    await cancel_tasks(tasks[1])
                    await every_command_ran_once(api, switch, commander)
                finally:
                    await cancel_tasks(*tasks)


async def every_command_ran_once(api: ApiClient, switch: Switch, commander: Commander) -> None:
    assert commander.server_errors == {}
    assert {len(ids) for ids in commander.executions.values()} == {1}
    sent = {one for ids in commander.executions.values() for one in ids}
    async with asyncio.timeout(WAIT_S):
        while (statuses := await statuses_of(api, switch, sent)) != {"DONE"}:
            await asyncio.sleep(0.5)
    assert statuses == {"DONE"}
    assert switch.ran >= sent


async def statuses_of(api: ApiClient, switch: Switch, sent: set[str]) -> set[str]:
    found: dict[str, str] = {}
    cursor = ""
    while True:
        page = await api.get(f"{switch.device.path}/executions?limit=100{cursor}")
        found |= {one["executionId"]: one["status"] for one in page["data"]}
        if not page["hasMore"]:
            return {found.get(execution_id, "missing") for execution_id in sent}
        cursor = f"&cursor={page['cursor']}"


SENT_IS_NOT_RECORDED = """
CREATE FUNCTION refuse_sent() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'SENT cannot be stored'; END $$;
CREATE TRIGGER refuse_sent BEFORE UPDATE ON executions FOR EACH ROW WHEN (NEW.status = 'SENT') EXECUTE FUNCTION refuse_sent()
"""


async def execute(service: Service, statements: str) -> None:
    database = await asyncpg.connect(str(service.settings["LATCHBOARD_DATABASE_URL"]).replace("+asyncpg", ""))
    try:
        await database.execute(statements)
    finally:
        await database.close()


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
async def test_a_command_is_never_told_expired_when_the_instance_that_sent_it_cannot_say_so(
    pair: tuple[Service, Service], number: signal.Signals
) -> None:
    first, second = pair
    ran, away = await several_devices(first, 2)
    async with online_at(ran, first, auto_reply=False) as line, second.api() as owner:
        await line.report(n=1)
        await owner.wait_until(ran.path, lambda found: found["isOnline"])
        await execute(second, SENT_IS_NOT_RECORDED)  # as if the instance had stopped between the wire and the commit
        never = await owner.post(f"{away.path}/command", {"cmd": "TOGGLE", "ttlSeconds": 2})
        sent = await owner.post(f"{ran.path}/command", {"cmd": "TOGGLE", "ttlSeconds": 2})
        assert (await line.next_command())["id"] == sent["executionId"]
        assert first.process is not None
        first.process.send_signal(number)
        try:
            told = [
                await owner.wait_until(f"{device.path}/executions/{each['executionId']}", lambda found: found["finishedAt"])
                for device, each in ((ran, sent), (away, never))
            ]
        finally:
            first.process.send_signal(signal.SIGCONT)
            first.kill()
            await execute(second, "DROP FUNCTION refuse_sent CASCADE")
    assert [each["status"] for each in told] == ["TIMED_OUT", "EXPIRED"]


async def test_a_revoked_device_is_disconnected_and_refused_at_every_instance(pair: tuple[Service, Service]) -> None:
    first, second = pair
    [pump] = await several_devices(first, 1)
    async with first.api() as owner, online_at(pump, second) as line:
        await line.report(n=1)
        await owner.post(f"{pump.path}/revoke", {})
        await line.wait_for_disconnect()
        for service in pair:
            with pytest.raises(aiomqtt.MqttError):
                async with at(pump, service).client(service):
                    pass
