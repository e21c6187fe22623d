"""An external broker gives the session of a client id to whoever it lets in with it. With all that one device has, nobody gets the
session of another device or of the service; and nobody but the broker gets an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from support.device import Device, create_device
from support.external_broker import PASSWORD as SERVICE_PASSWORD
from support.external_broker import ExternalBroker
from support.mosquitto import require_mosquitto
from support.service import ApiClient, Service
from support.waiting import TIMEOUT_S

SECRET = "broker-secret-of-this-test"
SESSIONS_OF_THE_SERVICE = ("latchboard", "latchboard-telemetry-0", "latchboard-telemetry-15")


@dataclass
class Login:
    name: str
    password: str


@dataclass
class World:
    service: Service
    owner: ApiClient
    broker: httpx.AsyncClient
    device: Device
    other: Device

    @property
    def login(self) -> Login:
        return Login(self.device.device_id, self.device.credentials["mqttPassword"])


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """With a broker that gives the service a login of its own; the test asks in its place."""
    require_mosquitto()
    broker = ExternalBroker(tmp_path_factory.mktemp("broker") / "mosquitto")
    try:
        with Service(tmp_path_factory.mktemp("service"), LATCHBOARD_BROKER_AUTH_SECRET=SECRET, **broker.settings) as service:
            yield service
    finally:
        broker.remove()


@pytest.fixture
async def world(running: Service) -> AsyncIterator[World]:
    headers = {"Authorization": f"Bearer {SECRET}"}
    async with running.api() as owner, httpx.AsyncClient(base_url=running.url, headers=headers, timeout=TIMEOUT_S) as broker:
        yield World(running, owner, broker, await create_device(owner, "Pump"), await create_device(owner, "Gate"))


async def ask_emqx(broker: httpx.AsyncClient, login: Login, client_id: str) -> bool:
    body = {"username": login.name, "password": login.password, "clientid": client_id, "peerhost": "192.0.2.1"}
    return bool((await broker.post("/broker/emqx/auth", json=body)).json()["result"] == "allow")


async def ask_rabbitmq(broker: httpx.AsyncClient, login: Login, client_id: str) -> bool:
    form = {"username": login.name, "password": login.password, "client_id": client_id, "vhost": "/"}
    return (await broker.post("/broker/rabbitmq/user", data=form)).text == "allow"


async def ask_vernemq(broker: httpx.AsyncClient, login: Login, client_id: str) -> bool:
    body = {"username": login.name, "password": login.password, "client_id": client_id, "mountpoint": ""}
    answers = [
        await broker.post("/broker/vernemq", json=body, headers={"vernemq-hook": hook})
        for hook in ("auth_on_register", "auth_on_register_m5")
    ]
    [result] = {str(each.json()["result"]) for each in answers}
    return result == "ok"


async def ask_go_auth(broker: httpx.AsyncClient, login: Login, client_id: str) -> bool:
    body = {"username": login.name, "password": login.password, "clientid": client_id}
    return (await broker.post("/broker/mosquitto/user", json=body)).status_code == 200


FORMS = (ask_emqx, ask_rabbitmq, ask_vernemq, ask_go_auth)
Ask = Callable[[httpx.AsyncClient, Login, str], Awaitable[bool]]


@pytest.mark.parametrize("ask", FORMS)
async def test_a_device_gets_no_session_but_its_own(world: World, ask: Ask) -> None:
    mine, name = world.login, world.device.device_id
    assert await ask(world.broker, mine, name)
    foreign = (world.other.device_id, *SESSIONS_OF_THE_SERVICE, "", "mqttjs_1", name.upper(), f"{name} ", f"{name}\n", f"{name}1")
    for client_id in foreign:
        assert not await ask(world.broker, mine, client_id), client_id


@pytest.mark.parametrize("ask", FORMS)
async def test_the_service_gets_its_own_sessions_and_no_device_s(world: World, ask: Ask) -> None:
    service = Login("latchboard", SERVICE_PASSWORD)
    for client_id in SESSIONS_OF_THE_SERVICE:
        assert await ask(world.broker, service, client_id)
        assert not await ask(world.broker, Login("latchboard", "wrong"), client_id)
    for client_id in (world.device.device_id, "latchboard-telemetry-", "latchboard-telemetry-0\n", "latchboard-x", ""):
        assert not await ask(world.broker, service, client_id), client_id


async def test_a_client_id_that_is_not_the_device_s_is_refused_in_questions_of_topics_too(world: World) -> None:
    name, topic = world.device.device_id, world.device.topic("telemetry")
    for client_id, fits in ((name, True), (world.other.device_id, False), ("latchboard", False)):
        answers: list[Any] = [
            (
                await world.broker.post(
                    "/broker/emqx/acl", json={"username": name, "clientid": client_id, "action": "publish", "topic": topic}
                )
            ).json()["result"]
            == "allow",
            (
                await world.broker.post(
                    "/broker/mosquitto/acl", json={"username": name, "clientid": client_id, "acc": "2", "topic": topic}
                )
            ).status_code
            == 200,
            (
                await world.broker.post(
                    "/broker/vernemq",
                    json={"username": name, "client_id": client_id, "topic": topic},
                    headers={"vernemq-hook": "auth_on_publish"},
                )
            ).json()["result"]
            == "ok",
        ]
        rabbitmq = {"username": name, "vhost": "/", "permission": "write"}
        for path, fields in (
            ("vhost", {"client_id": client_id}),
            ("resource", {"resource": "queue", "name": f"mqtt-subscription-{client_id}qos1"}),
            ("topic", {"name": "amq.topic", "routing_key": topic.replace("/", "."), "variable_map.client_id": client_id}),
        ):
            answers.append((await world.broker.post(f"/broker/rabbitmq/{path}", data=rabbitmq | fields)).text == "allow")
        assert answers == [fits] * len(answers), client_id


async def test_the_account_is_told_of_a_client_id_and_a_password_that_are_not_the_device_s(world: World) -> None:
    await ask_go_auth(world.broker, world.login, "latchboard")
    await ask_go_auth(world.broker, Login(world.other.device_id, "wrong"), world.other.device_id)
    for device, reason in ((world.device, "CLIENT_ID"), (world.other, "WRONG_PASSWORD")):
        found = await world.owner.wait_until(device.path, lambda each: each["health"].get("lastRefusal"), within_s=TIMEOUT_S)
        assert found["health"]["lastRefusal"]["reason"] == reason
        events = (await world.owner.get(f"/events?deviceId={device.device_id}&limit=200"))["data"]
        [refused] = [each for each in events if each["eventType"] == "device_refused"]
        assert reason in refused["description"]


ANYBODY = {"username": "dev_00000000000000000000", "password": "x", "clientid": "dev_00000000000000000000"}


async def test_a_network_admits_its_brokers_and_not_what_a_proxy_in_it_passes_on(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    service = Service(tmp_path_factory.mktemp("service"), LATCHBOARD_HTTP_HOST="::", LATCHBOARD_BROKER_AUTH_NETWORKS="127.0.0.1")
    await asyncio.to_thread(service.__enter__)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{service.port}", timeout=TIMEOUT_S) as client:
            assert (await client.post("/broker/emqx/auth", json=ANYBODY)).json() == {"result": "deny"}
            for header in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"):
                passed_on = await client.post("/broker/emqx/auth", json=ANYBODY, headers={header: "127.0.0.1"})
                assert passed_on.status_code == 401, header
        async with httpx.AsyncClient(base_url=f"http://[::1]:{service.port}", timeout=TIMEOUT_S) as stranger:
            assert (await stranger.post("/broker/emqx/auth", json=ANYBODY)).status_code == 401
    finally:
        await asyncio.to_thread(service.__exit__, None, None, None)
