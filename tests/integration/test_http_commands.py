"""Commands through the HTTP application, over the in-memory storage."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from quart import Quart
from quart.typing import TestClientProtocol as Client

from domain.devices.messages import CommandResultReport
from domain.kernel.caller import Role
from support.device_app import as_key, as_person, make_app
from support.device_world import DeviceWorld, SentMessage


@pytest.fixture
async def world() -> DeviceWorld:
    return await DeviceWorld().populate()


@pytest.fixture
def app(world: DeviceWorld) -> Quart:
    return make_app(world)


@pytest.fixture
def client(app: Quart) -> Client:
    return app.test_client()


async def send(client: Client, device_id: str, headers: dict[str, str], **body: Any) -> tuple[int, Any]:
    response = await client.post(f"/api/v1/devices/{device_id}/command", json=body, headers=headers)
    return response.status_code, await response.get_json()


async def test_a_command_is_accepted_and_its_execution_can_be_read(client: Client, world: DeviceWorld) -> None:
    device = await world.device()
    status, body = await send(client, device.device_id, as_person(), cmd="ON")
    assert status == 200
    assert set(body) == {"ok", "executionId", "status"}
    assert (body["ok"], body["status"]) == (True, "QUEUED")
    path = f"/api/v1/devices/{device.device_id}/executions"
    one = await (await client.get(f"{path}/{body['executionId']}", headers=as_person())).get_json()
    told = {"executionId", "cmd", "channel", "params", "status", "source", "result", "approvalId"}
    assert set(one) == told | {"createdAt", "expiresAt", "finishedAt"}
    assert (one["cmd"], one["source"], one["finishedAt"]) == ("ON", "user", None)
    assert (await client.get(f"{path}/exe_nowhere", headers=as_person())).status_code == 404


@pytest.mark.parametrize(("path", "cmd"), [("on", "ON"), ("off", "OFF")])
async def test_on_and_off_have_short_forms_without_a_body(client: Client, world: DeviceWorld, path: str, cmd: str) -> None:
    device = await world.device()
    key = await world.key((device.device_id, [cmd]))
    response = await client.post(f"/api/v1/devices/{device.device_id}/command/{path}", headers=as_key(key))
    assert response.status_code == 200
    listed = await (await client.get(f"/api/v1/devices/{device.device_id}/executions", headers=as_key(key))).get_json()
    assert [(one["cmd"], one["source"]) for one in listed["data"]] == [(cmd, "apikey")]


async def test_a_command_that_needs_approval_answers_202(client: Client, world: DeviceWorld) -> None:
    device = await world.device()
    path = f"/api/v1/devices/{device.device_id}/commands"
    made = await client.post(path, json={"name": "ON", "label": "On", "requiresApproval": True}, headers=as_person())
    assert made.status_code == 201
    key = await world.key((device.device_id, ["ON"]))
    status, body = await send(client, device.device_id, as_key(key), cmd="ON")
    assert status == 202
    assert body["ok"] is True
    assert body["approvalRequired"] is True
    assert body["approvalId"].startswith("apv_")
    assert set(body) == {"ok", "approvalRequired", "approvalId", "status", "note"}


async def test_legacy_fields_are_ignored_and_unknown_fields_are_refused(client: Client, world: DeviceWorld) -> None:
    device = await world.device()
    status, _ = await send(client, device.device_id, as_person(), cmd="ON", params=None, queuedAt=17, target=None)
    assert status == 200
    for extra in ({"target": "x"}, {"parms": {}}, {"ttlSeconds": 0}, {"ttlSeconds": 86_401}, {"waitSeconds": 31}):
        status, body = await send(client, device.device_id, as_person(), cmd="ON", **extra)
        assert (status, body["error"]) == (400, "VALIDATION_ERROR"), extra
        assert body["details"][0]["field"].split(".")[0] in extra


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"cmd": "NOPE"}, 400, "UNKNOWN_COMMAND"),
        ({"cmd": "on"}, 400, "UNKNOWN_COMMAND"),
        ({"cmd": "SET", "params": {"level": "x"}}, 400, "INVALID_PARAMS"),
        ({"cmd": "SET"}, 400, "INVALID_PARAMS"),
        ({}, 400, "VALIDATION_ERROR"),
    ],
)
async def test_a_denial_names_the_failed_check(
    client: Client, world: DeviceWorld, body: dict[str, Any], status: int, code: str
) -> None:
    device = await world.device()
    schema = {"type": "object", "properties": {"level": {"type": "integer"}}, "required": ["level"]}
    await client.post(
        f"/api/v1/devices/{device.device_id}/commands",
        json={"name": "SET", "label": "Set", "paramsSchema": schema},
        headers=as_person(),
    )
    got, answer = await send(client, device.device_id, as_person(), **body)
    assert (got, answer["error"]) == (status, code)
    if code == "INVALID_PARAMS":
        assert answer["details"][0]["field"].startswith("params")


async def test_a_disabled_device_takes_no_commands(client: Client, world: DeviceWorld) -> None:
    device = await world.device()
    await world.devices.toggle_enabled(world.session(), device.device_id)
    status, body = await send(client, device.device_id, as_person(), cmd="ON")
    assert (status, body["error"]) == (403, "DEVICE_DISABLED")


async def test_a_device_that_was_never_set_up_says_so(client: Client, world: DeviceWorld) -> None:
    device = await world.device(active=False)
    status, body = await send(client, device.device_id, as_person(), cmd="ON")
    assert (status, body["error"]) == (409, "DEVICE_PENDING")
    assert "credentials" in body["message"]


async def test_nul_in_the_parameters_is_refused_by_the_name_of_its_place(client: Client, world: DeviceWorld) -> None:
    device = await world.device()
    status, body = await send(client, device.device_id, as_person(), cmd="ON", params={"note": ["a", "b\x00"]})
    assert (status, body["error"]) == (400, "VALIDATION_ERROR")
    assert body["details"][0]["field"] == "params.note.1"
    assert "NUL" in body["message"]


async def test_an_exhausted_rate_limit_has_retry_after(client: Client, world: DeviceWorld) -> None:
    device = await world.device()
    key = await world.key((device.device_id, ["ON"]), rate_limit_per_minute=1)
    await send(client, device.device_id, as_key(key), cmd="ON")
    response = await client.post(f"/api/v1/devices/{device.device_id}/command", json={"cmd": "ON"}, headers=as_key(key))
    assert response.status_code == 429
    assert int(response.headers["Retry-After"]) >= 1
    assert "RateLimit" in response.headers


async def test_wait_seconds_returns_the_devices_result(client: Client, world: DeviceWorld) -> None:
    device = await world.device(online=True)

    def answer(reported: SentMessage) -> None:
        message = json.loads(reported.payload)
        tasks.append(asyncio.get_running_loop().create_task(say_done(message["id"])))

    async def say_done(execution_id: str) -> None:
        await world.report(device.device_id, CommandResultReport(execution_id, "done", None, True, {"watts": 3}))

    async def dispatch() -> None:
        for _ in range(500):
            await world.dispatch.send_queued()
            if world.link.sent:
                return
            await asyncio.sleep(0.01)

    tasks: list[asyncio.Task[None]] = []
    world.link.on_send = answer
    dispatching = asyncio.create_task(dispatch())
    status, body = await send(client, device.device_id, as_person(), cmd="ON", waitSeconds=10)
    await asyncio.gather(dispatching, *tasks)
    assert status == 200
    assert body["status"] == "DONE"
    assert body["result"] == {"code": None, "relay": "ON", "data": {"watts": 3}}


async def test_wait_seconds_without_a_result_returns_the_status(client: Client, world: DeviceWorld) -> None:
    device = await world.device()
    status, body = await send(client, device.device_id, as_person(), cmd="ON", waitSeconds=0.01)
    assert (status, body["status"], body["result"]) == (200, "QUEUED", None)


async def test_definitions_are_listed_added_changed_and_removed(client: Client, world: DeviceWorld) -> None:
    device = await world.device()
    path = f"/api/v1/devices/{device.device_id}/commands"
    built_in = await (await client.get(path, headers=as_person())).get_json()
    assert [one["name"] for one in built_in] == ["ON", "OFF", "TOGGLE", "STATUS", "GET_SCHEDULES"]
    shown = {"commandId", "name", "label", "description", "kind", "paramsSchema", "shape", "requiresApproval", "channels"}
    assert set(built_in[0]) == shown
    made = await client.post(path, json={"name": "SPIN", "label": "Spin"}, headers=as_person())
    command_id = (await made.get_json())["commandId"]
    assert made.status_code == 201
    twice = await client.post(path, json={"name": "SPIN", "label": "Spin"}, headers=as_person())
    assert twice.status_code == 409
    changed = await client.patch(f"{path}/{command_id}", json={"label": "Whirl"}, headers=as_person())
    shown = await (await client.get(f"{path}/{command_id}", headers=as_person())).get_json()
    assert await changed.get_json() == shown | {"ok": True}
    assert (await (await client.get(path, headers=as_person())).get_json())[-1]["label"] == "Whirl"
    removed = await client.delete(f"{path}/{command_id}", headers=as_person())
    assert await removed.get_json() == {"ok": True}
    assert (await client.delete(f"{path}/{command_id}", headers=as_person())).status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {"name": "spin", "label": "x"},
        {"name": "SPIN"},
        {"name": "SPIN", "label": "x", "paramsSchema": {"type": "colour"}},
        {"name": "SPIN", "label": "x", "paramsSchema": {"$ref": "https://elsewhere.example/s"}},
        {"name": "SPIN", "label": "x", "kind": "WISH"},
        {"name": "ON", "label": "x", "kind": "QUERY"},
    ],
)
async def test_a_wrong_definition_is_refused(client: Client, world: DeviceWorld, body: dict[str, Any]) -> None:
    device = await world.device()
    response = await client.post(f"/api/v1/devices/{device.device_id}/commands", json=body, headers=as_person())
    assert (response.status_code, (await response.get_json())["error"]) == (400, "VALIDATION_ERROR")


async def test_executions_are_paged_by_an_opaque_cursor(client: Client, world: DeviceWorld) -> None:
    device = await world.device()
    for cmd in ("ON", "OFF", "TOGGLE"):
        await world.commands.submit(world.session(), device.device_id, cmd)
    path = f"/api/v1/devices/{device.device_id}/executions?limit=2"
    first = await (await client.get(path, headers=as_person(Role.VIEWER))).get_json()
    assert [one["cmd"] for one in first["data"]] == ["TOGGLE", "OFF"]
    assert first["hasMore"] is True
    second = await (await client.get(f"{path}&cursor={first['cursor']}", headers=as_person())).get_json()
    assert [one["cmd"] for one in second["data"]] == ["ON"]
    assert second["hasMore"] is False
    third = await (await client.get(f"{path}&cursor={second['cursor']}", headers=as_person())).get_json()
    assert (third["data"], third["hasMore"], third["cursor"]) == ([], False, second["cursor"])
    for wrong in ("eA", "%F0%9F%98%80", "MTc", "x-1"):
        assert (await client.get(f"{path}&cursor={wrong}", headers=as_person())).status_code == 400, wrong


async def test_a_command_without_credentials_is_refused(client: Client, world: DeviceWorld) -> None:
    device = await world.device()
    response = await client.post(f"/api/v1/devices/{device.device_id}/command", json={"cmd": "ON"})
    assert response.status_code == 401
