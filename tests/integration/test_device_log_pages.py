"""A device's audit log is read page by page, and no event is lost between two pages."""

from __future__ import annotations

import re
from pathlib import Path

from domain.kernel.caller import Role
from support.in_process_app import ApiCaller, in_process_app

NEW = {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"}


async def followed(owner: ApiCaller, path: str) -> list[str]:
    """The ids of all events from this page on, by the `Link` headers."""
    ids: list[str] = []
    while path:
        answer = await owner.send("GET", path)
        assert answer.status_code == 200, answer.text
        ids += [event["id"] for event in answer.json()]
        link = re.fullmatch(r'<(.+)>; rel="next"', answer.headers.get("link", ""))
        path = link[1] if link else ""
    return ids


async def test_events_of_one_millisecond_are_on_one_of_two_pages(tmp_path: Path) -> None:
    async with in_process_app(tmp_path) as program:  # its clock stands still: all events have one time
        await program.create_account("owner@example.com")
        owner = await program.sign_in("owner@example.com")
        path = f"/devices/{(await owner.send_ok('POST', '/devices/register', NEW))['deviceId']}"
        await owner.send_ok("POST", f"{path}/credentials")
        for _ in range(6):
            await owner.send_ok("PATCH", f"{path}/toggle")
        whole = await owner.send_ok("GET", f"{path}/events?limit=200")
        ids = [event["id"] for event in whole]
        assert len(ids) >= 8
        assert len({event["timestamp"] for event in whole}) < len(ids)
        assert await followed(owner, f"{path}/events?limit=3") == ids
        later = whole[0]["timestamp"] + 1
        assert await followed(owner, f"{path}/events?limit=3&until={later}") == ids
        assert await owner.send_ok("GET", f"{path}/events?since={later}") == []
        cursor = (await owner.send_ok("GET", "/events?limit=1"))["cursor"]
        other = await owner.send("GET", f"{path}/events?cursor={cursor}")
        assert (other.status_code, other.json()["details"][0]["field"]) == (400, "cursor"), "a cursor of another list"


async def test_an_event_alone_is_as_in_the_list(tmp_path: Path) -> None:
    async with in_process_app(tmp_path) as program:
        account = await program.create_account("owner@example.com")
        await program.create_account("stranger@example.com", "Strangers")
        owner, stranger = await program.sign_in("owner@example.com"), await program.sign_in("stranger@example.com")
        await program.create_member(account, "viewer@example.com", Role.VIEWER)
        viewer = await program.sign_in("viewer@example.com")
        device = (await owner.send_ok("POST", "/devices/register", NEW))["deviceId"]
        await owner.send_ok("POST", f"/devices/{device}/credentials")
        for caller in (owner, viewer):
            for event in (await caller.send_ok("GET", "/events?limit=200"))["data"]:
                assert await caller.send_ok("GET", f"/events/{event['id']}") == event
        made = (await owner.send_ok("GET", "/events?type=device_registered"))["data"][0]
        assert (made["address"] != "", (await viewer.send_ok("GET", f"/events/{made['id']}"))["address"]) == (True, "")
        assert (await stranger.send("GET", f"/events/{made['id']}")).status_code == 404
        tag = (await owner.send("GET", f"/events/{made['id']}")).headers["ETag"]
        owner.headers["If-None-Match"] = tag
        assert (await owner.send("GET", f"/events/{made['id']}")).status_code == 304
        del owner.headers["If-None-Match"]
        await program.report(device, temperature=21)
        [reading] = (await owner.send_ok("GET", f"/events?type=telemetry&deviceId={device}"))["data"]
        assert (await owner.send("GET", f"/events/{reading['id']}")).status_code == 404, "the log has no readings"
