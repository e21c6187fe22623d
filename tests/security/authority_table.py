"""The operations that make what outlives a session: how each is reached, and how what it made is used. Every other one that
changes something, with the reason why it makes nothing of the kind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pyotp

from domain.kernel.caller import Role
from domain.kernel.clock import to_iso
from domain.notifications.model import UnconditionalTopic
from domain.sign_in.policy import STEP_UP_TTL_MS
from support.authenticator import SoftwareAuthenticator
from support.in_process_app import PASSWORD, InProcessApp

ADA, GRACE, JOAN = "ada@example.com", "grace@example.com", "joan@example.com"
NTFY = {"name": "Phone", "ntfy": {"url": "https://ntfy.example", "topic": "t", "token": "tk"}}
CHANNELS = "/auth/notifications/channels"
DEVICE = {"name": "Gate", "boardType": "ESP32", "appType": "PUMP"}
HALF_OF_PROOF_S = STEP_UP_TTL_MS * 3 // 5 // 1000


class Person:
    """An Owner with one channel, which is older than all that follows."""

    def __init__(self, app: InProcessApp) -> None:
        self.app = app
        self.secret = ""
        self.kept: dict[str, str] = {}
        """Secrets that a case got before, by name."""

    async def prepare(self) -> None:
        self.account = await self.app.create_account(ADA)
        self.grace_id = await self.app.create_member(self.account, GRACE, Role.ADMIN)
        self.caller = await self.app.sign_in(ADA)
        self.old_channel = (await self.caller.send_ok("POST", CHANNELS, NTFY))["channelId"]

    async def prove(self) -> None:
        proof = {"totp": pyotp.TOTP(self.secret).at(self.app.clock.now_ms() // 1000)} if self.secret else {"password": PASSWORD}
        await self.caller.send_ok("POST", "/auth/step-up", proof)

    async def told(self) -> list[tuple[str, str]]:
        """Channel and text of what is owed about this person's own authority; it counts once."""
        async with self.app.services.uow.write() as tx:
            due = await tx.notifications.list_due(self.app.clock.steady_ms(), 1000)
            await tx.notifications.delete([each.seq for each in due])
        return [(each.channel_id, each.text) for each in due if each.topic is UnconditionalTopic.SECURITY]

    async def events(self, kind: str) -> int:
        return int((await self.caller.send_ok("GET", f"/events?type={kind}&limit=200"))["total"])


Call = tuple[dict[str, str], Callable[[], Any]]
"""Values of the path, and the body at the moment of the call."""


def plain(body: Any) -> Callable[[Person], Awaitable[Call]]:
    async def prepare(_: Person) -> Call:
        return {}, lambda: body

    return prepare


async def a_disabled_key(ada: Person) -> Call:
    made = await ada.caller.send_ok("POST", "/keys", {"name": "Robot"})
    ada.kept["key"] = made["key"]
    await ada.caller.send_ok("PATCH", f"/keys/{made['keyId']}", {"enabled": False})
    return {"keyId": made["keyId"]}, lambda: {"enabled": True}


async def a_key(ada: Person) -> Call:
    made = await ada.caller.send_ok("POST", "/keys", {"name": "Robot"})
    return {"keyId": made["keyId"]}, lambda: {"overlapSeconds": 60}


async def a_suspended_channel(ada: Person) -> Call:
    made = await ada.caller.send_ok("POST", CHANNELS, NTFY | {"name": "Tablet"})
    await ada.caller.send_ok("DELETE", "/auth/sessions")
    await ada.caller.send_ok("POST", f"{CHANNELS}/{ada.old_channel}/confirm")
    return {"channelId": made["channelId"]}, lambda: None


async def an_invitation(ada: Person) -> Call:
    body = {"email": "joan@example.com", "name": "Joan", "role": "Admin"}
    made = await ada.caller.send_ok("POST", "/invitations", body)
    return {"invitationId": made["invitationId"]}, lambda: None


async def a_member(ada: Person) -> Call:
    return {"membershipId": ada.grace_id}, lambda: {"role": "Owner"}


async def a_device(ada: Person) -> Call:
    device_id = (await ada.caller.send_ok("POST", "/devices/register", DEVICE))["deviceId"]
    await ada.caller.send_ok("POST", f"/devices/{device_id}/credentials", {})
    return {"deviceId": device_id}, lambda: {"rotate": True}


async def an_unconfirmed_app(ada: Person) -> Call:
    secret = (await ada.caller.send_ok("POST", "/auth/second-factor/totp"))["secret"]
    return {}, lambda: {"code": pyotp.TOTP(secret).at(ada.app.clock.now_ms() // 1000)}


async def a_confirmed_app(ada: Person) -> Call:
    _, code = await an_unconfirmed_app(ada)
    ada.secret = ada.app.responses[-1].json()["secret"]
    await ada.caller.send_ok("POST", "/auth/second-factor/totp/confirm", code())
    return {}, lambda: None


async def a_passkey(ada: Person) -> Call:
    options = (await ada.caller.send_ok("POST", "/auth/passkeys/options"))["publicKey"]
    response = SoftwareAuthenticator(ada.app.program.settings.effective_public_url).create(options)
    return {}, lambda: {"name": "Key ring", "passkey": response}


async def a_service_session(ada: Person) -> Call:
    expires = to_iso(ada.app.clock.now_ms() + 86_400_000)
    return {}, lambda: {"name": "ci", "role": "Admin", "operations": ["devices:write"], "expiresAt": expires}


async def an_unused_device(ada: Person) -> Call:
    rows = {"devices": [DEVICE | {"externalId": "gate-1"}], "credentials": "NEW"}
    made = await ada.caller.send_ok("POST", "/devices/register/bulk", rows)
    return {"deviceId": made["devices"][0]["deviceId"]}, lambda: rows | {"credentials": "UNUSED"}


async def a_key_and_a_device(ada: Person) -> Call:
    key = await ada.caller.send_ok("POST", "/keys", {"name": "Robot"})
    ada.kept["key"] = key["key"]
    device_id = (await ada.caller.send_ok("POST", "/devices/register", DEVICE))["deviceId"]
    body = {"apiKeyId": key["keyId"], "commands": ["ON"]}
    return {"deviceId": device_id, "keyId": key["keyId"]}, lambda: body


async def a_narrow_grant(ada: Person) -> Call:
    values, body = await a_key_and_a_device(ada)
    path = f"/devices/{values['deviceId']}/grants"
    made = await ada.caller.send_ok("POST", path, body() | {"rateLimitPerMinute": 1})
    return values | {"grantId": made["grantId"]}, lambda: {"rateLimitPerMinute": 900}


async def a_key_and_a_group(ada: Person) -> Call:
    values, body = await a_key_and_a_device(ada)
    group = {"name": "Gates", "deviceIds": [values["deviceId"]]}
    return values | {"groupId": (await ada.caller.send_ok("POST", "/groups", group))["groupId"]}, body


async def a_narrow_group_grant(ada: Person) -> Call:
    values, body = await a_key_and_a_group(ada)
    made = await ada.caller.send_ok("POST", f"/groups/{values['groupId']}/grants", body())
    return values | {"grantId": made["grantId"]}, lambda: {"commands": ["*"]}


async def a_key_that_may_read(ada: Person) -> Call:
    values, body = await a_key_and_a_device(ada)
    await ada.caller.send_ok("POST", f"/devices/{values['deviceId']}/grants", body())
    return values, lambda: {"keyId": values["keyId"], "url": "https://example.com/hook"}


async def a_disabled_webhook(ada: Person) -> Call:
    values, body = await a_key_that_may_read(ada)
    made = await ada.caller.send_ok("POST", "/webhooks", body())
    await ada.caller.send_ok("PATCH", f"/webhooks/{made['webhookId']}", {"enabled": False})
    return values | {"webhookId": made["webhookId"]}, lambda: {"enabled": True}


async def a_webhook(ada: Person) -> Call:
    values, body = await a_key_that_may_read(ada)
    made = await ada.caller.send_ok("POST", "/webhooks", body())
    return values | {"webhookId": made["webhookId"]}, lambda: None


async def a_code(ada: Person) -> Call:
    expires = to_iso(ada.app.clock.now_ms() + 86_400_000)
    return {}, lambda: {
        "name": "Hall",
        "boardType": "ESP32",
        "appType": "PUMP",
        "maxDevices": 9,
        "expiresAt": expires,
        "requiresApproval": False,
    }


CASES: dict[str, Callable[[Person], Awaitable[Call]]] = {
    f"POST {CHANNELS}": plain(NTFY | {"name": "Thief"}),
    "PUT /auth/notifications": plain({"topics": ["APPROVALS"], "mail": True}),
    f"POST {CHANNELS}/{{channelId}}/confirm": a_suspended_channel,
    "POST /keys": plain({"name": "Robot"}),
    "PATCH /keys/{keyId}": a_disabled_key,
    "POST /keys/{keyId}/rotate": a_key,
    "POST /service-sessions": a_service_session,
    "POST /provisioning-codes": a_code,
    "POST /invitations": plain({"email": "joan@example.com", "name": "Joan", "role": "Admin"}),
    "POST /invitations/{invitationId}/resend": an_invitation,
    "POST /members": plain({"email": "joan@example.com", "name": "Joan", "role": "Admin", "password": PASSWORD}),
    "PATCH /members/{membershipId}": a_member,
    "POST /devices/{deviceId}/credentials": a_device,
    "POST /devices/register/bulk": an_unused_device,
    "POST /fleet/apply": plain({"document": {"version": 1, "apiKeys": [{"name": "Robot"}]}}),
    "POST /auth/second-factor/totp/confirm": an_unconfirmed_app,
    "POST /auth/second-factor/recovery-codes": a_confirmed_app,
    "POST /auth/passkeys": a_passkey,
    "POST /devices/{deviceId}/grants": a_key_and_a_device,
    "PATCH /devices/{deviceId}/grants/{grantId}": a_narrow_grant,
    "POST /groups/{groupId}/grants": a_key_and_a_group,
    "PATCH /groups/{groupId}/grants/{grantId}": a_narrow_group_grant,
    "POST /webhooks": a_key_that_may_read,
    "PATCH /webhooks/{webhookId}": a_disabled_webhook,
    "POST /webhooks/{webhookId}/rotate-secret": a_webhook,
}
"""What leads to each operation that makes authority, up to the call."""


Made = dict[str, Any]
"""What was made: the answer of the call, and the values of its path."""


async def _answers(ada: Person, headers: dict[str, str], path: str) -> bool:
    return bool((await ada.app.caller(**headers).send("GET", path)).status_code == 200)


async def is_told(ada: Person, made: Made) -> bool:
    await ada.told()
    await ada.caller.send_ok("POST", "/keys", {"name": "Another"})
    return made["channelId"] in {channel for channel, _ in await ada.told()}


async def key_works(ada: Person, made: Made) -> bool:
    return await _answers(ada, {"X_Api_Key": made.get("key") or ada.kept["key"]}, "/devices")


async def key_of_file_works(ada: Person, made: Made) -> bool:
    return await _answers(ada, {"X_Api_Key": made["secret"]}, "/devices")


async def key_reads_device(ada: Person, made: Made) -> bool:
    seen = await ada.app.caller(X_Api_Key=ada.kept["key"]).send_ok("GET", "/devices")
    return made["deviceId"] in {each["deviceId"] for each in seen}


async def token_works(ada: Person, made: Made) -> bool:
    return await _answers(ada, {"Authorization": f"Bearer {made['token']}"}, "/devices")


async def code_admits(ada: Person, made: Made) -> bool:
    body = {"code": made["code"], "hardwareId": f"AA:BB:CC:{len(ada.app.responses) % 100:02}"}
    return bool((await ada.app.caller().send("POST", "/provisioning/claim", body)).status_code < 300)


async def invitation_opens(ada: Person, made: Made) -> bool:
    token = (made["link"] or ada.app.mail.mails[-1][2].split("/#/invitation/")[1].split()[0]).rpartition("/")[2]
    return bool((await ada.app.caller().send("POST", "/invitations/preview", {"token": token})).status_code == 200)


async def joan_signs_in(ada: Person, _: Made) -> bool:
    body = {"email": JOAN, "password": PASSWORD}
    return bool((await ada.app.caller().send("POST", "/auth/login", body)).status_code == 200)


async def grace_is_owner(ada: Person, _: Made) -> bool:
    [grace] = [each for each in await ada.caller.send_ok("GET", "/members") if each["email"] == GRACE]
    return bool(grace["role"] == "Owner")


async def credentials_count(ada: Person, made: Made) -> bool:
    device_id = made.get("deviceId") or made["devices"][0]["deviceId"]
    shown = await ada.caller.send("POST", f"/devices/{device_id}/credentials/reveal", {"password": PASSWORD})
    return bool(shown.status_code == 200)


async def factor_is_asked(ada: Person, _: Made) -> bool:
    body = {"email": ADA, "password": PASSWORD}
    return bool((await ada.app.caller().send("POST", "/auth/login", body)).status_code == 202)


async def recovery_code_counts(ada: Person, made: Made) -> bool:
    proof = {"recoveryCode": made["recoveryCodes"].pop()}
    return bool((await ada.caller.send("POST", "/auth/step-up", proof)).status_code == 200)


async def passkey_is_listed(ada: Person, made: Made) -> bool:
    return made["passkeyId"] in {each["passkeyId"] for each in await ada.caller.send_ok("GET", "/auth/passkeys")}


async def webhook_is_there(ada: Person, made: Made) -> bool:
    return made["webhookId"] in {each["webhookId"] for each in await ada.caller.send_ok("GET", "/webhooks") if each["enabled"]}


USES: dict[str, Callable[[Person, Made], Awaitable[bool]]] = {
    f"POST {CHANNELS}": is_told,
    "PUT /auth/notifications": is_told,
    f"POST {CHANNELS}/{{channelId}}/confirm": is_told,
    "POST /keys": key_works,
    "PATCH /keys/{keyId}": key_works,
    "POST /keys/{keyId}/rotate": key_works,
    "POST /service-sessions": token_works,
    "POST /provisioning-codes": code_admits,
    "POST /invitations": invitation_opens,
    "POST /invitations/{invitationId}/resend": invitation_opens,
    "POST /members": joan_signs_in,
    "PATCH /members/{membershipId}": grace_is_owner,
    "POST /devices/{deviceId}/credentials": credentials_count,
    "POST /devices/register/bulk": credentials_count,
    "POST /fleet/apply": key_of_file_works,
    "POST /auth/second-factor/totp/confirm": factor_is_asked,
    "POST /auth/second-factor/recovery-codes": recovery_code_counts,
    "POST /auth/passkeys": passkey_is_listed,
    "POST /devices/{deviceId}/grants": key_reads_device,
    "PATCH /devices/{deviceId}/grants/{grantId}": key_reads_device,
    "POST /groups/{groupId}/grants": key_reads_device,
    "PATCH /groups/{groupId}/grants/{grantId}": key_reads_device,
    "POST /webhooks": webhook_is_there,
    "PATCH /webhooks/{webhookId}": webhook_is_there,
    "POST /webhooks/{webhookId}/rotate-secret": webhook_is_there,
}
"""Whether what was made still does what it is for."""

OWN_PROOF = "it asks for a password, a code, a passkey or a link, and makes a session or a proof"
ENDS = "it ends or narrows something"
ONCE = "it acts once, now"
UNDER_MAKER = "it runs with the authority that its maker has then, and ends with it"
FOR_ITSELF = "a new device speaks for itself only, and no one may switch it yet"
PLACE = "it gives nobody a grant; who moves a device where a grant reaches it counts as its asker"
MEANING = "it says what a command is; who may send it is in grants"
READS = "it changes nothing, or sends what is there already"
SET_UP = "it prepares; nothing counts before the next call"
NO_AUTHORITY = {
    "POST /auth/login": OWN_PROOF,
    "POST /auth/login/second-factor": OWN_PROOF,
    "POST /auth/login/passkey": OWN_PROOF,
    "POST /auth/login/passkey/options": SET_UP,
    "POST /auth/refresh": "the session goes on; no proof follows from it",
    "POST /auth/logout": ENDS,
    "POST /auth/unlock/request": SET_UP,
    "POST /auth/unlock": OWN_PROOF,
    "POST /auth/step-up": OWN_PROOF,
    "POST /auth/step-up/passkey-options": SET_UP,
    "POST /auth/password/request-otp": SET_UP,
    "POST /auth/change-password": OWN_PROOF,
    "POST /auth/password/change": OWN_PROOF,
    "POST /auth/second-factor/totp": SET_UP,
    "POST /auth/passkeys/options": SET_UP,
    "POST /invitations/preview": READS,
    "POST /invitations/accept": OWN_PROOF,
    "POST /projects": PLACE,
    "PATCH /projects/{projectId}": PLACE,
    "POST /devices/register": FOR_ITSELF,
    "PUT /devices/{deviceId}": PLACE,
    "PATCH /devices/{deviceId}/toggle": ENDS,
    "POST /groups": PLACE,
    "PATCH /groups/{groupId}": PLACE,
    "PATCH /groups/{groupId}/devices": PLACE,
    "POST /groups/{groupId}/command": ONCE,
    "POST /groups/{groupId}/command/preview": READS,
    "POST /groups/{groupId}/schedules": UNDER_MAKER,
    "POST /groups/{groupId}/rules": UNDER_MAKER,
    "POST /provisioning-claims/{claimId}/approve": FOR_ITSELF,
    "POST /provisioning-claims/{claimId}/deny": ENDS,
    "POST /provisioning/claim": FOR_ITSELF,
    "POST /fleet/plan": READS,
    "POST /devices/{deviceId}/revoke": ENDS,
    "POST /devices/{deviceId}/credentials/reveal": "it asks for the password, is an event, and makes nothing",
    "POST /device-types": MEANING,
    "PATCH /device-types/{deviceTypeId}": MEANING,
    "POST /devices/{deviceId}/command": ONCE,
    "POST /devices/{deviceId}/command/on": ONCE,
    "POST /devices/{deviceId}/command/off": ONCE,
    "POST /devices/{deviceId}/commands": MEANING,
    "PATCH /devices/{deviceId}/commands/{commandId}": MEANING,
    "POST /devices/{deviceId}/executions/{executionId}/cancel": ENDS,
    "POST /devices/{deviceId}/executions/cancel": ENDS,
    f"POST {CHANNELS}/{{channelId}}/test": READS,
    "POST /devices/{deviceId}/schedules": UNDER_MAKER,
    "PUT /devices/{deviceId}/schedules": UNDER_MAKER,
    "PUT /devices/{deviceId}/schedules/{slot}": UNDER_MAKER,
    "POST /devices/{deviceId}/rules": UNDER_MAKER,
    "PATCH /devices/{deviceId}/rules/{ruleId}": UNDER_MAKER,
    "POST /devices/{deviceId}/rules/test": READS,
    "POST /devices/{deviceId}/rules/{ruleId}/test": READS,
    "POST /devices/{deviceId}/metrics": "a name for rules",
    "POST /devices/{deviceId}/approvals/{approvalId}/approve": ONCE,
    "POST /devices/{deviceId}/approvals/{approvalId}/deny": ENDS,
    "POST /devices/{deviceId}/approvals/{approvalId}/withdraw": ENDS,
    "POST /approval-links/preview": READS,
    "POST /approval-links/passkey-options": SET_UP,
    "POST /approval-links/approve": ONCE,
    "POST /approval-links/deny": ONCE,
    "POST /webhooks/{webhookId}/ping": READS,
    "POST /webhooks/{webhookId}/deliveries/{deliveryId}/redeliver": READS,
    "POST /webhooks/{webhookId}/recover": READS,
}
"""Every other operation but those that read (GET) and those that take away (DELETE), and why it makes no lasting authority."""
