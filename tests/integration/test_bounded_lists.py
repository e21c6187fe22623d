"""Keys, projects, members and grants have a bound that is said, and their lists come in pages that name the next one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from domain.kernel import checks
from support.http import PASSWORD
from support.in_process_app import ApiCaller, in_process_app

BOUND = 5


@pytest.fixture
async def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ApiCaller]:
    monkeypatch.setattr(checks, "MAX_LISTED", BOUND)
    async with in_process_app(tmp_path) as program:
        await program.create_account("ada@example.com")
        yield await program.sign_in("ada@example.com")


async def make_bodies(owner: ApiCaller, path: str) -> list[dict[str, Any]]:
    if path != "/devices/{device}/grants":
        return [
            {"name": f"No {number}"}
            | ({"email": f"m{number}@example.com", "role": "Viewer", "password": PASSWORD} if path == "/members" else {})
            for number in range(BOUND + 1)
        ]
    key = (await owner.send_ok("POST", "/keys", {"name": "Robot"}))["keyId"]
    return [{"commands": ["ON"], "apiKeyId": key}] * (BOUND + 1)


@pytest.mark.parametrize(
    ("path", "already", "code", "id_name"),
    [
        ("/keys", 0, "KEY_LIMIT", "keyId"),
        ("/projects", 1, "PROJECT_LIMIT", "projectId"),
        ("/members", 1, "MEMBER_LIMIT", "membershipId"),
        ("/devices/{device}/grants", 0, "GRANT_LIMIT", "grantId"),
    ],
)
async def test_a_list_has_a_bound_and_comes_in_pages(owner: ApiCaller, path: str, already: int, code: str, id_name: str) -> None:
    device = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}
    bodies = await make_bodies(owner, path)
    path = path.format(device=(await owner.send_ok("POST", "/devices/register", device))["deviceId"])
    for body in bodies[: BOUND - already]:
        await owner.send_ok("POST", path, body)
    refused = await owner.send("POST", path, bodies[-1])
    assert (refused.status_code, refused.json()["error"]) == (409, code)
    assert f"at most {BOUND}" in refused.json()["message"]

    whole = await owner.send("GET", path)
    assert (len(whole.json()), whole.headers.get("Link")) == (BOUND, None)
    pages, at = [], f"{path}?limit=2"
    while at:
        answer = await owner.send("GET", at)
        pages.append([entry[id_name] for entry in answer.json()])
        link = answer.headers.get("Link")
        assert link is None or link.endswith('; rel="next"')
        at = "" if link is None else link[1 : link.index(">")].removeprefix("/api/v1")
    assert [len(page) for page in pages] == [2, 2, 1]
    assert [one for page in pages for one in page] == [entry[id_name] for entry in whole.json()]
    assert (await owner.send("GET", f"{path}?cursor=nobody")).json()["details"][0]["field"] == "cursor"
