"""Whoever sends the example of a request from the document, with ids of their own in it, is not refused."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

from adapters.http.documents import examples
from domain.kernel.clock import DAY_MS, to_iso
from support.in_process_app import ApiCaller, InProcessApp, in_process_app

OWNER = examples.REQUEST_EXAMPLES["LoginRequest"]
REFUSED_SECRETS = {
    "refreshTokens": "UNAUTHENTICATED",
    "unlockLogin": "LINK_INVALID",
    "changePasswordByCode": "OTP_INVALID",
    "loginWithSecondFactor": "CHALLENGE_EXPIRED",
    "confirmPresence": "PASSWORD_MISMATCH",
    "confirmTotp": "NOT_FOUND",
    "previewInvitation": "LINK_INVALID",
    "acceptInvitation": "LINK_INVALID",
    "createPasskeyLoginOptions": "CHALLENGE_EXPIRED",
    "loginWithPasskey": "PASSKEY_REFUSED",
    "createPasskey": "PASSKEY_REFUSED",
    "claimDevice": "PROVISIONING_CODE_INVALID",
    "previewLinkedApproval": "LINK_INVALID",
    "createLinkPasskeyOptions": "LINK_INVALID",
    "approveLinkedApproval": "LINK_INVALID",
    "denyLinkedApproval": "LINK_INVALID",
    "withdrawCommand": "NOT_OWN_REQUEST",
}
"""Operations whose example has a token or a code that only the service can give, and what it says of a wrong one."""
LAST = "changePassword"
"""It ends the session."""
EXAMPLE_IDS = {
    "deviceId": examples.DEVICE_ID,
    "keyId": examples.KEY_ID,
    "projectId": examples.PROJECT_ID,
    "deviceTypeId": examples.DEVICE_TYPE_ID,
    "membershipId": examples.MEMBERSHIP_ID,
}
"""Those that a body names."""
UNITS = count()


async def test_every_example_of_a_request_is_accepted(tmp_path: Path) -> None:
    async with in_process_app(tmp_path) as app:
        email, password = OWNER["email"], OWNER["password"]
        await app.services.operator.create_account(name="Engines", email=email, password=password, owner_name="Ada")
        tokens = await app.caller().send_ok("POST", "/auth/login", OWNER)
        owner = app.caller(Authorization=f"Bearer {tokens['accessToken']}")
        requests = await request_examples(app)
        assert len(requests) > 50
        requests.sort(key=lambda request: request[0] == LAST)
        refused = {}
        for name, method, path, body in requests:
            ids = await furnish(app, owner)
            if "/groups/" in path:
                ids["grantId"] = ids["groupGrantId"]
            answer = await owner.send(method, path.format(**ids), put_ids(body, ids))
            if not answer.is_success:
                refused[name] = answer.json()["error"]
        assert refused == REFUSED_SECRETS


async def test_an_expiry_in_the_document_is_thirty_days_ahead_however_long_the_service_runs(tmp_path: Path) -> None:
    async with in_process_app(tmp_path) as app:
        for _ in range(2):
            bodies = {name: body for name, _, _, body in await request_examples(app)}
            for name in ("createServiceSession", "createProvisioningCode", "updateGrant"):
                [expiry] = [value for field, value in bodies[name].items() if field == "expiresAt"]
                assert expiry == to_iso(app.clock.now_ms() // DAY_MS * DAY_MS + 30 * DAY_MS)
            app.clock.forward(days=400)


async def request_examples(app: InProcessApp) -> list[tuple[str, str, str, Any]]:
    """Name, method, path and body."""
    paths = (await app.http.get("/openapi.json")).json()["paths"]
    return [
        (operation["operationId"], method.upper(), path, content["example"])
        for path, operations in paths.items()
        for method, operation in operations.items()
        for kind, content in operation.get("requestBody", {}).get("content", {}).items()
        if kind == "application/json"
    ]


def put_ids(body: Any, ids: dict[str, str]) -> Any:
    text = json.dumps(body).replace("grace@example.com", f"{ids['deviceId']}@example.com")
    for name, example in EXAMPLE_IDS.items():
        text = text.replace(example, ids[name])
    return json.loads(text)


async def furnish(app: InProcessApp, owner: ApiCaller) -> dict[str, str]:
    """A device with one of everything, and the ids; all of them are new."""
    made: dict[str, str] = {"slot": "0"}

    async def create(path: str, **body: Any) -> dict[str, str]:
        answer = await owner.send_ok("POST", path.format(**made), body)
        made.update({name: value for name, value in answer.items() if name.endswith("Id")})
        return dict(answer)

    unit = f"unit {next(UNITS)}"
    await create("/projects", name=unit)
    await create("/device-types", name=unit)
    kind = {"boardType": "ESP32", "appType": "PUMP", "projectId": made["projectId"], "deviceTypeId": made["deviceTypeId"]}
    await create("/devices/register", name=unit, **kind)
    await create("/devices/{deviceId}/credentials")
    await create("/devices/{deviceId}/metrics", metrics=["temperature"])
    key = (await create("/keys", name=unit))["key"]
    email = f"{made['keyId']}@example.com"
    await create("/members", email=email, name=unit, role="Member", password=OWNER["password"])
    await create("/groups", name=unit, projectId=made["projectId"], deviceIds=[made["deviceId"]])
    await create("/devices/{deviceId}/rules", **examples.OVERHEAT_RULE)
    slot = examples.REQUEST_EXAMPLES["ScheduleCreateRequest"]
    await create("/devices/{deviceId}/schedules", **slot)
    await create("/devices/{deviceId}/commands", name="OPEN", label="Open", requiresApproval=True)
    await create("/webhooks", keyId=made["keyId"], url="https://example.com/hook")
    await create("/groups/{groupId}/grants", membershipId=made["membershipId"], commands=["ON"])
    made["groupGrantId"] = made["grantId"]
    await create("/devices/{deviceId}/grants", membershipId=made["membershipId"], commands=["ON"])
    grant_id = made["grantId"]
    await create("/devices/{deviceId}/grants", apiKeyId=made["keyId"], commands=["OPEN"])
    robot = app.caller(X_Api_Key=key)
    waiting = await robot.send_ok("POST", f"/devices/{made['deviceId']}/command", {"cmd": "OPEN"})
    return {**made, "grantId": grant_id, "approvalId": waiting["approvalId"]}
