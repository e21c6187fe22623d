"""Provisioning codes under attack: guessed, replayed, expired, revoked, used too often, used by strangers and by former Admins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from domain.devices.credential_sync import CredentialSyncService
from domain.kernel.caller import Role
from domain.kernel.clock import to_iso
from domain.provisioning.model import ClaimStatus
from support.in_process_app import ApiCaller, InProcessApp, in_process_app
from support.two_instances import DATABASES, concurrent_change, two_instances

HOUR_MS = 3_600_000


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[InProcessApp]:
    async with in_process_app(tmp_path) as program:
        yield program


@pytest.fixture
async def ada(app: InProcessApp) -> ApiCaller:
    await app.create_account("ada@example.com")
    return await app.sign_in("ada@example.com")


async def make_code(app: InProcessApp, caller: ApiCaller, **fields: Any) -> Any:
    body = {
        "name": "Hall",
        "boardType": "ESP32",
        "appType": "PUMP",
        "expiresAt": to_iso(app.clock.now_ms() + HOUR_MS),
        "requiresApproval": False,
        "maxDevices": 2,
    }
    return await caller.send_ok("POST", "/provisioning-codes", body | fields)


async def claim(app: InProcessApp, code: str, hardware_id: str = "AA:BB:CC:01", **fields: Any) -> Any:
    body = {"code": code, "hardwareId": hardware_id} | fields
    return await app.caller().send("POST", "/provisioning/claim", body)


async def test_a_device_trades_the_code_for_credentials_that_the_broker_knows(app: InProcessApp, ada: ApiCaller) -> None:
    made = await make_code(app, ada, tags=["hall"])
    answer = await claim(app, made["code"], name="Pump 1")
    assert answer.status_code == 201, answer.text
    given = answer.json()
    link: Any = app.program.adapters.link
    assert link.admitted[given["mqttUsername"]][1] == given["mqttPassword"]
    device = await ada.send_ok("GET", f"/devices/{given['deviceId']}")
    assert (device["name"], device["externalId"], device["tags"]) == ("Pump 1", "AA:BB:CC:01", ["hall"])
    assert device["deviceStatus"] == "ACTIVE"
    [listed] = await ada.send_ok("GET", "/provisioning-codes")
    assert listed["claimedCount"] == 1
    assert "code" not in listed
    events = (await ada.send_ok("GET", f"/events?deviceId={given['deviceId']}"))["data"]
    assert {"device_claimed", "device_registered", "credentials_generated"} <= {event["eventType"] for event in events}
    assert {event["source"] for event in events} == {f"provisioning:{made['codeId']}"}
    everything = str((await ada.send_ok("GET", "/events?limit=200"))["data"])
    assert made["code"] not in everything
    assert given["mqttPassword"] not in everything
    assert given["claimToken"] not in everything


async def test_a_replay_without_the_token_gets_nothing_until_the_device_is_deleted(app: InProcessApp, ada: ApiCaller) -> None:
    made = await make_code(app, ada)
    first = (await claim(app, made["code"])).json()
    again = await claim(app, made["code"])
    assert (again.status_code, again.json()["error"]) == (409, "ALREADY_CLAIMED")
    other_code = await make_code(app, ada, name="Another")
    assert (await claim(app, other_code["code"])).json()["error"] == "ALREADY_CLAIMED"
    await ada.send_ok("DELETE", f"/devices/{first['deviceId']}")
    second = (await claim(app, made["code"])).json()
    assert second["deviceId"] != first["deviceId"]
    assert (await claim(app, made["code"], "AA:BB:CC:02")).json()["error"] == "PROVISIONING_CODE_USED_UP"


async def test_a_code_never_makes_more_devices_than_it_is_for(app: InProcessApp, ada: ApiCaller) -> None:
    made = await make_code(app, ada, maxDevices=3)
    answers = await asyncio.gather(*(claim(app, made["code"], f"AA:BB:CC:{number:02d}") for number in range(8)))
    assert sorted(answer.status_code for answer in answers) == [201] * 3 + [409] * 5
    assert len(await ada.send_ok("GET", "/devices")) == 3


async def test_one_hardware_id_that_claims_at_once_becomes_one_device(app: InProcessApp, ada: ApiCaller) -> None:
    made = await make_code(app, ada, maxDevices=9)
    answers = await asyncio.gather(*(claim(app, made["code"]) for _ in range(4)))
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409]


async def test_an_expired_revoked_or_unknown_code_gives_one_answer(app: InProcessApp, ada: ApiCaller) -> None:
    made, other = await make_code(app, ada), await make_code(app, ada, name="Other")
    await ada.send_ok("DELETE", f"/provisioning-codes/{other['codeId']}")
    app.clock.forward(HOUR_MS)
    refused = [await claim(app, code) for code in (made["code"], other["code"], "lbp_" + "x" * 26)]
    assert {answer.status_code for answer in refused} == {401}
    assert len({(answer.json()["error"], answer.json()["message"]) for answer in refused}) == 1
    ada = await app.sign_in("ada@example.com")
    assert await ada.send_ok("GET", "/devices") == []


async def test_guessing_is_stopped_by_address_and_a_right_code_is_not(
    app: InProcessApp, ada: ApiCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await make_code(app, ada)
    monkeypatch.setattr("adapters.http.api.provisioning.client_address", lambda: "192.0.2.7")
    answers = [await claim(app, f"lbp_{number:026d}") for number in range(21)]
    assert [answer.status_code for answer in answers] == [401] * 20 + [429]
    assert int(answers[-1].headers["Retry-After"]) > 0
    assert (await claim(app, made["code"])).status_code == 201, "a neighbour with an old code keeps nobody out"
    assert (await claim(app, f"lbp_{99:026d}")).status_code == 429


async def test_a_code_is_void_when_its_maker_is_no_admin_any_more(app: InProcessApp) -> None:
    created = await app.create_account("ada@example.com")
    ada = await app.sign_in("ada@example.com")
    membership_id = await app.create_member(created, "bob@example.com", Role.ADMIN)
    bob = await app.sign_in("bob@example.com")
    made = await make_code(app, bob)
    await ada.send_ok("PATCH", f"/members/{membership_id}", {"role": "Member"})
    assert (await claim(app, made["code"])).status_code == 401
    await ada.send_ok("PATCH", f"/members/{membership_id}", {"role": "Admin"})
    assert (await claim(app, made["code"])).status_code == 201
    await ada.send_ok("DELETE", f"/members/{membership_id}")
    assert (await claim(app, made["code"], "AA:BB:CC:02")).status_code == 401


async def test_a_device_waits_for_an_admin_of_its_own_account(app: InProcessApp) -> None:
    created = await app.create_account("ada@example.com")
    ada = await app.sign_in("ada@example.com")
    await app.create_member(created, "mo@example.com", Role.MEMBER)
    await app.create_account("eve@example.com", "Other")
    eve, mo = await app.sign_in("eve@example.com"), await app.sign_in("mo@example.com")
    made = await make_code(app, ada, requiresApproval=True)
    waiting = await claim(app, made["code"])
    token = waiting.json().pop("claimToken")
    assert (waiting.status_code, waiting.json()) == (202, {"status": "PENDING", "claimToken": token, "retryAfter": 30})
    assert (await claim(app, made["code"], claimToken=token)).json() == waiting.json()
    assert await ada.send_ok("GET", "/devices") == []
    [listed] = await ada.send_ok("GET", "/provisioning-claims?status=PENDING")
    path = f"/provisioning-claims/{listed['claimId']}"
    for method, end in (("POST", "/approve"), ("POST", "/deny"), ("DELETE", "")):
        assert (await eve.send(method, path + end)).status_code == 404
        assert (await mo.send(method, path + end)).json()["error"] == "ROLE_REQUIRED"
    assert await eve.send_ok("GET", "/provisioning-claims") == []
    assert (await ada.send_ok("POST", f"{path}/approve"))["status"] == "APPROVED"
    given = await claim(app, made["code"], claimToken=token)
    assert (given.status_code, given.json()["status"]) == (201, "CLAIMED")


async def test_a_claim_is_decided_once(app: InProcessApp, ada: ApiCaller) -> None:
    made = await make_code(app, ada, requiresApproval=True)
    for number, decision in enumerate(("approve", "deny")):
        await claim(app, made["code"], f"AA:BB:CC:{number:02d}")
        [listed] = await ada.send_ok("GET", "/provisioning-claims?status=PENDING")
        path = f"/provisioning-claims/{listed['claimId']}"
        both = await asyncio.gather(*(ada.send("POST", f"{path}/{decision}") for _ in range(2)))
        assert sorted(answer.status_code for answer in both) == [200, 409]
        for later in ("approve", "deny"):
            refused = await ada.send("POST", f"{path}/{later}")
            assert (refused.status_code, refused.json()["error"]) == (409, "ALREADY_DECIDED")


async def test_a_denied_board_is_refused_until_an_admin_forgets_its_claim(app: InProcessApp, ada: ApiCaller) -> None:
    made = await make_code(app, ada, requiresApproval=True)
    token = (await claim(app, made["code"])).json()["claimToken"]
    [listed] = await ada.send_ok("GET", "/provisioning-claims")
    path = f"/provisioning-claims/{listed['claimId']}"
    await ada.send_ok("POST", f"{path}/deny")
    denied = await claim(app, made["code"], claimToken=token)
    assert (denied.status_code, denied.json()["error"]) == (403, "CLAIM_DENIED")
    assert (await claim(app, made["code"])).status_code == 409, "a new token is no way round a denial"
    await ada.send_ok("DELETE", path)
    assert (await ada.send("DELETE", path)).status_code == 404
    assert (await claim(app, made["code"], claimToken=token)).status_code == 202
    [listed] = await ada.send_ok("GET", "/provisioning-claims")
    await ada.send_ok("POST", f"/provisioning-claims/{listed['claimId']}/approve")
    assert (await claim(app, made["code"], claimToken=token)).status_code == 201
    refused = await ada.send("DELETE", f"/provisioning-claims/{listed['claimId']}")
    assert (refused.status_code, refused.json()["error"]) == (409, "ALREADY_CLAIMED"), "it has a device"


async def test_an_approval_is_the_boards_that_asked_and_nobody_elses(
    app: InProcessApp, ada: ApiCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has the shared code, knows the id on the label, and polls from elsewhere gets nothing."""
    made = await make_code(app, ada, requiresApproval=True)
    token = (await claim(app, made["code"])).json()["claimToken"]
    [listed] = await ada.send_ok("GET", "/provisioning-claims")
    monkeypatch.setattr("adapters.http.api.provisioning.client_address", lambda: "192.0.2.7")
    tried: list[dict[str, Any]] = [{}, {"claimToken": "x" * 40}, {"claimToken": token.upper()}, {"claimToken": token[:-1]}]

    async def thief_gets_nothing() -> None:
        for fields in tried:
            for hardware_id in ("AA:BB:CC:01", "aa:bb:cc:01"):
                refused = await claim(app, made["code"], hardware_id, **fields)
                assert (refused.status_code, refused.json()["error"]) == (409, "ALREADY_CLAIMED")

    await thief_gets_nothing()
    await ada.send_ok("POST", f"/provisioning-claims/{listed['claimId']}/approve")
    await thief_gets_nothing()
    assert (await ada.send_ok("GET", "/provisioning-claims"))[0]["address"] == listed["address"]
    assert (await claim(app, made["code"], claimToken=token)).status_code == 201
    await thief_gets_nothing()


@pytest.mark.parametrize("chosen", ["d" * 32, None])
async def test_with_its_token_a_device_gets_the_same_answer_until_it_has_connected(
    app: InProcessApp, ada: ApiCaller, chosen: str | None
) -> None:
    made = await make_code(app, ada)
    first = await claim(app, made["code"], **({"claimToken": chosen} if chosen else {}))
    token = first.json()["claimToken"]
    assert chosen in (None, token)
    for hardware_id in ("AA:BB:CC:01", "aa:bb:cc:01"):
        again = await claim(app, made["code"], hardware_id, claimToken=token)
        assert (again.status_code, again.json()) == (first.status_code, first.json())
    assert (await claim(app, made["code"], "AA:BB:CC:02", claimToken=token)).status_code == 201, "another id is another claim"
    [listed] = await ada.send_ok("GET", "/provisioning-codes")
    assert listed["claimedCount"] == 2
    told = [event["description"] for event in (await ada.send_ok("GET", "/events?limit=200"))["data"]]
    assert sum("got its credentials again" in text for text in told) == 2, "whoever reads a secret is on record"
    async with app.services.uow.write() as tx:
        await tx.devices.set_online(first.json()["deviceId"], True)
    refused = await claim(app, made["code"], claimToken=token)
    assert (refused.status_code, refused.json()["error"]) == (409, "ALREADY_CLAIMED")
    async with app.services.uow.write() as tx:
        await tx.devices.set_online(first.json()["deviceId"], False)
        device = await tx.devices.find(first.json()["deviceId"])
        assert device is not None
        await tx.devices.update_last_seen({device.device_no: 1})
    assert (await claim(app, made["code"], claimToken=token)).status_code == 409


async def test_an_answer_that_is_lost_after_the_commit_is_harmless_to_who_chose_the_token(
    app: InProcessApp, ada: ApiCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(*_: Any) -> bool:
        raise RuntimeError("killed")

    made, token = await make_code(app, ada), "t" * 32
    with monkeypatch.context() as patch:
        patch.setattr(CredentialSyncService, "sync", die)
        assert (await claim(app, made["code"], claimToken=token)).status_code == 500
        assert (await claim(app, made["code"], "AA:BB:CC:02")).status_code == 500
    given = await claim(app, made["code"], claimToken=token)
    assert given.status_code == 201
    link: Any = app.program.adapters.link
    assert link.admitted[given.json()["mqttUsername"]][1] == given.json()["mqttPassword"]
    lost = await claim(app, made["code"], "AA:BB:CC:02")
    assert (lost.status_code, lost.json()["error"]) == (409, "ALREADY_CLAIMED"), "nobody can tell this board from another one"


@pytest.mark.parametrize("what", ["rotate", "revoke", "disable"])
async def test_a_claim_gives_no_credentials_but_its_own(app: InProcessApp, ada: ApiCaller, what: str) -> None:
    made = await make_code(app, ada)
    given = (await claim(app, made["code"])).json()
    path, calls = f"/devices/{given['deviceId']}", {"revoke": ("POST", "/revoke", None), "disable": ("PATCH", "/toggle", None)}
    app.clock.forward(1_000)
    method, end, body = calls.get(what, ("POST", "/credentials", {"rotate": True}))
    await ada.send_ok(method, path + end, body)
    refused = await claim(app, made["code"], claimToken=given["claimToken"])
    assert (refused.status_code, refused.json()["error"]) == (409, "ALREADY_CLAIMED")


async def test_the_credentials_are_not_shown_without_end(app: InProcessApp, ada: ApiCaller) -> None:
    made = await make_code(app, ada)
    token = (await claim(app, made["code"])).json()["claimToken"]
    answers = [await claim(app, made["code"], claimToken=token) for _ in range(21)]
    assert [answer.status_code for answer in answers] == [201] * 20 + [429]
    assert (await claim(app, made["code"], "AA:BB:CC:02")).status_code == 201, "this board alone waits"


async def test_a_code_that_lists_hardware_ids_lets_no_other_one_in(app: InProcessApp, ada: ApiCaller) -> None:
    made = await make_code(app, ada, hardwareIds=["aa:bb:cc:01", "AA:BB:CC:02", "AA:BB:CC:01"], maxDevices=None)
    assert (made["hardwareIds"], made["maxDevices"]) == (["AA:BB:CC:01", "AA:BB:CC:02"], 2)
    await ada.send_ok(
        "POST", "/devices/register", {"name": "Known", "boardType": "ESP32", "appType": "FAN", "externalId": "AA:BB:CC:03"}
    )
    for hardware_id in ("AA:BB:CC:03", "AA:BB:CC:04"):
        refused = await claim(app, made["code"], hardware_id)
        assert (refused.status_code, refused.json()["error"]) == (403, "HARDWARE_NOT_LISTED")
    assert await ada.send_ok("GET", "/provisioning-claims") == []
    for hardware_id in ("Aa:bB:cc:01", "aa:bb:cc:02"):
        assert (await claim(app, made["code"], hardware_id)).status_code == 201
    assert (await ada.send_ok("GET", "/provisioning-codes"))[0]["hardwareIds"] == ["AA:BB:CC:01", "AA:BB:CC:02"]


async def test_a_hardware_id_is_one_board_in_either_case(app: InProcessApp, ada: ApiCaller) -> None:
    one, two = await make_code(app, ada), await make_code(app, ada, name="Two")
    row = {"name": "Known", "boardType": "ESP32", "appType": "FAN", "externalId": "aa:Bb:cc:01"}
    known = (await ada.send_ok("POST", "/devices/register", row))["deviceId"]
    assert (await claim(app, one["code"], "AA:bb:cc:01")).json()["deviceId"] == known
    for code in (one, two):
        assert (await claim(app, code["code"], "AA:BB:CC:01")).json()["error"] == "ALREADY_CLAIMED"
    assert (await claim(app, one["code"], "aa:bb:cc:02")).status_code == 201
    assert (await claim(app, two["code"], "AA:BB:CC:02")).json()["error"] == "ALREADY_CLAIMED"
    found = [device["externalId"] for device in await ada.send_ok("GET", "/devices")]
    assert sorted(found) == ["AA:BB:CC:02", "aa:Bb:cc:01"]
    for external_id in ("ee:01", "EE:01"):
        await ada.send_ok("POST", "/devices/register", row | {"externalId": external_id})
    assert (await claim(app, two["code"], "Ee:01")).json()["error"] == "ALREADY_CLAIMED", "which of the two is not known"


@pytest.mark.parametrize("token", ["", "short", "x" * 31, "x" * 129, "x" * 31 + " ", "x" * 31 + "\u00e4"])
async def test_a_token_that_could_be_guessed_or_is_no_token_is_refused(app: InProcessApp, ada: ApiCaller, token: str) -> None:
    made = await make_code(app, ada)
    refused = await claim(app, made["code"], claimToken=token)
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, "claimToken")


@pytest.mark.parametrize("database", DATABASES)
async def test_the_token_is_nowhere_in_the_database(tmp_path: Path, database: str) -> None:
    async with two_instances(tmp_path, database) as pair:
        made, token = await make_code(pair.first, pair.owner), "t" * 40
        given = (await claim(pair.first, made["code"], claimToken=token)).json()
        assert (await claim(pair.second, made["code"], claimToken=token)).json() == given, "at any instance"
        async with pair.first.services.uow.read() as tx:
            [stored] = await tx.device_claims.list_by_account(pair.account.account.account_id, None, None, 9)
        assert token not in repr(stored)
        assert token.encode() not in stored.token_hash


async def test_of_boards_that_claim_at_once_with_one_id_the_one_with_the_token_is_answered(
    app: InProcessApp, ada: ApiCaller
) -> None:
    made = await make_code(app, ada, maxDevices=9)
    answers = await asyncio.gather(*(claim(app, made["code"], claimToken=sign * 32) for sign in "abca"))
    given = [answer.json()["claimToken"] for answer in answers if answer.status_code == 201]
    assert len(set(given)) == 1
    assert len(await ada.send_ok("GET", "/devices")) == 1


async def test_a_denied_board_takes_no_place_of_the_code(app: InProcessApp, ada: ApiCaller) -> None:
    made = await make_code(app, ada, requiresApproval=True, maxDevices=1)
    assert (await claim(app, made["code"], "AA:BB:CC:01")).status_code == 202
    assert (await claim(app, made["code"], "AA:BB:CC:02")).json()["error"] == "PROVISIONING_CODE_USED_UP"
    [listed] = await ada.send_ok("GET", "/provisioning-claims?status=PENDING")
    await ada.send_ok("POST", f"/provisioning-claims/{listed['claimId']}/deny")
    token = (await claim(app, made["code"], "AA:BB:CC:02")).json()["claimToken"]
    [listed] = await ada.send_ok("GET", "/provisioning-claims?status=PENDING")
    await ada.send_ok("POST", f"/provisioning-claims/{listed['claimId']}/approve")
    assert (await claim(app, made["code"], "AA:BB:CC:02", claimToken=token)).status_code == 201
    assert (await claim(app, made["code"], "AA:BB:CC:03")).json()["error"] == "PROVISIONING_CODE_USED_UP"
    assert len(await ada.send_ok("GET", "/devices")) == 1


@pytest.mark.parametrize("database", DATABASES)
async def test_a_device_that_fetches_while_an_admin_denies_it_gets_nothing(tmp_path: Path, database: str) -> None:
    async with two_instances(tmp_path, database) as pair:
        made = await make_code(pair.first, pair.owner, requiresApproval=True)
        token = (await claim(pair.first, made["code"])).json()["claimToken"]
        [listed] = await pair.owner.send_ok("GET", "/provisioning-claims")
        await pair.owner.send_ok("POST", f"/provisioning-claims/{listed['claimId']}/approve")
        async with concurrent_change(pair, claim(pair.second, made["code"], claimToken=token), 403) as (tx, device_fetches):
            waiting = await tx.device_claims.get_for_update(pair.account.account.account_id, listed["claimId"])
            await tx.device_claims.upsert(replace(waiting, status=ClaimStatus.DENIED))
            await device_fetches()
        assert await pair.owner.send_ok("GET", "/devices") == []


@pytest.mark.parametrize("database", DATABASES)
async def test_two_codes_give_one_registered_device_its_credentials_once(tmp_path: Path, database: str) -> None:
    async with two_instances(tmp_path, database) as pair:
        codes = [(await make_code(pair.first, pair.owner, name=name))["code"] for name in ("One", "Two")]
        row = {"name": "Known", "boardType": "ESP32", "appType": "FAN", "externalId": "AA:BB:CC:01"}
        await pair.owner.send_ok("POST", "/devices/register", row)
        answers = await asyncio.gather(claim(pair.first, codes[0]), claim(pair.second, codes[1]))
        assert sorted(answer.status_code for answer in answers) == [201, 409]


async def test_what_was_approved_waits_no_longer_than_the_code_is_valid(app: InProcessApp, ada: ApiCaller) -> None:
    made = await make_code(app, ada, requiresApproval=True)
    token = (await claim(app, made["code"])).json()["claimToken"]
    [listed] = await ada.send_ok("GET", "/provisioning-claims")
    await ada.send_ok("POST", f"/provisioning-claims/{listed['claimId']}/approve")
    app.clock.forward(HOUR_MS)
    assert (await claim(app, made["code"], claimToken=token)).status_code == 401


async def test_strangers_with_the_code_fill_the_list_only_so_far(app: InProcessApp, ada: ApiCaller) -> None:
    made = await make_code(app, ada, requiresApproval=True, maxDevices=3)
    answers = [await claim(app, made["code"], f"FAKE-{number}") for number in range(5)]
    assert [answer.status_code for answer in answers] == [202, 202, 202, 409, 409]
    first = await ada.send("GET", "/provisioning-claims?limit=2")
    assert len(first.json()) == 2
    assert 'rel="next"' in first.headers["Link"]


async def test_a_registered_device_of_the_same_project_is_the_one_that_gets_the_credentials(
    app: InProcessApp, ada: ApiCaller
) -> None:
    other = (await ada.send_ok("POST", "/projects", {"name": "Other"}))["projectId"]
    made = await make_code(app, ada)
    row = {"name": "Known", "boardType": "ESP32", "appType": "FAN"}
    known = (await ada.send_ok("POST", "/devices/register", row | {"externalId": "AA:BB:CC:01"}))["deviceId"]
    await ada.send_ok("POST", "/devices/register", row | {"externalId": "AA:BB:CC:02", "projectId": other})
    assert (await claim(app, made["code"])).json()["deviceId"] == known
    assert (await claim(app, made["code"], "AA:BB:CC:02")).json()["error"] == "ALREADY_CLAIMED"


@pytest.mark.parametrize("hardware_id", ["", "abc", "x" * 65, "a b c d", "aaaa\n", "../../x", "ä-ä-ä-ä"])
async def test_a_hardware_id_is_plain(app: InProcessApp, ada: ApiCaller, hardware_id: str) -> None:
    made = await make_code(app, ada)
    refused = await claim(app, made["code"], hardware_id)
    assert (refused.status_code, refused.json()["details"][0]["field"]) == (400, "hardwareId")


async def test_a_code_needs_an_admin_and_an_end(app: InProcessApp) -> None:
    created = await app.create_account("ada@example.com")
    await app.create_member(created, "mo@example.com", Role.MEMBER)
    ada, mo = await app.sign_in("ada@example.com"), await app.sign_in("mo@example.com")
    body = {"name": "N", "boardType": "ESP32", "appType": "PUMP", "expiresAt": to_iso(app.clock.now_ms() + HOUR_MS)}
    assert (await mo.send("POST", "/provisioning-codes", body)).json()["error"] == "ROLE_REQUIRED"
    for wrong in (to_iso(app.clock.now_ms()), to_iso(app.clock.now_ms() + 367 * 24 * HOUR_MS)):
        refused = await ada.send("POST", "/provisioning-codes", body | {"expiresAt": wrong})
        assert refused.json()["details"][0]["field"] == "expiresAt"
    assert (await ada.send_ok("POST", "/provisioning-codes", body))["requiresApproval"] is True
