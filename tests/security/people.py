"""All kinds of callers: each role and key of one account, unauthenticated ones, and the Owner of another account."""

from __future__ import annotations

from dataclasses import dataclass

from domain.kernel.caller import Role
from domain.kernel.ids import SessionId
from domain.keys.model import compose_key
from domain.team.operator import CreatedAccountWithOwner
from security.calls import Targets
from support.in_process_app import ApiCaller, InProcessApp

ALL = {"commands": ["*"], "appliesVia": "project"}


@dataclass
class People:
    app: InProcessApp
    account: CreatedAccountWithOwner
    callers: dict[str, ApiCaller]
    """By the table's columns, without `nobody`."""
    strangers: dict[str, ApiCaller]
    """Callers with invalid credentials."""
    ours: Targets
    theirs: Targets


async def gather(whole: InProcessApp) -> People:
    account = await whole.create_account("owner@example.com")
    await whole.create_account("door@example.com", "Door")
    owner = await whole.sign_in("owner@example.com")
    callers = {"Owner": owner}
    anchor = await _device(owner)
    for column, role in (("Admin", Role.ADMIN), ("Member", Role.MEMBER), ("Viewer", Role.VIEWER)):
        callers[column] = (await _person(whole, account, column, role))[0]
    for column, role in (("Member+", Role.MEMBER), ("Viewer+", Role.VIEWER)):
        callers[column], membership_id = await _person(whole, account, column, role)
        await owner.send_ok("POST", f"/devices/{anchor}/grants", ALL | {"membershipId": membership_id})
    callers["key"], _ = await a_key(owner)
    for column, scope in (("keyR", "READ"), ("keyW", "WRITE")):
        callers[column], key_id = await a_key(owner)
        await owner.send_ok("POST", f"/devices/{anchor}/grants", ALL | {"apiKeyId": key_id, "scope": scope})
    requester, key_id = await a_key(owner)
    await owner.send_ok("POST", f"/devices/{anchor}/grants", ALL | {"apiKeyId": key_id})
    other = await whole.create_account("eve@example.com", "Other")
    callers["other"] = await whole.sign_in("eve@example.com")
    return People(
        whole,
        account,
        callers,
        await _strangers(whole, account, owner),
        Targets(whole, owner, requester, account.account.account_id),
        await _theirs(whole, callers["other"], other),
    )


async def _theirs(whole: InProcessApp, owner: ApiCaller, account: CreatedAccountWithOwner) -> Targets:
    requester, key_id = await a_key(owner)
    await owner.send_ok("POST", f"/devices/{await _device(owner)}/grants", ALL | {"apiKeyId": key_id})
    return Targets(whole, owner, requester, account.account.account_id)


async def _strangers(whole: InProcessApp, account: CreatedAccountWithOwner, owner: ApiCaller) -> dict[str, ApiCaller]:
    disabled, disabled_id = await a_key(owner)
    await owner.send_ok("PATCH", f"/keys/{disabled_id}", {"enabled": False})
    deleted, deleted_id = await a_key(owner)
    await owner.send_ok("DELETE", f"/keys/{deleted_id}")
    removed, membership_id = await _person(whole, account, "removed", Role.ADMIN)
    await owner.send_ok("DELETE", f"/members/{membership_id}")
    late = whole.program.adapters.tokens.issue(
        account.owner.membership, SessionId("ses_00000000000000000000"), whole.clock.now_ms() - 900_001
    )
    unknown = compose_key("a" * 40)
    return {
        "a disabled key": disabled,
        "a deleted key": deleted,
        "a removed member": removed,
        "an expired token": whole.caller(Authorization=f"Bearer {late}"),
        "an unknown key": whole.caller(X_Api_Key=unknown),
        "an unknown key as bearer": whole.caller(Authorization=f"Bearer {unknown}"),
        "a malformed key": whole.caller(X_Api_Key="sk_live_nonsense"),
        "a key of another kind": whole.caller(X_Api_Key="nonsense"),
        "a garbled token": whole.caller(Authorization="Bearer a.b.c"),
        "another scheme": whole.caller(Authorization="Basic YWRhOnNlY3JldA=="),
        "a bare token": whole.caller(Authorization=owner.headers["Authorization"].removeprefix("Bearer ")),
        "a key in the query's place": whole.caller(Cookie=f"token={unknown}"),
    }


async def a_key(owner: ApiCaller) -> tuple[ApiCaller, str]:
    made = await owner.send_ok("POST", "/keys", {"name": "Robot"})
    return owner.app.caller(X_Api_Key=made["key"]), made["keyId"]


async def _person(whole: InProcessApp, account: CreatedAccountWithOwner, name: str, role: Role) -> tuple[ApiCaller, str]:
    email = f"{name.lower()}@example.com"
    membership_id = await whole.create_member(account, email, role)
    return await whole.sign_in(email), membership_id


async def _device(owner: ApiCaller) -> str:
    made = await owner.send_ok("POST", "/devices/register", {"name": "Anchor", "boardType": "ESP32", "appType": "PUMP"})
    device_id: str = made["deviceId"]
    return device_id
