"""API keys, and what they are granted."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from quart import Blueprint

from adapters.http.auth import Access, current_session
from adapters.http.operation import operation
from adapters.http.schema import Body, Change, Done, Name, Reply, Timestamp
from domain.grants.model import AppliesVia, Grant, Scope
from domain.grants.ports import GrantsTx
from domain.kernel.clock import iso
from domain.kernel.ids import DeviceId, ProjectId
from domain.kernel.unit_of_work import UnitOfWork
from domain.keys.model import ApiKey
from domain.keys.service import KeyService, MadeKey, find_key

TAG = "API keys"


class NewKey(Body):
    name: Name


class KeyChange(Change):
    name: Name | None = None
    enabled: bool | None = None


class KeyReply(Reply):
    key_id: str
    name: str
    type: Literal["SECRET"] = "SECRET"
    prefix: str = Field(examples=["sk_live_3fQz"])
    enabled: bool
    last_used_at: Timestamp | None
    created_at: Timestamp


class NewKeyReply(Reply):
    key_id: str
    name: str
    type: Literal["SECRET"] = "SECRET"
    prefix: str
    key: str = Field(description="The whole key. It is shown only now.")


class GrantedDevice(Reply):
    device_id: str
    name: str


class GrantedProject(Reply):
    project_id: str
    name: str


class KeyGrantReply(Reply):
    grant_id: str
    applies_via: AppliesVia
    device: GrantedDevice | None
    project: GrantedProject | None
    commands: list[str]
    scope: Scope
    expires_at: Timestamp | None
    rate_limit_per_minute: int | None
    created_at: Timestamp


def keys_blueprint(*, keys: KeyService, uow: UnitOfWork[GrantsTx]) -> Blueprint:
    bp = Blueprint("keys", __name__, url_prefix="/api/v1")
    _key_operations(bp, keys)
    _change_keys(bp, keys)

    @operation(
        bp,
        "GET",
        "/keys/<key_id>/grants",
        tag=TAG,
        access=Access.SESSION,
        summary="List what a key is granted",
    )
    async def list_key_grants(key_id: str) -> list[KeyGrantReply]:
        """What the key may do, on single devices and on whole projects."""
        caller = current_session()
        async with uow.read() as tx:
            key = await find_key(tx, caller, key_id)
            return await _grants(tx, key)

    return bp


def _key_operations(bp: Blueprint, keys: KeyService) -> None:
    @operation(bp, "GET", "/keys", tag=TAG, access=Access.SESSION, summary="List the API keys")
    async def list_keys() -> list[KeyReply]:
        """Oldest first, without their secrets. `lastUsedAt` may lag by a few seconds."""
        return [_key(key) for key in await keys.list(current_session())]

    @operation(
        bp,
        "POST",
        "/keys",
        tag=TAG,
        access=Access.SESSION,
        status=201,
        idempotent=True,
        summary="Make an API key",
        description="The key is shown once. It can do nothing until a grant lets it. Needs the role Admin or Owner.",
        errors={403: "ROLE_REQUIRED"},
    )
    async def create_key(body: NewKey) -> NewKeyReply:
        return _made(await keys.create(current_session(), body.name))


def _change_keys(bp: Blueprint, keys: KeyService) -> None:
    @operation(
        bp,
        "PATCH",
        "/keys/<key_id>",
        tag=TAG,
        access=Access.SESSION,
        summary="Rename, disable or enable a key",
        description="Needs the role Admin or Owner.",
        errors={403: "ROLE_REQUIRED"},
    )
    async def change_key(key_id: str, body: KeyChange) -> Done:
        await keys.change(current_session(), key_id, name=body.name, enabled=body.enabled)
        return Done()

    @operation(
        bp,
        "DELETE",
        "/keys/<key_id>",
        tag=TAG,
        access=Access.SESSION,
        summary="Delete a key",
        description="Its grants and webhooks go with it, at once. Needs the role Admin or Owner.",
        errors={403: "ROLE_REQUIRED"},
    )
    async def delete_key(key_id: str) -> Done:
        await keys.delete(current_session(), key_id)
        return Done()


def _key(key: ApiKey) -> KeyReply:
    return KeyReply(
        key_id=key.key_id,
        name=key.name,
        prefix=key.prefix,
        enabled=key.enabled,
        last_used_at=None if key.last_used_ms is None else iso(key.last_used_ms),
        created_at=iso(key.created_ms),
    )


def _made(made: MadeKey) -> NewKeyReply:
    return NewKeyReply(key_id=made.key.key_id, name=made.key.name, prefix=made.key.prefix, key=made.secret)


async def _grants(tx: GrantsTx, key: ApiKey) -> list[KeyGrantReply]:
    grants = await tx.grants.of_key(key.account_id, key.key_id)
    devices = {device.device_id: device.name for device in await tx.devices.list(key.account_id)} if grants else {}
    projects = {one.project_id: one.name for one, _ in await tx.projects.list(key.account_id)} if grants else {}
    return [_grant(grant, devices, projects) for grant in grants]


def _grant(grant: Grant, devices: dict[DeviceId, str], projects: dict[ProjectId, str]) -> KeyGrantReply:
    device, project = grant.device_id, grant.project_id
    return KeyGrantReply(
        grant_id=grant.grant_id,
        applies_via=grant.applies_via,
        device=None if device is None else GrantedDevice(device_id=device, name=devices.get(device, "")),
        project=None if project is None else GrantedProject(project_id=project, name=projects.get(project, "")),
        commands=list(grant.commands),
        scope=grant.scope,
        expires_at=None if grant.expires_ms is None else iso(grant.expires_ms),
        rate_limit_per_minute=grant.rate_limit_per_minute,
        created_at=iso(grant.created_ms),
    )
