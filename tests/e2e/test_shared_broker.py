"""Two instances of a cluster and one Mosquitto: whichever instance dies, and also when Mosquitto is restarted, nothing that it has
acknowledged is lost. A Mosquitto that hides its version stands for brokers that keep shared subscriptions."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import httpx
import pytest

from adapters.engine import _native
from adapters.mqtt import mosquitto
from adapters.mqtt.mosquitto import MosquittoCredentialStore
from support import postgres
from support.cluster import service_pair
from support.device import Device, DeviceConnection, create_device
from support.external_broker import PASSWORD, ExternalBroker
from support.mosquitto import require_mosquitto
from support.nats import NatsNodes, nats_nodes
from support.service import ApiClient, Service
from support.waiting import TIMEOUT_S

pytestmark = pytest.mark.skipif(not postgres.available(), reason="needs PostgreSQL")

DEVICES = 4
MESSAGES = 120
"""Of each device, between two events of the test."""
RESTARTS = 2
TELLS_VERSION, HIDES_VERSION = "one reader", "shared subscriptions"

BEGIN_MS = int(time.time() * 1_000) - 3_600_000


@pytest.fixture(scope="module")
def nodes() -> Iterator[NatsNodes]:
    with nats_nodes() as started:
        asyncio.run(started.wait_until_ready())
        yield started


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ExternalBroker]:
    require_mosquitto()
    broker = ExternalBroker(tmp_path / "mosquitto")
    yield broker
    broker.remove()


@pytest.fixture
def logins(broker: ExternalBroker, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> MosquittoCredentialStore:
    """The operator's: in a cluster the service writes no files."""
    if getattr(request, "param", None) == HIDES_VERSION:
        rights = mosquitto.acl_text
        monkeypatch.setattr(mosquitto, "acl_text", lambda user: rights(user).replace("$SYS/broker/#", "$SYS/broker/publish/#"))
    store = MosquittoCredentialStore(broker.files, "latchboard", PASSWORD)
    asyncio.run(store.start())
    return store


@pytest.fixture
def pair(
    tmp_path_factory: pytest.TempPathFactory, nodes: NatsNodes, broker: ExternalBroker, logins: MosquittoCredentialStore
) -> Iterator[tuple[Service, Service]]:
    url = f"mqtt://latchboard:{PASSWORD}@127.0.0.1:{broker.service_port}"
    with service_pair(nodes, tmp_path_factory, LATCHBOARD_BROKER=url, LATCHBOARD_MQTT_PORT=broker.port) as started:
        yield started


async def new_device(owner: ApiClient, logins: MosquittoCredentialStore, name: str = "Pump") -> Device:
    device = await create_device(owner, name)
    await logins.upsert_credentials(device.device_id, device.credentials["mqttPassword"])
    return device


@contextlib.asynccontextmanager
async def line_of(device: Device, service: Service) -> AsyncIterator[DeviceConnection]:
    """Connected, and said so as firmware does; Mosquitto learns of its login a moment after it was written."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            with contextlib.suppress(Exception):
                async with device.client(service):
                    break
            await asyncio.sleep(0.05)
    async with device.online(service) as line:
        await line.publish("status", b"online", retain=True)
        yield line


async def report(line: DeviceConnection, numbers: Sequence[int]) -> None:
    """With times of the device: what Mosquitto delivers twice has one key."""
    for number in numbers:
        await line.publish("telemetry", {"ts": BEGIN_MS + number, "m": {"n": number}})


async def stored_numbers(api: ApiClient, device: Device, metric: str = "n") -> list[int]:
    answer = await api.send("GET", f"{device.path}/telemetry/export?format=csv&metric={metric}")
    return [int(float(row.split(",")[1])) for row in answer.text.splitlines()[1:]]


async def wait_for_numbers(api: ApiClient, device: Device, numbers: Sequence[int]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while len(found := await stored_numbers(api, device)) < len(numbers):
            await asyncio.sleep(0.1)
    assert sorted(found) == list(numbers)


async def wait_until_shared(*services: Service) -> None:
    """Until each of these instances has connections to sessions of its own."""

    def is_reading(text: str) -> bool:
        figures = dict(line.split(" ") for line in text.splitlines() if line.startswith("latchboard_mqtt_broker_sessions"))
        return float(figures["latchboard_mqtt_broker_sessions"]) > 0 and not float(
            figures["latchboard_mqtt_broker_sessions_away"]
        )

    async with asyncio.timeout(TIMEOUT_S), httpx.AsyncClient() as client:
        for service in services:
            while not is_reading((await client.get(f"{service.url}/metrics")).text):
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("logins", [TELLS_VERSION, HIDES_VERSION], indirect=True)
async def test_no_acknowledged_message_is_lost_or_stored_twice_when_an_instance_is_killed(
    pair: tuple[Service, Service], logins: MosquittoCredentialStore
) -> None:
    first, second = pair
    async with first.api() as owner, second.api() as other, contextlib.AsyncExitStack() as stack:
        devices = [await new_device(owner, logins, f"Pump {number}") for number in range(DEVICES)]
        lines = [await stack.enter_async_context(line_of(device, first)) for device in devices]

        async def send(start: int) -> None:
            await asyncio.gather(*[report(line, range(start, start + MESSAGES)) for line in lines])

        await wait_until_shared(first, second)
        await send(0)
        sending = asyncio.create_task(send(MESSAGES))
        await asyncio.sleep(0)
        await asyncio.to_thread(first.kill)
        await sending
        await send(2 * MESSAGES)
        for device in devices:
            await wait_for_numbers(other, device, range(3 * MESSAGES))
        await asyncio.to_thread(first.start)
        await send(3 * MESSAGES)
        assert second.is_running
        for device in devices:
            await wait_for_numbers(other, device, range(4 * MESSAGES))


async def test_commands_of_any_instance_arrive_and_presence_stays_when_the_reading_instance_changes(
    pair: tuple[Service, Service], logins: MosquittoCredentialStore
) -> None:
    async with pair[0].api() as owner, pair[1].api() as other:
        pump = await new_device(owner, logins)
        async with line_of(pump, pair[0]) as line:
            for api in (owner, other):
                await api.wait_until(pump.path, lambda found: found["isOnline"], within_s=TIMEOUT_S)
                assert (await api.post(f"{pump.path}/command", {"cmd": "ON", "waitSeconds": 30}))["status"] == "DONE"
            cluster = await owner.get("/cluster")
            reader = next(each["owner"] for each in cluster["partitions"] if each["partition"] == 0)
            gone, left = pair if reader == cluster["answeredBy"] else pair[::-1]
            await asyncio.to_thread(gone.kill)
            api = owner if left is pair[0] else other
            done = await api.post(f"{pump.path}/command", {"cmd": "OFF", "waitSeconds": 30})
            assert done["status"] == "DONE"
            for relay in (True, False) * 5:
                await line.press_button(relay)
            await api.wait_until(pump.path, lambda found: found["relayState"] is False, within_s=TIMEOUT_S)
            kinds = [each["eventType"] for each in (await api.get(f"/events?deviceId={pump.device_id}&limit=200"))["data"]]
            assert "device_offline" not in kinds
            assert kinds.count("device_online") == 1


async def test_no_acknowledged_message_is_lost_when_mosquitto_is_restarted_under_load(
    pair: tuple[Service, Service], broker: ExternalBroker, logins: MosquittoCredentialStore
) -> None:
    """Mosquitto keeps the sessions of the service, and forgets their shared subscriptions. Devices are back before the service,
    which sleeps until then."""
    first, second = pair
    async with first.api() as owner, second.api():
        devices = [await new_device(owner, logins, f"Meter {number}") for number in range(DEVICES)]
        await wait_until_shared(first, second)
        for device in devices:
            async with line_of(device, first):
                pass
        by_id = {device.device_id: device for device in devices}
        credentials = [(name, device.credentials["mqttPassword"]) for name, device in by_id.items()]
        fleet = _native.Simulation("127.0.0.1", broker.port, credentials, rate=200, keep_puback_log=True)

        async def confirmed(more: int) -> None:
            async with asyncio.timeout(TIMEOUT_S):
                before = fleet.stats()["confirmed"]
                while fleet.stats()["confirmed"] < before + more:
                    await asyncio.sleep(0.02)

        for _ in range(RESTARTS):
            await confirmed(MESSAGES)
            send_signal(pair, signal.SIGSTOP)
            try:
                await asyncio.to_thread(broker.end, signal.SIGTERM)
                await asyncio.to_thread(broker.start)
                await confirmed(MESSAGES)
            finally:
                send_signal(pair, signal.SIGCONT)
        await confirmed(MESSAGES)
        await asyncio.to_thread(fleet.stop)
        for name, runs in fleet.puback_log():
            acknowledged = {number for start, end in runs for number in range(start, end + 1)}
            await wait_until_stored(owner, by_id[name], acknowledged)


def send_signal(services: Sequence[Service], number: signal.Signals) -> None:
    for service in services:
        assert service.process is not None
        service.process.send_signal(number)


async def wait_until_stored(api: ApiClient, device: Device, acknowledged: set[int]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while missing := acknowledged - set(await stored_numbers(api, device, "seq")):
        assert time.monotonic() < deadline, f"{len(missing)} of {len(acknowledged)} acknowledged readings are lost"
        await asyncio.sleep(0.2)
