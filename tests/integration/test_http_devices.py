"""Devices through the HTTP application, over the in-memory storage."""

from __future__ import annotations

from typing import Any

import pytest
from quart import Quart
from quart.typing import TestClientProtocol as Client

from domain.kernel.caller import Role
from support.device_app import as_key, as_person, make_app
from support.device_world import DeviceWorld

NEW = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}
DEVICE_FIELDS = {
    "deviceId",
    "name",
    "boardType",
    "appType",
    "deviceStatus",
    "enabled",
    "deviceTypeId",
    "relayState",
    "isOnline",
    "lastSeen",
    "createdAt",
    "project",
    "channels",
    "groupIds",
    "profile",
    "description",
    "location",
    "manufacturer",
    "model",
    "industry",
    "tags",
    "health",
    "appTypeOther",
    "externalId",
}


@pytest.fixture
async def world() -> DeviceWorld:
    return await DeviceWorld().populate()


@pytest.fixture
def app(world: DeviceWorld) -> Quart:
    return make_app(world)


@pytest.fixture
def client(app: Quart) -> Client:
    return app.test_client()


async def register(client: Client, **fields: Any) -> str:
    response = await client.post("/api/v1/devices/register", json=NEW | fields, headers=as_person())
    assert response.status_code == 201, await response.get_data(as_text=True)
    body = await response.get_json()
    assert set(body) >= {"deviceId", "name"}
    return str(body["deviceId"])


async def test_a_device_goes_from_register_to_delete(client: Client, world: DeviceWorld) -> None:
    device_id = await register(client, tags=["a", "a", "b"], location="Cellar")
    path = f"/api/v1/devices/{device_id}"
    found = await (await client.get(path, headers=as_person())).get_json()
    assert set(found) == DEVICE_FIELDS
    assert (found["deviceStatus"], found["enabled"], found["relayState"], found["lastSeen"]) == ("PENDING", False, None, None)
    assert (found["tags"], found["location"], found["project"]["name"]) == (["a", "b"], "Cellar", "Default")
    assert found["createdAt"].endswith("Z")

    made = await client.post(f"{path}/credentials", headers=as_person())
    assert made.status_code == 200
    credentials = await made.get_json()
    assert set(credentials) == {"mqttUsername", "mqttPassword", "mqttHost", "mqttPort", "wsPort", "configBlock"}
    assert credentials["mqttUsername"] == device_id
    again = await client.post(f"{path}/credentials", json={}, headers=as_person())
    assert (again.status_code, (await again.get_json())["error"]) == (409, "CREDENTIALS_EXIST")
    rotated = await client.post(f"{path}/credentials", json={"rotate": True}, headers=as_person())
    assert (await rotated.get_json())["mqttPassword"] != credentials["mqttPassword"]

    toggled = await client.patch(f"{path}/toggle", headers=as_person())
    shown = await (await client.get(path, headers=as_person())).get_json()
    assert await toggled.get_json() == shown | {"ok": True, "enabled": False, "deviceStatus": "DISABLED"}
    await client.patch(f"{path}/toggle", headers=as_person())
    revoked = await client.post(f"{path}/revoke", headers=as_person())
    assert await revoked.get_json() == {"ok": True, "deviceStatus": "REVOKED"}

    deleted = await client.delete(path, headers=as_person())
    assert (deleted.status_code, await deleted.get_json()) == (200, {"ok": True})
    assert (await client.get(path, headers=as_person())).status_code == 404
    assert await (await client.get("/api/v1/devices", headers=as_person())).get_json() == []


async def test_reveal_needs_the_account_password(client: Client) -> None:
    device_id = await register(client)
    path = f"/api/v1/devices/{device_id}/credentials"
    assert (await client.post(f"{path}/reveal", json={"password": "secret"}, headers=as_person())).status_code == 404
    made = await (await client.post(path, headers=as_person())).get_json()
    shown = await client.post(f"{path}/reveal", json={"password": "secret"}, headers=as_person())
    assert await shown.get_json() == made
    wrong = await client.post(f"{path}/reveal", json={"password": "no"}, headers=as_person())
    assert (wrong.status_code, (await wrong.get_json())["error"]) == (403, "PASSWORD_MISMATCH")
    await client.post(f"/api/v1/devices/{device_id}/revoke", headers=as_person())
    assert (await client.post(f"{path}/reveal", json={"password": "secret"}, headers=as_person())).status_code == 409


async def test_an_update_honours_if_match(client: Client) -> None:
    path = f"/api/v1/devices/{await register(client)}"
    etag = (await client.get(path, headers=as_person())).headers["ETag"]
    first = await client.put(path, json={"name": "A"}, headers=as_person() | {"If-Match": etag})
    shown = await (await client.get(path, headers=as_person())).get_json()
    assert (first.status_code, await first.get_json()) == (200, shown | {"ok": True})
    stale = await client.put(path, json={"name": "B"}, headers=as_person() | {"If-Match": etag})
    assert stale.status_code == 412
    strange = await client.put(path, json={"name": "B"}, headers=as_person() | {"If-Match": 'W/"x"'})
    assert strange.status_code == 412
    fresh = await client.put(path, json={"name": "B"}, headers=as_person() | {"If-Match": first.headers["ETag"]})
    assert fresh.status_code == 200
    anyhow = await client.put(path, json={"description": None}, headers=as_person() | {"If-Match": "*"})
    assert anyhow.status_code == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": None}, "name"),
        ({"nmae": "A"}, "nmae"),
        ({"tags": ["x"] * 21}, "tags"),
        ({"profile": "zigbee"}, "profile"),
        ({"deviceStatus": "ACTIVE"}, "deviceStatus"),
    ],
)
async def test_a_wrong_update_names_its_field(client: Client, body: dict[str, Any], field: str) -> None:
    response = await client.put(f"/api/v1/devices/{await register(client)}", json=body, headers=as_person())
    assert response.status_code == 400
    assert (await response.get_json())["details"][0]["field"] == field


async def test_the_config_has_the_requested_format(client: Client) -> None:
    path = f"/api/v1/devices/{await register(client)}/config"
    plain = await (await client.get(path, headers=as_person())).get_json()
    assert set(plain) == {"configBlock", "note"}
    assert "MQTT_PASSWORD" in plain["configBlock"]
    yaml = await (await client.get(f"{path}?format=esphome", headers=as_person())).get_json()
    assert yaml["configBlock"].startswith("# Pump\nmqtt:")
    assert (await client.get(f"{path}?format=zigbee", headers=as_person())).status_code == 400


async def test_the_event_log_lists_the_devices_events(client: Client) -> None:
    path = f"/api/v1/devices/{await register(client)}/events"
    response = await client.get(f"{path}?limit=10", headers=as_person())
    assert response.status_code == 200
    assert (await client.get(f"{path}?limit=0", headers=as_person())).status_code == 400


async def test_an_update_logs_the_fields_by_the_names_of_the_api(client: Client, world: DeviceWorld) -> None:
    path = f"/api/v1/devices/{await register(client)}"
    changes = {"location": "Yard", "appType": "PUMP", "name": "A", "externalId": "7"}
    assert (await client.put(path, json=changes, headers=as_person())).status_code == 200
    (event,) = world.events_of_kind("device_updated")
    assert event.data == {"fields": sorted(changes)}
    assert event.description == "Device updated: appType, externalId, location, name"


async def test_a_key_lists_what_it_may_see_and_manages_nothing(client: Client, world: DeviceWorld) -> None:
    mine, _ = await world.device(), await world.device()
    key = await world.key((mine.device_id, ["ON"]))
    listed = await (await client.get("/api/v1/devices", headers=as_key(key))).get_json()
    assert [one["deviceId"] for one in listed] == [mine.device_id]
    for method, path in [("GET", ""), ("PUT", ""), ("DELETE", ""), ("POST", "/revoke"), ("GET", "/config")]:
        response = await client.open(f"/api/v1/devices/{mine.device_id}{path}", method=method, headers=as_key(key))
        assert (response.status_code, (await response.get_json())["error"]) == (403, "SESSION_REQUIRED"), (method, path)


async def test_a_viewer_cannot_change_anything(client: Client, world: DeviceWorld) -> None:
    device = await world.device()
    viewer = as_person(Role.VIEWER)
    for method, path in [("DELETE", ""), ("POST", "/revoke"), ("PATCH", "/toggle"), ("POST", "/credentials")]:
        response = await client.open(f"/api/v1/devices/{device.device_id}{path}", method=method, headers=viewer)
        assert (response.status_code, (await response.get_json())["error"]) == (403, "ROLE_REQUIRED"), (method, path)


async def test_the_catalogue_needs_no_login(client: Client) -> None:
    boards = await (await client.get("/api/v1/catalog/boards")).get_json()
    assert {"id", "boardType", "name", "description", "profile", "configFormat"} == set(boards[0])
    apps = await (await client.get("/api/v1/catalog/apps")).get_json()
    assert [entry["id"] for entry in boards] == [entry["boardType"] for entry in boards]
    assert [entry["id"] for entry in apps] == [entry["appType"] for entry in apps]
    assert all(entry["name"] and entry["description"] for entry in boards + apps)


async def test_device_types_share_commands(client: Client) -> None:
    command = {"name": "SPIN", "label": "Spin", "paramsSchema": {"type": "integer"}}
    made = await client.post("/api/v1/device-types", json={"name": "Pump", "commands": [command]}, headers=as_person())
    assert made.status_code == 201
    device_type = await made.get_json()
    device_id = await register(client, deviceTypeId=device_type["deviceTypeId"])
    listed = await (await client.get(f"/api/v1/devices/{device_id}/commands", headers=as_person())).get_json()
    assert listed[-1]["name"] == "SPIN"
    path = f"/api/v1/device-types/{device_type['deviceTypeId']}"
    assert (await client.patch(path, json={"name": "Pumps"}, headers=as_person())).status_code == 200
    assert (await (await client.get(path, headers=as_person())).get_json())["name"] == "Pumps"
    assert (await client.delete(path, headers=as_person())).status_code == 409
    await client.put(f"/api/v1/devices/{device_id}", json={"deviceTypeId": None}, headers=as_person())
    assert (await client.delete(path, headers=as_person())).status_code == 200
    assert await (await client.get("/api/v1/device-types", headers=as_person())).get_json() == []
