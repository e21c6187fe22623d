"""The questions that EMQX, RabbitMQ, VerneMQ and mosquitto-go-auth ask, in the forms that their documentation shows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from support.device import Device, create_device
from support.service import Service
from support.waiting import TIMEOUT_S

SECRET = "broker-secret-of-this-test"


@dataclass
class World:
    service: Service
    broker: httpx.AsyncClient
    device: Device

    @property
    def login(self) -> dict[str, str]:
        return {"username": self.device.device_id, "password": self.device.credentials["mqttPassword"]}

    async def emqx(self, path: str, **fields: str) -> str:
        body = {"username": self.device.device_id, "clientid": self.device.device_id, "peerhost": "192.0.2.1", **fields}
        answer = await self.broker.post(f"/broker/emqx/{path}", json=body)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
        return str(answer.json()["result"])

    async def rabbitmq(self, path: str, **fields: str) -> str:
        answer = await self.broker.post(
            f"/broker/rabbitmq/{path}",
            data={"username": self.device.device_id, "client_id": self.device.device_id, "vhost": "/", **fields},
        )
        assert answer.status_code == 200
        return answer.text

    async def go_auth(self, path: str, **fields: str) -> tuple[int, bool]:
        data = {"username": self.device.device_id, "clientid": self.device.device_id, **fields}
        as_form = await self.broker.post(f"/broker/mosquitto/{path}", data=data)
        as_json = await self.broker.post(f"/broker/mosquitto/{path}", json=data)
        as_text = await self.broker.post(f"/broker/mosquitto/{path}?mode=text", json=data)
        assert (as_form.status_code, as_form.json()) == (as_json.status_code, as_json.json())
        assert (as_text.text == "ok") is as_json.json()["ok"]
        return as_json.status_code, as_json.json()["ok"]

    async def vernemq(self, hook: str, body: Mapping[str, Any]) -> Any:
        fields = {"client_id": self.device.device_id, "mountpoint": "", "username": self.device.device_id, **body}
        answer = await self.broker.post("/broker/vernemq", json=fields, headers={"vernemq-hook": hook})
        assert answer.status_code == 200
        return answer.json()["result"]

    def topic(self, below: str) -> str:
        return self.device.topic(below)


@pytest.fixture
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    settings = {"LATCHBOARD_BROKER_AUTH_SECRET": SECRET, "LATCHBOARD_BROKER_AUTH_NETWORKS": "192.0.2.0/24"}
    service = Service(tmp_path_factory.mktemp("service"), **settings)
    await asyncio.to_thread(service.__enter__)
    try:
        headers = {"Authorization": f"Bearer {SECRET}"}
        async with service.api() as owner, httpx.AsyncClient(base_url=service.url, headers=headers, timeout=TIMEOUT_S) as broker:
            yield World(service, broker, await create_device(owner))
    finally:
        await asyncio.to_thread(service.__exit__, None, None, None)


REFUSED = {"error": "not_allowed"}


async def test_emqx(world: World) -> None:
    assert await world.emqx("auth", **world.login) == "allow"
    assert await world.emqx("auth", password="wrong") == "deny"
    assert await world.emqx("acl", action="publish", topic=world.topic("telemetry"), qos="1") == "allow"
    assert await world.emqx("acl", action="publish", topic=world.topic("cmd")) == "deny"
    assert await world.emqx("acl", action="subscribe", topic=world.topic("#")) == "allow"
    for topic in ("#", "devices/#", "devices/+/cmd", "devices/dev_00000000000000000000/cmd", world.topic("").rstrip("/")):
        assert await world.emqx("acl", action="subscribe", topic=topic) == "deny"


async def test_rabbitmq(world: World) -> None:
    name = world.device.device_id
    assert await world.rabbitmq("user", **world.login) == "allow"
    assert await world.rabbitmq("user", password="wrong") == "deny"
    assert await world.rabbitmq("vhost", ip="192.0.2.1") == "allow"
    assert await world.rabbitmq("vhost", username="guest", ip="192.0.2.1") == "deny"
    own = {"resource": "queue", "name": f"mqtt-subscription-{name}qos1"}
    for permission in ("configure", "write", "read"):
        assert await world.rabbitmq("resource", **own, permission=permission) == "allow"
    assert await world.rabbitmq("resource", resource="queue", name="mqtt-subscription-otherqos1", permission="read") == "deny"
    assert await world.rabbitmq("resource", resource="exchange", name="amq.topic", permission="write") == "allow"
    assert await world.rabbitmq("resource", resource="exchange", name="amq.topic", permission="configure") == "deny"
    exchange = {"resource": "topic", "name": "amq.topic"}
    assert await world.rabbitmq("topic", **exchange, permission="write", routing_key=f"devices.{name}.telemetry") == "allow"
    assert await world.rabbitmq("topic", **exchange, permission="write", routing_key=f"devices.{name}.cmd") == "deny"
    assert await world.rabbitmq("topic", **exchange, permission="read", routing_key=f"devices.{name}.#") == "allow"
    assert await world.rabbitmq("topic", **exchange, permission="read", routing_key="devices.*.cmd") == "deny"


async def test_vernemq(world: World) -> None:
    register = {"peer_addr": "192.0.2.1", "peer_port": 8888, "clean_session": False}
    publish = {"qos": 1, "payload": "aGVsbG8=", "retain": False}
    for suffix in ("", "_m5"):
        assert await world.vernemq(f"auth_on_register{suffix}", register | world.login) == "ok"
        assert await world.vernemq(f"auth_on_register{suffix}", register | {"password": None}) == REFUSED
        assert await world.vernemq(f"auth_on_publish{suffix}", publish | {"topic": world.topic("state")}) == "ok"
        assert await world.vernemq(f"auth_on_publish{suffix}", publish | {"topic": "devices/x/state"}) == REFUSED
        topics = [{"topic": world.topic("cmd"), "qos": 1}, {"topic": world.topic("time"), "qos": 1}]
        assert await world.vernemq(f"auth_on_subscribe{suffix}", {"topics": topics}) == "ok"
        assert await world.vernemq(f"auth_on_subscribe{suffix}", {"topics": [*topics, {"topic": "#", "qos": 1}]}) == REFUSED
    assert await world.vernemq("on_client_gone", {}) == REFUSED


async def test_mosquitto_go_auth(world: World) -> None:
    assert await world.go_auth("user", **world.login) == (200, True)
    assert await world.go_auth("user", password="wrong") == (403, False)
    assert await world.go_auth("superuser") == (403, False)
    assert await world.go_auth("acl", topic=world.topic("telemetry"), acc="2") == (200, True)
    assert await world.go_auth("acl", topic=world.topic("cmd"), acc="2") == (403, False)
    for acc in ("1", "4"):
        assert await world.go_auth("acl", topic=world.topic("cmd"), acc=acc) == (200, True)
    assert await world.go_auth("acl", topic=world.topic("cmd"), acc="3") == (403, False)


async def test_a_revoked_device_is_refused_at_the_next_question(world: World) -> None:
    async with world.service.api() as owner:
        await owner.post(f"{world.device.path}/revoke", {})
    assert await world.emqx("auth", **world.login) == "deny"
    assert await world.emqx("acl", action="publish", topic=world.topic("telemetry")) == "deny"
    assert await world.rabbitmq("vhost", ip="192.0.2.1") == "deny"
    assert await world.go_auth("acl", topic=world.topic("telemetry"), acc="2") == (403, False)


async def test_only_a_broker_with_the_secret_gets_an_answer(world: World) -> None:
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Basic {SECRET}"},
        {"X-Forwarded-For": "192.0.2.7"},
    ):
        async with httpx.AsyncClient(base_url=world.service.url, headers=headers, timeout=TIMEOUT_S) as stranger:
            answer = await stranger.post("/broker/emqx/auth", json=world.login)
            assert (answer.status_code, "result" in answer.text) == (401, False)


async def test_a_device_address_with_many_wrong_passwords_is_refused_for_a_while(world: World) -> None:
    answers = [await world.emqx("auth", password="wrong", peerhost="192.0.2.66") for _ in range(20)]
    assert set(answers) == {"deny"}
    assert await world.emqx("auth", **world.login, peerhost="192.0.2.66") == "deny"
    assert await world.emqx("auth", **world.login, peerhost="192.0.2.67") == "allow"


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"\xff", b'{"username": {"a": 1}}', b'{"username": "\\u0000"}', b'{"username": "\\ud800"}']
)
async def test_what_cannot_be_read_is_refused(world: World, body: bytes) -> None:
    for path in ("emqx/auth", "emqx/acl", "mosquitto/acl", "vernemq"):
        answer = await world.broker.post(f"/broker/{path}", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code in (200, 403), path
        assert '"allow"' not in answer.text
        assert '"ok": true' not in answer.text
        assert '"result": "ok"' not in answer.text


async def test_the_routes_do_not_exist_unless_they_are_set(tmp_path_factory: pytest.TempPathFactory) -> None:
    service = Service(tmp_path_factory.mktemp("service"))
    await asyncio.to_thread(service.__enter__)
    try:
        async with httpx.AsyncClient(base_url=service.url, timeout=TIMEOUT_S) as stranger:
            assert (await stranger.post("/broker/emqx/auth", json={})).status_code == 404
    finally:
        await asyncio.to_thread(service.__exit__, None, None, None)
