"""Members and projects over a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from domain.kernel.caller import Role
from support.http import PASSWORD, HttpClient, HttpWorld, serving


@pytest.fixture
async def http() -> AsyncIterator[HttpClient]:
    async with serving(HttpWorld()) as client:
        await client.sign_in()
        yield client


GRACE = {"email": "grace@example.com", "name": "Grace", "role": "Member", "password": PASSWORD}


async def test_a_member_is_added_changed_and_removed(http: HttpClient) -> None:
    added = await http.post("/members", GRACE)
    assert added.status_code == 201
    member = added.json()
    assert set(member) == {"membershipId", "userId", "email", "name", "role", "createdAt"}
    changed = await http.patch(f"/members/{member['membershipId']}", {"role": "Admin"})
    assert (changed.status_code, changed.json()["role"]) == (200, "Admin")
    assert [one["role"] for one in (await http.get("/members")).json()] == ["Owner", "Admin"]
    assert (await http.delete(f"/members/{member['membershipId']}")).json() == {"ok": True}
    assert (await http.delete(f"/members/{member['membershipId']}")).status_code == 404


@pytest.mark.parametrize(
    ("field", "value"),
    [("role", "owner"), ("role", None), ("email", "nonsense"), ("email", 7), ("name", ""), ("password", "short"), ("extra", 1)],
)
async def test_a_bad_member_is_refused_with_the_name_of_the_field(http: HttpClient, field: str, value: object) -> None:
    answer = await http.post("/members", {**GRACE, field: value})
    assert (answer.status_code, answer.json()["error"]) == (400, "VALIDATION_ERROR")
    assert [detail["field"] for detail in answer.json()["details"]] == [field]


async def test_the_last_owner_cannot_be_removed(http: HttpClient) -> None:
    [me] = (await http.get("/members")).json()
    for answer in (
        await http.delete(f"/members/{me['membershipId']}"),
        await http.patch(f"/members/{me['membershipId']}", {"role": "Viewer"}),
    ):
        assert (answer.status_code, answer.json()["error"]) == (409, "LAST_OWNER")


async def test_an_admin_cannot_change_owners(http: HttpClient) -> None:
    [owner] = (await http.get("/members")).json()
    await http.sign_in("grace@example.com", Role.ADMIN)
    answer = await http.delete(f"/members/{owner['membershipId']}")
    assert (answer.status_code, answer.json()["error"]) == (403, "ROLE_REQUIRED")


async def test_a_malformed_id_is_not_found(http: HttpClient) -> None:
    for name in ("mbr_unknown", "prj_00000000000000000000", "%E2%82%AC", "..", "mbr_" + "a" * 100):
        assert (await http.delete(f"/members/{name}")).status_code in (404, 405), name


async def test_a_project_is_created_renamed_and_deleted(http: HttpClient) -> None:
    [default] = (await http.get("/projects")).json()
    assert set(default) == {"projectId", "name", "deviceCount", "createdAt"}
    made = await http.post("/projects", {"name": "Barn"})
    assert (made.status_code, made.json()["deviceCount"]) == (201, 0)
    path = f"/projects/{made.json()['projectId']}"
    assert (await http.patch(path, {"name": "Shed"})).json()["name"] == "Shed"
    assert (await http.delete(path)).json() == {"ok": True}
    answer = await http.delete(f"/projects/{default['projectId']}")
    assert (answer.status_code, answer.json()["error"]) == (409, "DEFAULT_PROJECT")
