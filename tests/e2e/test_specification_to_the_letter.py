"""The specification and the wire contract, checked word by word against the running program with real clients.

A `Story` makes every call that the two name, with a real device and a real webhook receiver; `support/response_shapes.py` defines
each response. Each sentence that no table can express has a test that quotes it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import time
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from support.device import Device, DeviceConnection, create_device
from support.response_shapes import ANSWERS, ISO, shape_errors
from support.service import EMAIL, PASSWORD, ApiClient, Service
from support.waiting import TIMEOUT_S, until
from support.webhook_receiver import ReceivedRequest, Receiver, respond, webhook_receiver

HOT = {"metric": "temperature", "comparator": ">", "value": 30}
ROLES = ("Admin", "Member", "Viewer")
SPARE = {"name": "Spare", "boardType": "ESP32", "appType": "PUMP"}
LATER = {"onTs": 4_000_000_000, "offTs": 4_000_003_600}


@dataclass
class Story:
    """`responses`: the first response to each call of the tables. `webhook`: the secret before and after its rotation."""

    service: Service
    owner: ApiClient
    key: str = ""
    ids: dict[str, str] = field(default_factory=dict)
    responses: dict[str, httpx.Response] = field(default_factory=dict)
    posts: list[ReceivedRequest] = field(default_factory=list)
    feed: list[dict[str, Any]] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)

    def path(self, pattern: str, **ids: str) -> str:
        known = self.ids | ids
        return re.sub(r"\{(\w+)\}", lambda found: known[found[1]], pattern)

    async def send_call(
        self, call: str, body: Any = None, *, says: str = "", query: str = "", by_key: bool = False, **ids: str
    ) -> Any:
        method, _, pattern = call.partition(" ")
        headers = {"X-Api-Key": self.key} if by_key else self.owner.headers
        answer = await self.owner.raw.request(method, self.path(pattern, **ids) + query, json=body, headers=headers)
        self.responses.setdefault(call + says, answer)
        if answer.is_success and isinstance(got := answer.json(), dict):
            self.ids |= {name: value for name, value in got.items() if name.endswith("Id") and name not in ids}
        return answer.json()

    async def run(self, receiver: Receiver) -> None:
        await self.people()
        device = await create_device(self.owner)
        await self.device(device)
        async with self.service.feed(self.owner) as feed, device.online(self.service) as line:
            await line.report(temperature=21.5, mode="eco")
            await line.press_button(True)
            self.feed.append(await feed.wait_for("relay_changed", deviceId=device.device_id))
            await self.automation()
            await self.keys(line, receiver)
            await self.reads()
        await self.endings()

    async def people(self) -> None:
        tokens = await self.send_call("POST /auth/login", {"email": EMAIL, "password": PASSWORD})
        await self.send_call("POST /auth/refresh", {"refreshToken": tokens["refreshToken"]})
        await self.send_call("POST /auth/logout", {"refreshToken": tokens["refreshToken"]})
        await self.send_call("GET /auth/me")
        for role in ROLES:
            person = {"email": f"{role}@example.com".lower(), "name": role, "role": role, "password": PASSWORD}
            await self.send_call("POST /members", person)
        for call in ("GET /members", "GET /projects"):
            await self.send_call(call)
        await self.send_call("POST /projects", {"name": "Greenhouse"})
        await self.send_call("GET /catalog/boards")
        await self.send_call("GET /catalog/apps")

    async def device(self, device: Device) -> None:
        await self.send_call("POST /devices/register", SPARE)
        await self.send_call("GET /devices/{deviceId}", says=" when new")
        await self.send_call("POST /devices/{deviceId}/credentials")
        self.ids["deviceId"] = device.device_id
        await self.send_call("GET /devices")
        await self.send_call("PUT /devices/{deviceId}", {"name": "Pump", "tags": ["water"]})
        await self.send_call("POST /devices/{deviceId}/credentials/reveal", {"password": PASSWORD})
        await self.send_call("POST /devices/{deviceId}/credentials/reveal", {"password": "not this one"}, says=" wrongly")
        await self.send_call("GET /devices/{deviceId}/config")
        await self.send_call("POST /devices/{deviceId}/commands", {"name": "FLUSH", "label": "Flush", "requiresApproval": True})
        await self.send_call("PATCH /devices/{deviceId}/commands/{commandId}", {"label": "Flush it"})
        await self.send_call("GET /devices/{deviceId}/commands")

    async def automation(self) -> None:
        at = int(time.time()) + 3_600
        await self.send_call("POST /devices/{deviceId}/schedules", {"slot": 0, "onTs": at, "offTs": at + 60})
        self.ids["slot"] = "0"
        await self.send_call("PUT /devices/{deviceId}/schedules/{slot}", {"label": "Morning"})
        await self.send_call("PUT /devices/{deviceId}/schedules", {"slot": 0, "label": "Evening"})
        await self.send_call("GET /devices/{deviceId}/schedules")
        await self.send_call("GET /devices/{deviceId}/schedules/context")
        await self.send_call("DELETE /devices/{deviceId}/schedules/{slot}")
        await self.send_call("GET /devices/{deviceId}/schedules/history")
        rule = {"name": "Too warm", "conditions": [HOT], "action": {"command": "OFF"}}
        await self.send_call("POST /devices/{deviceId}/rules", rule)
        await self.send_call("POST /devices/{deviceId}/rules", rule | {"action": {"command": "FLUSH"}}, says=" for approval")
        await self.send_call("PATCH /devices/{deviceId}/rules/{ruleId}", {"priority": 5})
        await self.send_call("POST /devices/{deviceId}/rules/{ruleId}/test", {"readings": {"temperature": 31}})
        await self.send_call("GET /devices/{deviceId}/rules")
        await self.send_call("GET /devices/{deviceId}/rules/context")

    async def keys(self, line: DeviceConnection, receiver: Receiver) -> None:
        made = await self.send_call("POST /keys", {"name": "Robot"})
        self.key, key_id = made["key"], made["keyId"]
        requested = {"commands": ["ON", "FLUSH"], "apiKeyId": key_id}
        await self.send_call("POST /webhooks", {"keyId": key_id, "url": receiver.url})
        self.secrets.append(self.responses["POST /webhooks"].json()["secret"])
        await line.press_button(False)  # a key without a grant does not see it
        await line.drain_commands(self.owner)
        await self.send_call("POST /devices/{deviceId}/grants", requested)
        await self.send_call("POST /devices/{deviceId}/grants", requested | {"appliesVia": "project", "rateLimitPerMinute": 60})
        await self.send_call("PATCH /devices/{deviceId}/grants/{grantId}", {"rateLimitPerMinute": 30})
        await self.send_call("GET /devices/{deviceId}/grants")
        await self.send_call("GET /keys/{keyId}/grants")
        await self.send_call("GET /devices/{deviceId}/access", query=f"?cmd=ON&apiKeyId={key_id}")
        await line.report(temperature=22)
        await self.send_call("POST /devices/{deviceId}/command", {"cmd": "ON", "waitSeconds": 30}, by_key=True)
        await self.send_call("GET /devices/{deviceId}/executions/{executionId}")
        for decision in ("deny", "approve"):
            await self.send_call("POST /devices/{deviceId}/command", {"cmd": "FLUSH"}, says=" for approval", by_key=True)
            await self.send_call("GET /devices/{deviceId}/approvals", says=" while it waits")
            await self.send_call(f"POST /devices/{{deviceId}}/approvals/{{approvalId}}/{decision}")
            await self.send_call("GET /devices/{deviceId}/approvals/{approvalId}")
        await receiver.wait_for(2)
        self.posts = list(receiver.requests)

    async def reads(self) -> None:
        for call in (
            "GET /devices/{deviceId}",
            "GET /devices/{deviceId}/events",
            "GET /devices/{deviceId}/executions",
            "GET /keys",
            "GET /devices/{deviceId}/telemetry",
            "GET /devices/{deviceId}/telemetry/latest",
            "GET /approvals",
            "GET /devices/{deviceId}/approvals",
            "GET /events",
            "GET /webhooks",
        ):
            await self.send_call(call)
        await self.send_call("GET /devices/{deviceId}/telemetry", says="?step=", query="?metric=temperature&step=1m")
        await self.send_call("POST /webhooks/{webhookId}/rotate-secret")
        self.secrets.append(self.responses["POST /webhooks/{webhookId}/rotate-secret"].json()["secret"])
        await self.send_call("POST /webhooks/{webhookId}/ping")
        await self.send_call("PATCH /webhooks/{webhookId}", {"enabled": True})
        await self.owner.wait_until(self.path("/webhooks/{webhookId}/deliveries"), lambda made: len(made) >= 3)
        await self.send_call("GET /webhooks/{webhookId}/deliveries")

    async def list_mailed_codes(self) -> list[str]:
        """Without a mail server the service writes mails to its log, a moment later."""
        return re.findall(r"\b\d{6}\b", "".join(line for line in self.service.log().splitlines() if "mail" in line))

    async def endings(self) -> None:
        for call in (
            "DELETE /webhooks/{webhookId}",
            "DELETE /devices/{deviceId}/grants/{grantId}",
            "DELETE /devices/{deviceId}/rules/{ruleId}",
            "DELETE /devices/{deviceId}/commands/{commandId}",
            "PATCH /devices/{deviceId}/toggle",
            "POST /devices/{deviceId}/revoke",
            "DELETE /devices/{deviceId}",
        ):
            await self.send_call(call)
        await self.send_call("PATCH /keys/{keyId}", {"name": "Old robot"})
        await self.send_call("DELETE /keys/{keyId}")
        await self.send_call("POST /auth/password/request-otp")
        codes = await until(self.list_mailed_codes, bool)
        await self.send_call("POST /auth/change-password", {"otp": codes[-1], "newPassword": PASSWORD})
        await self.service.sign_in_again(self.owner)  # the change ends every session


@pytest.fixture(scope="module")
def story(running: Service) -> Story:
    async def run_story() -> Story:
        async with running.api() as owner, webhook_receiver(respond(204)) as receiver:
            story = Story(running, owner)
            await story.run(receiver)
            return story

    return asyncio.run(run_story())


@pytest.mark.parametrize("call", ANSWERS)
def test_the_answer_has_its_status_and_every_field_and_none_else(story: Story, call: str) -> None:
    status, wanted = ANSWERS[call]
    answer = story.responses[call]
    assert answer.status_code == status, answer.text
    assert shape_errors(answer.json(), wanted) == []


NOT_OF_SECTION_4 = (
    "GET /devices/{deviceId}/approvals/{approvalId}:",
    "POST /auth/login",
    "POST /auth/refresh",
    "POST /auth/logout",
    "GET /catalog",
    "/command",
    "/telemetry",
    "/executions",
    "/access",
    "GET /devices:",
)
SESSION_ONLY = [
    call
    for call in ANSWERS
    if " for " not in call and "?" not in call and not any(word in f"{call}:" for word in NOT_OF_SECTION_4)
] + [
    "POST /devices/{deviceId}/commands",
    "PATCH /devices/{deviceId}/commands/{commandId}",
    "DELETE /devices/{deviceId}/commands/{commandId}",
]


@pytest.fixture(scope="module")
def key(story: Story) -> dict[str, str]:
    """A key that is granted everything on the whole project."""
    with httpx.Client(base_url=f"{story.service.url}/api/v1", headers=story.owner.headers, timeout=TIMEOUT_S) as http:
        story.ids["deviceId"] = http.post("/devices/register", json=SPARE).json()["deviceId"]
        made = http.post("/keys", json={"name": "Almighty"}).json()
        requested = {"commands": ["*"], "apiKeyId": made["keyId"], "appliesVia": "project", "scope": "FULL"}
        assert http.post(f"/devices/{story.ids['deviceId']}/grants", json=requested).status_code == 201
        return {"X-Api-Key": made["key"]}


@pytest.mark.parametrize("call", SESSION_ONLY)
def test_an_api_key_is_not_accepted_on_these_endpoints_whatever_the_key_is_granted(
    story: Story, key: dict[str, str], call: str
) -> None:
    method, _, pattern = call.partition(" ")
    where = f"{story.service.url}/api/v1{story.path(pattern)}"
    for headers in (key, {"Authorization": f"Bearer {key['X-Api-Key']}"}):
        answer = httpx.request(method, where, headers=headers, json={} if method != "GET" else None, timeout=TIMEOUT_S)
        assert (answer.status_code, answer.json()["error"]) == (403, "SESSION_REQUIRED")
    nobody = httpx.request(method, where, json={} if method != "GET" else None, timeout=TIMEOUT_S)
    assert (nobody.status_code, nobody.json()["error"]) == (401, "UNAUTHENTICATED")


@pytest.mark.parametrize("call", ["/auth/login", "/keys", "/devices", "/events", "/webhooks"])
def test_all_endpoints_live_under_the_path_prefix_api_v1(story: Story, call: str) -> None:
    assert httpx.get(story.service.url + call, headers=story.owner.headers, timeout=TIMEOUT_S).status_code == 404
    assert httpx.get(f"{story.service.url}/api/v1{call}", headers=story.owner.headers, timeout=TIMEOUT_S).status_code in (
        200,
        405,
    )


@pytest.mark.parametrize("path", ["/accounts", "/users", "/auth/register", "/auth/signup", "/auth/sign-up"])
def test_new_accounts_cannot_be_created_through_the_api(story: Story, path: str) -> None:
    person = {"email": "eve@example.com", "password": PASSWORD, "name": "Eve"}
    assert httpx.post(f"{story.service.url}/api/v1{path}", json=person, timeout=TIMEOUT_S).status_code == 404


def test_the_device_record_exists_with_no_mqtt_credentials(story: Story) -> None:
    new = story.responses["GET /devices/{deviceId} when new"].json()
    assert (new["deviceStatus"], new["enabled"], new["isOnline"]) == ("PENDING", False, False)
    assert (new["relayState"], new["lastSeen"], new["deviceTypeId"]) == (None, None, None)
    assert story.responses["GET /devices/{deviceId}"].json()["relayState"] is True


def test_credentials_are_reshown_whole_and_the_config_is_without_the_password(story: Story) -> None:
    shown = story.responses["POST /devices/{deviceId}/credentials/reveal"].json()
    assert re.fullmatch(r"[A-Za-z0-9]{32}", shown["mqttPassword"])
    assert (shown["mqttHost"], shown["mqttPort"], shown["wsPort"]) == (
        "127.0.0.1",
        story.service.mqtt_port,
        story.service.ws_port,
    )
    assert shown["mqttPassword"] in shown["configBlock"]
    assert shown["mqttUsername"] in shown["configBlock"]
    assert shown["mqttPassword"] not in story.responses["GET /devices/{deviceId}/config"].text


def test_reveal_without_the_correct_password_is_refused_and_every_call_is_in_the_devices_audit_log(story: Story) -> None:
    refused = story.responses["POST /devices/{deviceId}/credentials/reveal wrongly"]
    assert (refused.status_code, refused.json()["error"]) == (403, "PASSWORD_MISMATCH")
    log = [each["eventType"] for each in story.responses["GET /devices/{deviceId}/events"].json()]
    assert "credentials_revealed" in log
    assert [each for each in log if "reveal" in each and each != "credentials_revealed"], log


def test_on_command_and_off_command_default_to_plain_on_and_off(story: Story) -> None:
    made = story.responses["POST /devices/{deviceId}/schedules"].json()
    plain_on, plain_off = ({"command": word, "params": None, "channel": 1} for word in ("ON", "OFF"))
    assert (made["onCommand"], made["offCommand"]) == (plain_on, plain_off)
    assert (made["slot"], made["status"], made["enabled"]) == (0, "PENDING", True)


def test_a_command_flagged_requires_approval_cannot_be_the_action_of_a_rule(story: Story) -> None:
    refused = story.responses["POST /devices/{deviceId}/rules for approval"]
    assert (refused.status_code, refused.json()["error"]) == (400, "COMMAND_NEEDS_APPROVAL")


def test_a_grant_is_scoped_to_one_device_or_to_the_whole_project_and_both_kinds_are_listed_together(story: Story) -> None:
    listed = story.responses["GET /devices/{deviceId}/grants"].json()
    assert sorted(each["appliesVia"] for each in listed) == ["device", "project"]
    assert {each["subject"]["type"] for each in listed} == {"apikey"}


def test_a_newly_created_key_has_no_device_access_until_a_grant_exists_for_it(story: Story) -> None:
    with httpx.Client(base_url=f"{story.service.url}/api/v1", headers=story.owner.headers, timeout=TIMEOUT_S) as http:
        device_id = http.post("/devices/register", json=SPARE).json()["deviceId"]
        assert http.post(f"/devices/{device_id}/credentials").status_code == 200
        robot = {"X-Api-Key": http.post("/keys", json={"name": "Fresh"}).json()["key"], "Authorization": ""}
        assert http.get("/devices", headers=robot).json() == []
        for command in ("ON", "STATUS"):
            refused = http.post(f"/devices/{device_id}/command", json={"cmd": command}, headers=robot)
            assert (refused.status_code, refused.json()["error"]) == (403, "GRANT_MISSING")


def test_a_command_that_needs_approval_waits_with_pending_and_is_not_executed(story: Story) -> None:
    [waiting] = story.responses["GET /devices/{deviceId}/approvals while it waits"].json()
    assert (waiting["cmd"], waiting["status"], waiting["executionId"]) == ("FLUSH", "PENDING", None)
    past = {each["status"]: each for each in story.responses["GET /devices/{deviceId}/approvals"].json()}
    assert set(past) == {"DENIED", "APPROVED"}
    ran = [each for each in story.responses["GET /devices/{deviceId}/executions"].json()["data"] if each["cmd"] == "FLUSH"]
    assert [each["executionId"] for each in ran] == [past["APPROVED"]["executionId"]]


def test_the_secret_is_returned_once_at_creation_and_never_again(story: Story) -> None:
    assert story.secrets[0] != story.secrets[1]
    for call in ("GET /webhooks", "PATCH /webhooks/{webhookId}", "GET /webhooks/{webhookId}/deliveries", "GET /events"):
        assert not [secret for secret in story.secrets if secret in story.responses[call].text]


def test_every_delivery_carries_the_headers_the_envelope_and_the_signature_of_its_raw_body(story: Story) -> None:
    assert {post.envelope["type"] for post in story.posts} >= {"telemetry", "relay_changed"}
    for post in story.posts:
        assert post.headers["content-type"] == "application/json"
        assert set(post.envelope) == {"id", "type", "createdAt", "data"}
        assert post.headers["x-service-event"] == post.envelope["type"] == post.envelope["data"]["type"]
        assert re.fullmatch(r"whd_[a-z0-9]{20,}", post.envelope["id"])
        assert post.headers["x-service-delivery"] == post.envelope["id"]
        assert ISO.fullmatch(post.envelope["createdAt"])
        signature = hmac.new(story.secrets[0].encode(), post.body, hashlib.sha256).hexdigest()
        assert post.headers["x-service-signature"] == f"sha256={signature}"
    assert len({post.envelope["id"] for post in story.posts}) == len(story.posts)


def test_a_key_with_no_grant_yields_no_deliveries(story: Story) -> None:
    relays = [post.envelope["data"]["relay"] for post in story.posts if post.envelope["type"] == "relay_changed"]
    assert relays == ["ON"], "the change before the grant was not sent"


def test_the_payload_of_relay_changed_is_the_same_object_on_the_feed_and_in_a_webhook(story: Story) -> None:
    [reported] = story.feed
    [sent] = [post.envelope["data"] for post in story.posts if post.envelope["type"] == "relay_changed"]
    wanted = {
        "type": "=relay_changed",
        "eventId": "string",
        "accountId": "string",
        "deviceId": "string",
        "timestamp": "ms",
        "relay": "=ON",
        "channel": "integer",
        "triggeredBy": "string",
    }
    assert shape_errors(reported, wanted | {"cursor": "string"}) == []
    assert shape_errors(sent, wanted) == []
    assert (reported["triggeredBy"], sent["triggeredBy"]) == ("device", "apikey")


REFUSED: list[tuple[str, str, Any, int, str]] = [
    ("at most 5 slots, numbered 0 to 4", "POST /devices/{deviceId}/schedules", {"slot": 5, **LATER}, 400, "VALIDATION_ERROR"),
    ("at most 5 slots, numbered 0 to 4", "PUT /devices/{deviceId}/schedules/5", {}, 400, "VALIDATION_ERROR"),
    (
        "onTs and offTs are seconds",
        "POST /devices/{deviceId}/schedules",
        {"slot": 0, "onTs": 1_900_000_000_000, "offTs": 1_900_000_060_000},
        400,
        "VALIDATION_ERROR",
    ),
    (
        "a schedule action flagged requiresApproval cannot be used",
        "POST /devices/{deviceId}/schedules",
        {"slot": 0, **LATER, "onCommand": {"command": "DRAIN"}},
        400,
        "COMMAND_NEEDS_APPROVAL",
    ),
    (
        "only a metric that the device has already reported",
        "POST /devices/{deviceId}/rules",
        {"name": "R", "conditions": [{"metric": "never", "comparator": ">", "value": 1}], "action": {"command": "ON"}},
        400,
        "UNKNOWN_METRIC",
    ),
    (
        "exactly one of apiKeyId or membershipId: neither",
        "POST /devices/{deviceId}/grants",
        {"commands": ["ON"]},
        400,
        "VALIDATION_ERROR",
    ),
    (
        "exactly one of apiKeyId or membershipId: both",
        "POST /devices/{deviceId}/grants",
        {"commands": ["ON"], "apiKeyId": "key_x", "membershipId": "mbr_x"},
        400,
        "VALIDATION_ERROR",
    ),
    ("commands array of string (required)", "POST /devices/{deviceId}/grants", {"apiKeyId": "key_x"}, 400, "VALIDATION_ERROR"),
    ("limit at most 200", "GET /events?limit=201", None, 400, "VALIDATION_ERROR"),
    ("a command is known", "POST /devices/{deviceId}/command", {"cmd": "NOPE"}, 400, "UNKNOWN_COMMAND"),
    ("parameters fit", "POST /devices/{deviceId}/command", {"cmd": "ON", "params": {"x": 1}}, 400, "INVALID_PARAMS"),
    ("a typo is never silently ignored", "POST /devices/{deviceId}/command", {"cmd": "ON", "ttl": 1}, 400, "VALIDATION_ERROR"),
    ("the board and the app are asked for", "POST /devices/register", {"name": "Pump"}, 400, "VALIDATION_ERROR"),
    ("there is no such device", "GET /devices/dev_00000000000000000000", None, 404, "NOT_FOUND"),
    ("there are none yet", "POST /devices/{deviceId}/credentials/reveal", {"password": PASSWORD}, 404, "NOT_FOUND"),
    (
        "a webhook's key is one of GET /keys",
        "POST /webhooks",
        {"keyId": "key_x", "url": "https://example.com"},
        400,
        "VALIDATION_ERROR",
    ),
]


@pytest.mark.parametrize(("says", "call", "body", "status", "code"), REFUSED, ids=[f"{row[0]}: {row[1]}" for row in REFUSED])
def test_the_request_is_refused_because(story: Story, says: str, call: str, body: Any, status: int, code: str) -> None:
    with httpx.Client(base_url=f"{story.service.url}/api/v1", headers=story.owner.headers, timeout=TIMEOUT_S) as http:
        device_id = http.post("/devices/register", json=SPARE).json()["deviceId"]
        drain = {"name": "DRAIN", "label": "Drain", "requiresApproval": True}
        assert http.post(f"/devices/{device_id}/commands", json=drain).status_code == 201
        method, _, pattern = call.partition(" ")
        answer = http.request(method, pattern.replace("{deviceId}", device_id), json=body)
    problem = answer.json()
    assert (answer.status_code, problem["error"]) == (status, code), says
    assert set(problem) <= {"error", "message", "details", "retryAfter", "requestId"}
    assert answer.headers["X-Request-Id"] == problem["requestId"]


@pytest.mark.parametrize(("role", "status"), [("Admin", 200), ("Member", 403), ("Viewer", 403)])
def test_a_member_or_viewer_calling_request_otp_gets_403(story: Story, role: str, status: int) -> None:
    with httpx.Client(base_url=f"{story.service.url}/api/v1", timeout=TIMEOUT_S) as http:
        person = {"email": f"{role}@example.com".lower(), "password": PASSWORD}
        signed_in = http.post("/auth/login", json=person).json()
        assert signed_in["user"]["role"] == role
        me = {"Authorization": f"Bearer {signed_in['accessToken']}"}
        assert http.post("/auth/password/request-otp", headers=me).status_code == status


def test_revoking_a_refresh_token_stops_its_exchange_and_the_access_token_stays_valid(story: Story) -> None:
    with httpx.Client(base_url=f"{story.service.url}/api/v1", timeout=TIMEOUT_S) as http:
        tokens = http.post("/auth/login", json={"email": EMAIL, "password": PASSWORD}).json()
        assert tokens["expiresIn"] == 15 * 60
        spent = {"refreshToken": tokens["refreshToken"]}
        assert http.post("/auth/logout", json=spent).json() == {"ok": True}
        assert http.post("/auth/refresh", json=spent).status_code == 401
        me = http.get("/auth/me", headers={"Authorization": f"Bearer {tokens['accessToken']}"})
        assert (me.status_code, me.json()["email"]) == (200, EMAIL)


def test_any_device_is_revoked_also_one_without_credentials_and_one_that_is(story: Story) -> None:
    with httpx.Client(base_url=f"{story.service.url}/api/v1", headers=story.owner.headers, timeout=TIMEOUT_S) as http:
        device_id = http.post("/devices/register", json=SPARE).json()["deviceId"]
        for _ in range(2):
            assert http.post(f"/devices/{device_id}/revoke").json() == {"ok": True, "deviceStatus": "REVOKED"}
