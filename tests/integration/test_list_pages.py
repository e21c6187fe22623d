"""Every list of the document is walked in small pages while entries come and go, the last one of each page among them: what was
there all the time is read exactly once, on both databases."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from domain.kernel.cursors import Cursor
from security.calls import MAKERS, Ids, Targets
from security.people import a_key
from support import postgres
from support.empty_database import empty_postgres
from support.in_process_app import ApiCaller, in_process_app

DATABASES = ["sqlite", *(["postgres"] if postgres.available() else [])]
OWNER = "owner@example.com"
PAGE = 2
ENTRIES = 7
UNPAGED = {"/catalog/boards", "/catalog/apps"}
"""Constant lists, without authentication."""
MADE_ELSEWHERE = {"/auth/passkeys"}
"""A passkey needs a browser; its list is walked without entries."""
NUMBERS = count()
Maker = Callable[[Targets, Ids], Awaitable[Any]]


@pytest.fixture(params=DATABASES)
async def at(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Targets]:
    chosen = {"database_url": await empty_postgres()} if request.param == "postgres" else {}
    async with in_process_app(tmp_path, **chosen) as program:
        created = await program.create_account(OWNER)
        await program.create_account("door@example.com", "Door")
        owner = await program.sign_in(OWNER)
        requester, key_id = await a_key(owner)
        device = await owner.send_ok("POST", "/devices/register", {"name": "Pump", "boardType": "ESP32", "appType": "PUMP"})
        everything = {"commands": ["*"], "appliesVia": "project", "apiKeyId": key_id}
        await owner.send_ok("POST", f"/devices/{device['deviceId']}/grants", everything)
        yield Targets(program, owner, requester, created.account.account_id)


async def report(at: Targets, ids: Ids) -> None:
    """A message of three readings with one time; the clock stands still."""
    values = {name: next(NUMBERS) for name in ("humidity", "pressure", "temperature")}
    await at.app.report(ids["deviceId"], **values)


async def report_hours_later(at: Targets, ids: Ids) -> None:
    at.app.clock.forward(3 * 3_600_000)
    at.owner.headers.update((await at.app.sign_in(OWNER)).headers)
    await report(at, ids)


async def schedule(at: Targets, ids: Ids) -> None:
    soon_s = at.app.clock.now_ms() // 1000 + 3600
    taken = {each["slot"] for each in await at.owner.send_ok("GET", f"/devices/{ids['deviceId']}/schedules")}
    free = [slot for slot in range(5) if slot not in taken]
    if free:
        body = {"slot": free[0], "onTs": soon_s, "offTs": soon_s + 60}
        await at.owner.send_ok("POST", f"/devices/{ids['deviceId']}/schedules", body)


async def ended_schedule(at: Targets, ids: Ids) -> None:
    await schedule(at, ids)
    await at.owner.send_ok("DELETE", f"/devices/{ids['deviceId']}/schedules/0")


async def sign_in(at: Targets, ids: Ids) -> None:
    await at.app.sign_in(OWNER)


async def key_grant(at: Targets, ids: Ids) -> None:
    device = await MAKERS["deviceId"](at, {})
    body = {"commands": ["ON"], "apiKeyId": ids["keyId"]}
    await at.owner.send_ok("POST", f"/devices/{device['deviceId']}/grants", body)


async def channel(at: Targets, ids: Ids) -> None:
    body = {"name": f"No {next(NUMBERS)}", "ntfy": {"url": "https://ntfy.sh", "topic": f"latchboard{next(NUMBERS)}"}}
    await at.owner.send("POST", "/auth/notifications/channels", body)


async def service_session(at: Targets, ids: Ids) -> None:
    body = {"name": "ci", "role": "Member", "operations": ["devices:read"], "expiresAt": "2027-02-01T00:00:00Z"}
    await at.owner.send_ok("POST", "/service-sessions", body)


async def named_event(at: Targets, ids: Ids) -> None:
    await at.owner.send_ok("PUT", f"/devices/{ids['deviceId']}", {"name": f"Pump {next(NUMBERS)}"})


BOUNDED = {
    "/service-sessions", "/auth/sessions", "/auth/passkeys", "/auth/notifications/channels", "/invitations", "/members",
    "/projects", "/keys", "/keys/{keyId}/grants", "/groups", "/groups/{groupId}/grants", "/devices/{deviceId}/grants",
    "/devices/{deviceId}/rules", "/devices/{deviceId}/schedules", "/provisioning-codes", "/webhooks",
}  # fmt: skip
"""What is there now, in a number that has a bound or that people keep small: it does not grow with time, and nobody looks for what
came between two moments."""
PRESENT = {"/devices"}
"""The fleet as it is; sorted by `lastSeen`, with filters of its own."""
TIMES_OF = {
    "/devices/{deviceId}/executions": "createdAt",
    "/devices/{deviceId}/approvals": "createdAt",
    "/approvals": "createdAt",
    "/webhooks/{webhookId}/deliveries": "createdAt",
    "/provisioning-claims": "createdAt",
    "/devices/{deviceId}/events": "timestamp",
    "/events?type=device_updated": "timestamp",
    "/devices/{deviceId}/telemetry": "recordedAt",
    "/telemetry/series?deviceId={deviceId}": "timestamp",
}
"""What `since` and `until` are about; of schedules that ended it is the end, which the storage's contract tests."""


def identity(entry: Any) -> str:
    return json.dumps(entry, sort_keys=True)


def by(name: str) -> Callable[[Any], str]:
    return lambda entry: str(entry[name])


SPECIAL: dict[str, tuple[Maker, Callable[[Any], str]]] = {
    "/devices/{deviceId}/telemetry": (report, identity),
    "/devices/{deviceId}/telemetry?metric=temperature": (report, identity),
    "/devices/{deviceId}/telemetry?metric=temperature,humidity": (report, identity),
    "/devices/{deviceId}/telemetry?metric=pressure,humidity&order=asc": (report, identity),
    "/devices/{deviceId}/telemetry?order=asc": (report_hours_later, identity),
    "/devices/{deviceId}/telemetry?step=1m&metric=temperature,humidity": (
        report_hours_later,
        lambda entry: f"{entry['from']} {entry['metric']}",
    ),
    "/telemetry/series?deviceId={deviceId}&metric=temperature,humidity": (report, identity),
    "/devices/{deviceId}/telemetry?step=1m": (report_hours_later, lambda entry: f"{entry['from']} {entry['metric']}"),
    "/devices/{deviceId}/telemetry?step=1h&order=asc": (report_hours_later, lambda entry: f"{entry['from']} {entry['metric']}"),
    "/telemetry/series?deviceId={deviceId}": (report, identity),
    "/events?type=device_updated": (named_event, by("id")),
    "/events?type=telemetry&deviceId={deviceId}": (report, by("id")),
    "/devices/{deviceId}/events": (named_event, by("id")),
    "/devices/{deviceId}/executions": (MAKERS["executionId"], by("executionId")),
    "/devices/{deviceId}/commands": (MAKERS["commandId"], by("name")),
    "/devices/{deviceId}/schedules": (schedule, by("slot")),
    "/devices/{deviceId}/schedules/history": (ended_schedule, by("scheduleId")),
    "/devices/{deviceId}/approvals": (MAKERS["approvalId"], by("approvalId")),
    "/approvals": (MAKERS["approvalId"], by("approvalId")),
    "/webhooks/{webhookId}/deliveries": (MAKERS["deliveryId"], by("deliveryId")),
    "/provisioning-claims": (MAKERS["claimId"], by("claimId")),
    "/keys/{keyId}/grants": (key_grant, by("grantId")),
    "/auth/notifications/channels": (channel, by("channelId")),
    "/service-sessions": (service_session, by("sessionId")),
    "/auth/sessions": (sign_in, by("sessionId")),
    "/devices": (MAKERS["deviceId"], by("deviceId")),
    "/devices?sort=name": (MAKERS["deviceId"], by("deviceId")),
    "/devices?sort=lastSeen": (MAKERS["deviceId"], by("deviceId")),
    "/devices?sort=-lastSeen": (MAKERS["deviceId"], by("deviceId")),
    "/devices?search=ump": (MAKERS["deviceId"], by("deviceId")),
    "/keys?search=e": (MAKERS["keyId"], by("keyId")),
}
"""Lists whose entries are made another way than by a POST of their path, and lists with filters."""


def lists_of(document: Any) -> dict[str, dict[str, Any]]:
    """The operations that answer a list."""
    found: dict[str, dict[str, Any]] = {}
    for path, methods in document["paths"].items():
        operation = methods.get("get")
        content = (operation or {}).get("responses", {}).get("200", {}).get("content", {}).get("application/json", {})
        schema = content.get("schema", {})
        if "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        shapes = schema.get("anyOf", [schema])
        if "hasMore" in schema.get("properties", {}) or any(shape.get("type") == "array" for shape in shapes):
            found[path.removeprefix("/api/v1")] = operation
    return found


def entry_id_name(document: Any, path: str) -> str | None:
    """The name of the id in `{path}/{…}`."""
    inside = [
        each for each in document["paths"] if each.startswith(f"/api/v1{path}/{{") and each.count("/") == path.count("/") + 3
    ]
    return inside[0].rpartition("{")[2].rstrip("}") if inside else None


async def read(caller: ApiCaller, path: str) -> tuple[list[Any], str | None]:
    """A page, and the path of the next one."""
    answer = await caller.send("GET", path)
    assert answer.status_code == 200, f"{path}: {answer.text}"
    body, link = answer.json(), answer.headers.get("Link")
    following = None if link is None else link[1 : link.index(">")]
    if isinstance(body, dict):
        assert body["hasMore"] is (link is not None), path
        assert isinstance(body["cursor"], str)
        if link is not None:
            assert parse_qs(urlsplit(following).query)["cursor"] == [body["cursor"]]
        return body["data"], following
    return body, following


class Walk:
    def __init__(self, at: Targets, document: Any, template: str) -> None:
        self.at, self.template = at, template
        path = template.partition("?")[0]
        name = entry_id_name(document, path)
        self.make, self.id_of = SPECIAL.get(template) or (MAKERS[str(name)], by(str(name)))
        item = document["paths"].get(f"/api/v1{path}/{{{name}}}", {})
        self.delete_path = f"{path}/{{{name}}}" if "delete" in item else ""
        self.id_name = name or ""

    async def run(self) -> None:
        ids: Ids = {}
        if self.template not in MADE_ELSEWHERE:
            places = self.template if "{" in self.template else f"{self.template}/{{deviceId}}"
            ids = await self.at.create(places.replace(f"/{{{self.id_name}}}", ""))
            for _ in range(ENTRIES):
                await self.make(self.at, ids)
        path = self.template.format(**ids)
        path += ("&" if "?" in path else "?") + f"limit={PAGE}"
        whole, _ = await read(self.at.owner, path.replace(f"limit={PAGE}", "limit=200"))
        before = [self.id_of(entry) for entry in whole]
        assert len(set(before)) == len(before), f"{self.template}: an id twice"
        assert self.template in MADE_ELSEWHERE or len(before) > PAGE, f"{self.template}: too few entries"
        seen, gone, cursors = await self.walk(path, ids, whole)
        there_all_the_time = [each for each in before if each not in gone]
        repeated = sorted({each for each in seen if seen.count(each) > 1})
        assert repeated == [], f"{self.template}: repeated {repeated}"
        missing = [each for each in there_all_the_time if each not in seen]
        assert missing == [], f"{self.template}: lost {missing} of {before}, read {seen}"
        for cursor in cursors[:1]:
            await self.misuse(path, cursor)

    async def walk(self, path: str, ids: Ids, whole: list[Any]) -> tuple[list[str], set[str], list[str]]:
        seen: list[str] = []
        gone: set[str] = set()
        cursors: list[str] = []
        page, at = 0, path
        while at:
            entries, following = await read(self.at.owner, at)
            assert len(entries) <= PAGE * (1 if "series" not in at else 99)
            seen += [self.id_of(entry) for entry in entries]
            cursors += [] if following is None else parse_qs(urlsplit(following).query)["cursor"]
            if entries and self.delete_path:
                gone |= await self.delete(entries[-1], ids)  # the anchor of the next page
            if page == 0 and whole and self.delete_path:
                gone |= await self.delete(whole[-1], ids)  # one that is still to come
            if page < 3 and self.template not in MADE_ELSEWHERE:
                await self.make(self.at, ids)
            page, at = page + 1, following or ""
            assert page < 100, f"{self.template}: no end"
        return seen, gone, cursors

    async def delete(self, entry: Any, ids: Ids) -> set[str]:
        if entry.get("current") or entry.get(self.id_name) is None:
            return set()
        path = self.delete_path.format(**(ids | {self.id_name: str(entry[self.id_name])}))
        deleted = await self.at.owner.send("DELETE", path)
        return {self.id_of(entry)} if deleted.status_code < 400 else set()

    async def misuse(self, path: str, text: str) -> None:
        """Another list, other filters, and what a client has written into the cursor."""
        owner, at = self.at.owner, f"{path}&cursor="
        elsewhere = "/projects?cursor=" if self.template != "/projects" else "/keys?cursor="
        for wrong in (f"{elsewhere}{text}", f"{at}{text[:-3]}", f"{at}nonsense"):
            answer = await owner.send("GET", wrong)
            assert (answer.status_code, answer.json()["details"][0]["field"]) == (400, "cursor"), wrong
        cursor = Cursor.decode(text)
        other_life = await owner.send("GET", at + replace(cursor, life="another").encode())
        assert (other_life.status_code, other_life.json()["error"]) == (410, "OTHER_LIFE")
        values: list[int | str] = ["x", "\u00fc" * 300, -1, 0, 2**63 - 1, 1 - 2**63]
        positions = [(value,) * size for value in values for size in (0, 1, len(cursor.position))]
        for position in [*positions, *((cursor.position[0], *each) for each in positions)]:
            answer = await owner.send("GET", at + replace(cursor, position=position).encode())
            assert answer.status_code in (200, 400), f"{self.template} {position}: {answer.text}"


async def test_every_list_is_walked_without_a_loss_while_entries_come_and_go(at: Targets) -> None:
    document = (await at.app.http.get("/openapi.json")).json()
    lists = lists_of(document)
    paged = {path for path, one in lists.items() if any(each["name"] == "cursor" for each in one.get("parameters", ()))}
    assert set(lists) - paged == UNPAGED
    for path in paged:
        assert {each["name"] for each in lists[path]["parameters"]} & {"offset", "before", "after"} == set(), path
        assert {"200", "400", "410"} <= lists[path]["responses"].keys(), path
        assert "Link" in lists[path]["responses"]["200"]["headers"], path
    wrong: list[str] = []
    for template in sorted(paged | set(SPECIAL)):
        if template in ("/telemetry/series", "/events"):
            continue  # with their filters only: the one needs devices, and all entries of the other are many
        try:
            await Walk(at, document, template).run()
        except (AssertionError, KeyError, IndexError) as error:
            wrong.append(f"{template}: {error!r}"[:400])
    assert not wrong, "\n".join(wrong)


async def test_the_cursor_of_a_last_page_leads_to_an_empty_one(at: Targets) -> None:
    ids = await at.create("/devices/{deviceId}/executions/{executionId}")
    for path in (f"/devices/{ids['deviceId']}/executions?limit=50", "/events?limit=200", "/events?limit=200&type=telemetry"):
        last = await at.owner.send_ok("GET", path)
        for _ in range(2):
            assert last["hasMore"] is False
            last = await at.owner.send_ok("GET", f"{path}&cursor={last['cursor']}")
            assert last["data"] == []


def shows_time(document: Any, operation: Any) -> bool:
    """Whether the entries of the list have a time."""
    text = json.dumps(operation["responses"]["200"]["content"]["application/json"]["schema"])
    names, seen = set[str](), set[str]()
    for _ in range(3):
        for name, schema in document["components"]["schemas"].items():
            if f'schemas/{name}"' in text and name not in seen:
                seen.add(name)
                names |= schema.get("properties", {}).keys()
                text += json.dumps(schema)
    return any(name.endswith("At") or name == "timestamp" for name in names)


async def test_every_list_that_grows_with_time_takes_since_and_until(at: Targets) -> None:
    document = (await at.app.http.get("/openapi.json")).json()
    lists = {path: one for path, one in lists_of(document).items() if path not in UNPAGED and shows_time(document, one)}
    timed = {path for path, one in lists.items() if {"since", "until"} <= {each["name"] for each in one["parameters"]}}
    assert set(lists) - timed == BOUNDED | PRESENT
    assert {path.partition("?")[0] for path in TIMES_OF} | {"/devices/{deviceId}/schedules/history"} == timed


@pytest.mark.parametrize("template", sorted(TIMES_OF))
async def test_since_is_inclusive_and_until_exclusive(at: Targets, template: str) -> None:
    make, _ = SPECIAL[template]
    places = template if "{" in template else f"{template.partition('?')[0]}/{{deviceId}}"
    ids = await at.create(places)
    for _ in range(3):
        at.app.clock.forward(1_000)
        await make(at, ids)
    path, name = template.format(**ids), TIMES_OF[template]
    path += "&" if "?" in path else "?"
    every, _ = await read(at.owner, f"{path}limit=200")
    times = sorted({entry[name] for entry in every})
    assert len(times) >= 3, times
    middle = times[len(times) // 2]
    since, _ = await read(at.owner, f"{path}limit=200&since={middle}")
    until, _ = await read(at.owner, f"{path}limit=200&until={middle}")
    assert {entry[name] for entry in since} == {each for each in times if each >= middle}
    assert {entry[name] for entry in until} == {each for each in times if each < middle}
