"""Records an answer of each operation for each status and error code: the examples of the OpenAPI document.

    make examples

The program runs inside this process, with a clock that stands still and ids that count, so that the same program gives the same
examples. What differs in each run, and what would look like somebody's secret, is replaced. A long list is cut after two entries.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pyotp

from domain.kernel.caller import Role
from domain.kernel.ids import IdPrefix
from domain.notifications.fanout import GATHER_MS
from security.access_table import rows, target_of
from security.calls import BODIES, Ids
from security.people import gather
from support.authenticator import SoftwareAuthenticator
from support.described import path_of
from support.http import PASSWORD
from support.in_process_app import ApiCaller, InProcessApp, in_process_app
from support.waiting import until

FILE = Path(__file__).resolve().parents[2] / "src" / "adapters" / "http" / "documents" / "recorded.json"
HOST = "latchboard.example.com"
URL = f"https://{HOST}"
MAX_SHOWN = 2
MAX_TEXT = 600
ADA, GRACE = "ada@example.com", "grace@example.com"

PLACEHOLDERS: dict[str, Any] = {
    "accessToken": "<access token>",
    "refreshToken": "<refresh token>",
    "deviceToken": "<token of this device>",
    "challengeToken": "<token of this sign-in>",
    "claimToken": "<claim token>",
    "token": "lbs_EXAMPLE",
    "key": "sk_live_EXAMPLE",
    "mqttPassword": "<MQTT password>",
    "secret": "<secret>",
    "otpauthUri": "otpauth://totp/Latchboard:ada%40example.com?secret=EXAMPLE&issuer=Latchboard",
    "qrSvg": "<svg></svg>",
    "qrRows": ["11111110", "10000010"],
    "recoveryCodes": ["<recovery code>"],
    "challenge": "<challenge>",
    "publicKey": "<public key>",
    "userAgent": "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0",
    "requestId": "req_00000000000000000001",
    "link": f"{URL}/#/invitation/EXAMPLE",
}
"""By the name of a field, where its value is text or a list of texts."""
PREFIXES = {"prefix", "secretPrefix", "previousPrefix", "lastUsedPrefix"}
"""The visible beginnings of secrets."""
SEALED = re.compile(r"eyJ[\w.-]{20,}|[\w-]{43,}")
"""Signed tokens and the like inside a text."""
ROOT = re.compile(r"https?://(latchboard\.test|127\.0\.0\.1:\d+)")


FULL_LISTS = {
    "/invitations": "{invitationId}",
    "/groups": "{groupId}",
    "/groups/{groupId}/grants": "{groupId}{grantId}",
    "/provisioning-codes": "{codeId}",
    "/device-types": "{deviceTypeId}",
    "/devices/{deviceId}/schedules": "{deviceId}{slot}",
    "/devices/{deviceId}/rules": "{deviceId}{ruleId}",
    "/devices/{deviceId}/approvals": "{deviceId}{approvalId}",
    "/approvals": "{deviceId}{approvalId}",
    "/webhooks": "{webhookId}",
    "/webhooks/{webhookId}/deliveries": "{webhookId}{deliveryId}",
}
"""Lists that are empty when their row is called, and what must be there first."""


class CountingIds:
    """Ids and secrets that are the same in each run."""

    def __init__(self, *_: Any) -> None:
        self.counts: Counter[str] = Counter()

    def _next(self, kind: str) -> int:
        self.counts[kind] += 1
        return self.counts[kind]

    def new_id(self, prefix: IdPrefix) -> str:
        return f"{prefix}_{self._next(prefix):020}"

    def random_digits(self, count: int) -> str:
        return f"{self._next('digits'):0{count}}"

    def random_alphanumeric(self, length: int) -> str:
        return f"{self._next('text'):0{length}}"

    def random_bytes(self, size: int) -> bytes:
        return hashlib.shake_256(b"%d" % self._next("bytes")).digest(size)


def presentable(value: Any, field: str = "") -> Any:
    """Without what differs in each run."""
    if field in PLACEHOLDERS and isinstance(value, str | list):
        return PLACEHOLDERS[field]
    if field in PREFIXES and isinstance(value, str):
        return f"{value[: value.rfind('_') + 1]}EXAM"
    if isinstance(value, dict):
        return {name: presentable(child, name) for name, child in value.items()}
    if isinstance(value, list):
        return [presentable(child) for child in (value[:MAX_SHOWN] if any(isinstance(one, dict) for one in value) else value)]
    if isinstance(value, str):
        text = SEALED.sub("EXAMPLE", ROOT.sub(URL, value))
        return text if len(text) <= MAX_TEXT else text[: text.rfind("\n", 0, MAX_TEXT) + 1]
    return value


class Recorder:
    def __init__(self) -> None:
        self.answers: dict[str, dict[str, Any]] = {}

    def record(self, answer: httpx.Response) -> None:
        """Keep the answer, unless there is one of its kind that says something."""
        path = path_of(answer.request.url.path)
        if path is None or not answer.content:
            return
        kind = answer.headers["content-type"].partition(";")[0]
        body = answer.json() if kind == "application/json" else answer.text
        key = str(answer.status_code)
        if answer.is_error:
            key = f"{key} {body['error']}"
        elif kind != "application/json":
            key = f"{key} {kind}"
        found = self.answers.setdefault(f"{answer.request.method} {path}", {})
        if key not in found or found[key] == []:
            found[key] = presentable(body)


async def record() -> dict[str, dict[str, Any]]:
    """By operation, then by status, with the code of an error or the content type of what is not JSON."""
    recorder = Recorder()
    with tempfile.TemporaryDirectory() as folder, patch("app.wiring.adapters.RandomIdAndSecretGenerator", CountingIds):
        for name, scenes in (("scenes", play_scenes), ("rows", call_every_row)):
            async with in_process_app(Path(folder) / name, mqtt_public_host=HOST, public_url=URL) as app:
                await scenes(app)
                for answer in app.responses:
                    recorder.record(answer)
    return {call: dict(sorted(answers.items())) for call, answers in sorted(recorder.answers.items())}


async def call_every_row(app: InProcessApp) -> None:
    """Each row of the access table by those who may not, with input that is wrong, and by the Owner."""
    people = await gather(app)
    owner = people.callers["Owner"]
    service = await owner.send_ok(
        "POST", "/service-sessions", BODIES["POST /service-sessions"]({}) | {"operations": ["network:read"]}
    )
    pipeline = app.caller(Authorization=f"Bearer {service['token']}")
    refused = [app.caller(), people.strangers["an expired token"], people.callers["key"], pipeline, people.callers["Viewer"]]
    for row in rows():
        ids = await people.ours.create(row)
        for caller in refused:
            if (await call(caller, row, ids)).is_success:
                ids = await people.ours.create(row)
        method, path = target_of(row)
        place = re.sub(r"\{(\w+)\}", lambda part: ids[part[1]], path)  # noqa: B023
        nowhere = re.sub(r"\{(\w+)\}", lambda part: _unknown(ids[part[1]]), path)  # noqa: B023
        await owner.send(
            method,
            place.partition("?")[0],
            {"colour": "red"} if method in ("POST", "PUT", "PATCH") else None,
            params={"colour": "red"},
        )
        await owner.send(method, nowhere, BODIES[row](ids) if row in BODIES else None)
        if method in ("POST", "PUT", "PATCH"):
            await app.http.request(
                method, f"/api/v1{place}", content=b"name=Pump", headers={**owner.headers, "Content-Type": "text/plain"}
            )
            await app.http.request(
                method, f"/api/v1{place}", content=b"{", headers={**owner.headers, "Content-Type": "application/json"}
            )
        await call(owner, row, ids)
    for path, needs in FULL_LISTS.items():
        ids = await people.ours.create(needs)
        await owner.send_ok("GET", path.format(**ids))
    ids = await people.ours.create("{deviceId}{slot}")
    await owner.send_ok("DELETE", "/devices/{deviceId}/schedules/{slot}".format(**ids))
    await owner.send_ok("GET", "/devices/{deviceId}/schedules/history".format(**ids))


def _unknown(ident: str) -> str:
    return ident.replace("_0", "_9")


async def call(caller: ApiCaller, row: str, ids: Ids) -> httpx.Response:
    method, path = target_of(row)
    path = re.sub(r"\{(\w+)\}", lambda part: ids[part[1]], path)
    return await caller.send(method, path, BODIES[row](ids) if row in BODIES else None)


async def play_scenes(app: InProcessApp) -> None:
    """What takes several steps, each as a person does it."""
    account = await app.create_account(ADA)
    await app.create_member(account, GRACE, Role.ADMIN)
    ada, grace = await app.sign_in(ADA), await app.sign_in(GRACE)
    for scene in (run_a_device, claim_a_device, decide_by_link, keep_channels, invite, change_passwords, add_factors, unlock):
        await scene(app, ada if scene is not decide_by_link else grace)


async def run_a_device(app: InProcessApp, ada: ApiCaller) -> None:
    pump = (await ada.send_ok("POST", "/devices/register", {"name": "Pump 1", "boardType": "ESP32", "appType": "PUMP"}))[
        "deviceId"
    ]
    place = f"/devices/{pump}"
    await ada.send_ok("POST", f"{place}/credentials", {})
    await app.report(pump, temperature=31.4, humidity=40)
    await ada.send_ok("GET", f"{place}/telemetry")
    await ada.send_ok("GET", f"{place}/telemetry/latest")
    for kind in ("csv", "ndjson"):
        await ada.send("GET", f"{place}/telemetry/export?format={kind}")
    service = await ada.send_ok("POST", "/service-sessions", BODIES["POST /service-sessions"]({}))
    await ada.send_ok("GET", "/service-sessions")
    await ada.send_ok("GET", f"/service-sessions/{service['sessionId']}")
    for each in await ada.send_ok("GET", "/auth/sessions"):
        await ada.send_ok("GET", f"/auth/sessions/{each['sessionId']}")
    await ada.send_ok("DELETE", f"/service-sessions/{service['sessionId']}")
    await ada.send_ok("GET", f"/telemetry/series?deviceId={pump}&metric=temperature")


async def claim_a_device(app: InProcessApp, ada: ApiCaller) -> None:
    code = await ada.send_ok("POST", "/provisioning-codes", BODIES["POST /provisioning-codes"]({}) | {"requiresApproval": False})
    await app.caller().send_ok("POST", "/provisioning/claim", {"code": code["code"], "hardwareId": "24:6F:28:AA:01:02"})


async def decide_by_link(app: InProcessApp, grace: ApiCaller) -> None:
    pump = (await grace.send_ok("POST", "/devices/register", {"name": "Gate", "boardType": "ESP32", "appType": "PUMP"}))[
        "deviceId"
    ]
    await grace.send_ok("PUT", "/auth/notifications", {"topics": ["APPROVALS"], "mail": True})
    place = f"/devices/{pump}"
    await grace.send_ok("POST", f"{place}/commands", {"name": "OPEN", "label": "Open", "requiresApproval": True})
    await grace.send_ok("POST", f"{place}/credentials", {})
    ada = await app.sign_in(ADA)
    key = await ada.send_ok("POST", "/keys", {"name": "Robot"})
    await ada.send_ok("POST", f"{place}/grants", {"commands": ["*"], "apiKeyId": key["keyId"]})
    await ada.send_ok("GET", f"/keys/{key['keyId']}/grants")
    robot = app.caller(X_Api_Key=key["key"])
    for name in ("ON", "OFF"):
        await ada.send_ok("POST", f"{place}/commands", {"name": name, "label": name.capitalize(), "requiresApproval": True})
        await robot.send_ok("POST", f"{place}/command/{name.lower()}")
    phone = SoftwareAuthenticator(app.program.settings.effective_public_url)
    options = (await grace.send_ok("POST", "/auth/passkeys/options"))["publicKey"]
    made = await grace.send_ok("POST", "/auth/passkeys", {"name": "Phone", "passkey": phone.create(options)})
    await grace.send_ok("GET", f"/auth/passkeys/{made['passkeyId']}")
    asked = await robot.send_ok("POST", f"{place}/command", {"cmd": "ON"})
    await robot.send_ok("POST", f"{place}/approvals/{asked['approvalId']}/withdraw", {})
    door, delivery = app.caller(), app.services.notifications.delivery
    for decision in ("approve", "deny"):
        app.clock.forward(GATHER_MS)  # so soon after the one before it would be told with others
        while await delivery.send_due():
            pass
        app.mail.mails.clear()
        await robot.send_ok("POST", f"{place}/command", {"cmd": "OPEN", "reason": "A truck is here"})
        while await delivery.send_due():
            pass
        written = " ".join(text for to, _, text in app.mail.mails if to == GRACE)
        token = re.findall(rf"{re.escape(URL)}/#/decide/(\S+)", written)[-1]
        await door.send_ok("POST", "/approval-links/preview", {"token": token})
        asked = (await door.send_ok("POST", "/approval-links/passkey-options", {"token": token}))["publicKey"]
        await door.send_ok("POST", f"/approval-links/{decision}", {"token": token, "passkey": phone.get(asked)})


async def keep_channels(app: InProcessApp, ada: ApiCaller) -> None:
    body = {"name": "Phone", "ntfy": {"url": "https://ntfy.sh", "topic": "latch-example"}}
    channel = (await ada.send("POST", "/auth/notifications/channels", body)).json().get("channelId")
    place = f"/auth/notifications/channels/{channel}"
    await ada.send("GET", "/auth/notifications/channels")
    await ada.send("GET", place)
    await ada.send("POST", f"{place}/test")
    await ada.send("POST", f"{place}/confirm")
    await ada.send("DELETE", place)


async def invite(app: InProcessApp, ada: ApiCaller) -> None:
    made = await ada.send_ok("POST", "/invitations", {"email": "linus@example.com", "name": "Linus", "role": "Viewer"})
    token = made["link"].rpartition("/")[2]
    await app.caller().send("POST", "/invitations/preview", {"token": token})
    await app.caller().send("POST", "/invitations/accept", {"token": token, "password": PASSWORD})


async def change_passwords(app: InProcessApp, ada: ApiCaller) -> None:
    await ada.send("POST", "/auth/password/request-otp")
    [code] = re.findall(r"\b\d{6}\b", app.mail.mails[-1][2])[:1] or ["000000"]
    await ada.send("POST", "/auth/change-password", {"otp": code, "newPassword": PASSWORD + " 2"})
    tokens = await app.caller().send("POST", "/auth/login", {"email": ADA, "password": PASSWORD + " 2"})
    again = app.caller(Authorization=f"Bearer {tokens.json().get('accessToken')}")
    await again.send("POST", "/auth/password/change", {"currentPassword": PASSWORD + " 2", "newPassword": PASSWORD})
    other = await app.sign_in(ADA)
    await app.sign_in(ADA)
    sessions = await other.send_ok("GET", "/auth/sessions")
    ended = next(each["sessionId"] for each in sessions if not each["current"])
    await other.send_ok("DELETE", f"/auth/sessions/{ended}")


async def add_factors(app: InProcessApp, _: ApiCaller) -> None:
    ada = await app.sign_in(ADA)
    setup = await ada.send_ok("POST", "/auth/second-factor/totp")

    def code() -> str:
        app.clock.forward(seconds=30)
        return pyotp.TOTP(setup["secret"]).at(app.clock.now_ms() // 1000)

    await ada.send("POST", "/auth/second-factor/totp/confirm", {"code": code()})
    phone = SoftwareAuthenticator(app.program.settings.effective_public_url)
    await ada.send("POST", "/auth/step-up", {"totp": code()})
    options = (await ada.send_ok("POST", "/auth/passkeys/options"))["publicKey"]
    added = (await ada.send("POST", "/auth/passkeys", {"name": "Phone", "passkey": phone.create(options)})).json()
    await ada.send("GET", "/auth/passkeys")
    await ada.send("GET", "/auth/second-factor")
    await ada.send("POST", "/auth/step-up/passkey-options")
    login = (await app.caller().send("POST", "/auth/login", {"email": ADA, "password": PASSWORD})).json()
    await app.caller().send("POST", "/auth/login/second-factor", {"challengeToken": login["challengeToken"], "totp": code()})
    asked = (await app.caller().send_ok("POST", "/auth/login/passkey/options", {}))["publicKey"]
    await app.caller().send("POST", "/auth/login/passkey", {"passkey": phone.get(asked)})
    await ada.send("POST", "/auth/step-up", {"totp": code()})
    await ada.send("POST", "/auth/second-factor/recovery-codes")
    await ada.send("DELETE", f"/auth/passkeys/{added.get('passkeyId')}")
    await ada.send("DELETE", "/auth/second-factor/totp")
    setup = await ada.send_ok("POST", "/auth/second-factor/totp")
    await ada.send("POST", "/auth/second-factor/totp/confirm", {"code": code()})
    await ada.send("POST", "/auth/step-up", {"totp": code()})
    await ada.send("DELETE", "/auth/second-factor")


async def unlock(app: InProcessApp, _: ApiCaller) -> None:
    door = app.caller()
    for _guess in range(12):
        await door.send("POST", "/auth/login", {"email": ADA, "password": "a guess"})
    await door.send_ok("POST", "/auth/unlock/request", {"email": ADA})
    await until(lambda: asyncio.sleep(0, app.program.adapters.mail_queue.pending), lambda pending: pending == 0)
    [token] = re.findall(r"/account/unlock\?token=(\w+)", app.mail.mails[-1][2])
    await door.send_ok("POST", "/auth/unlock", {"token": token})


def shape(value: Any) -> Any:
    """The names of the fields and the kinds of the values; of a list, those of its first entry."""
    if isinstance(value, dict):
        return {name: shape(child) for name, child in value.items()}
    if isinstance(value, list):
        return [shape(child) for child in value[:1]]
    return type(value).__name__


if __name__ == "__main__":
    made = asyncio.run(record())
    FILE.write_text(json.dumps(made, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"{sum(map(len, made.values()))} answers of {len(made)} operations are in {FILE}\n")
