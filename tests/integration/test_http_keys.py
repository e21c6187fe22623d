"""API keys over a real socket: as resources and as callers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from adapters.http.core.callers import AllowedCallers, current_caller
from adapters.http.core.operation import ApiBlueprint
from domain.devices.model import Device, DeviceMetadata, DeviceStatus, FirmwareProfile
from domain.grants.model import Grant, GrantSubject, Scope, WeeklyGrantWindow
from domain.kernel.ids import DeviceId, GrantId, KeyId
from support.http import HttpClient, HttpWorld, serving


def control(world: HttpWorld) -> Sequence[ApiBlueprint]:
    bp = ApiBlueprint("control", "T")

    @bp.operation("GET /who", AllowedCallers.KEY, "s")
    async def who() -> dict[str, str]:
        return {"who": current_caller().label}

    return [bp]


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    async with serving(HttpWorld(blueprints=control)) as client:
        await client.sign_in()
        yield client


async def make(http: HttpClient) -> dict[str, str]:
    answer = await http.post("/keys", {"name": "CI"})
    assert answer.status_code == 201
    made: dict[str, str] = answer.json()
    return made


async def test_a_key_is_shown_in_full_once(http: HttpClient) -> None:
    made = await make(http)
    assert set(made) == {*(await http.get(f"/keys/{made['keyId']}")).json(), "key"}
    assert made["key"].startswith(made["prefix"])
    assert (made["type"], made["prefix"][:8]) == ("SECRET", "sk_live_")
    listed = await http.get("/keys")
    assert listed.json() == [
        {
            "keyId": made["keyId"],
            "name": "CI",
            "type": "SECRET",
            "prefix": made["prefix"],
            "enabled": True,
            "expiresAt": None,
            "endedAt": None,
            "allowedNetworks": [],
            "previousPrefix": None,
            "previousExpiresAt": None,
            "lastUsedAt": None,
            "lastUsedPrefix": None,
            "createdAt": "2027-01-15T08:00:00.000Z",
        }
    ]
    assert made["key"] not in listed.text


@pytest.mark.parametrize("form", ["X-Api-Key", "Bearer"])
async def test_a_key_may_call_what_is_open_to_keys_and_nothing_else(http: HttpClient, form: str) -> None:
    made = await make(http)
    http.headers = {"X-Api-Key": made["key"]} if form == "X-Api-Key" else {"Authorization": f"Bearer {made['key']}"}
    assert (await http.get("/who")).json() == {"who": f"apikey:{made['keyId']}"}
    for method, path in (
        ("GET", "/auth/me"),
        ("GET", "/keys"),
        ("POST", "/keys"),
        ("GET", "/members"),
        ("DELETE", "/projects/x"),
    ):
        answer = await http.call(method, path)
        assert (answer.status_code, answer.json()["error"]) == (403, "SESSION_REQUIRED"), path


async def test_an_unknown_key_is_refused_everywhere(http: HttpClient) -> None:
    made = await make(http)
    await http.delete(f"/keys/{made['keyId']}")
    for key in (made["key"], "sk_live_nonsense", "anything"):
        http.headers = {"X-Api-Key": key}
        for path in ("/who", "/auth/me"):
            answer = await http.get(path)
            assert (answer.status_code, answer.json()["error"]) == (401, "UNAUTHENTICATED"), (key, path)


async def test_a_disabled_key_is_refused_until_it_is_enabled(http: HttpClient) -> None:
    made = await make(http)
    session = http.headers
    assert (await http.patch(f"/keys/{made['keyId']}", {"enabled": False, "name": "old"})).json()["name"] == "old"
    http.headers = {"X-Api-Key": made["key"]}
    assert (await http.get("/who")).status_code == 401
    http.headers = session
    await http.patch(f"/keys/{made['keyId']}", {"enabled": True})
    assert [(key["name"], key["enabled"]) for key in (await http.get("/keys")).json()] == [("old", True)]


async def test_last_use_is_shown_after_the_next_flush(http: HttpClient) -> None:
    made = await make(http)
    session, http.headers = http.headers, {"X-Api-Key": made["key"]}
    await http.get("/who")
    await http.world.callers.flush_last_used()
    http.headers = session
    [listed] = (await http.get("/keys")).json()
    assert (listed["lastUsedAt"], listed["lastUsedPrefix"]) == ("2027-01-15T08:00:00.000Z", made["prefix"])


async def test_the_grants_of_a_key_name_their_device_or_project(http: HttpClient) -> None:
    made = await make(http)
    assert (await http.get(f"/keys/{made['keyId']}/grants")).json() == []
    await _grant(http, KeyId(made["keyId"]))
    first, second = (await http.get(f"/keys/{made['keyId']}/grants")).json()
    assert first == {
        "grantId": "grt_00000000000000000001",
        "appliesVia": "device",
        "project": None,
        "group": None,
        "commands": ["ON"],
        "device": {"deviceId": "dev_00000000000000000001", "name": "Pump"},
        "scope": "WRITE",
        "expiresAt": "2027-01-15T09:00:00.000Z",
        "endedAt": None,
        "rateLimitPerMinute": 5,
        "createdAt": "2027-01-15T08:00:00.000Z",
    }
    assert (second["appliesVia"], second["device"], second["project"]["name"]) == ("project", None, "Default")


async def test_the_grants_of_an_unknown_key_are_not_found(http: HttpClient) -> None:
    assert (await http.get("/keys/key_00000000000000000000/grants")).status_code == 404


async def _grant(http: HttpClient, key_id: KeyId) -> None:
    assert http.account is not None
    account_id, project_id = http.account.account.account_id, http.account.project.project_id
    now_ms = http.world.clock.now_ms()
    device_id = DeviceId("dev_00000000000000000001")
    device = Device(
        device_id=device_id,
        device_no=0,
        account_id=account_id,
        project_id=project_id,
        name="Pump",
        board_type="ESP32",
        app_type="PUMP",
        app_type_other=None,
        status=DeviceStatus.ACTIVE,
        profile=FirmwareProfile.NATIVE,
        device_type_id=None,
        about=DeviceMetadata(),
        created_ms=now_ms,
    )
    async with http.world.uow.write() as tx:
        await tx.devices.add(device)
        for number, (to_device, to_project) in enumerate(((device_id, None), (None, project_id)), 1):
            await tx.grants.add(
                Grant(
                    grant_id=GrantId(f"grt_{number:020d}"),
                    account_id=account_id,
                    subject=GrantSubject(key_id=key_id),
                    device_id=to_device,
                    project_id=to_project,
                    commands=("ON",),
                    scope=Scope.WRITE,
                    expires_ms=now_ms + 3_600_000,
                    window=WeeklyGrantWindow(),
                    rate_limit_per_minute=5,
                    created_ms=now_ms,
                    created_by="",
                )
            )
