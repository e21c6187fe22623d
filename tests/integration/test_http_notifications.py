"""What a member chooses to be told, as it is asked for and refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.in_process_app import ApiCaller, in_process_app


@pytest.fixture
async def owner(tmp_path: Path) -> AsyncIterator[ApiCaller]:
    async with in_process_app(tmp_path) as program:
        await program.create_account("owner@example.com")
        yield await program.sign_in("owner@example.com")


@pytest.mark.parametrize("change", [{"timezone": ""}, {"timezone": "localtime"}, {"language": "fr"}, {"language": ""}])
async def test_a_zone_or_language_that_does_not_exist_is_refused(owner: ApiCaller, change: dict[str, str]) -> None:
    answer = await owner.send("PUT", "/auth/notifications", {"topics": [], **change})
    assert (answer.status_code, answer.json()["details"][0]["field"]) == (400, next(iter(change)))


async def test_settings_without_mail_leave_mail_as_it_is(owner: ApiCaller) -> None:
    for given, mail in (({}, False), ({"mail": True}, True), ({}, True), ({"mail": False}, False), ({}, False)):
        answer = await owner.send("PUT", "/auth/notifications", {"topics": ["APPROVALS"], **given})
        assert (answer.status_code, answer.json()["mail"]) == (200, mail), answer.text
        assert (await owner.send_ok("GET", "/auth/notifications"))["mail"] is mail
        assert len(await owner.send_ok("GET", "/auth/notifications/channels")) == mail
