"""Grants over HTTP: who may do what to a device, and why a call would pass or not. Sessions only, Admin and above."""

from __future__ import annotations

from typing import Any

from quart import Blueprint

from adapters.http import grants_schema as schema
from adapters.http.auth import Access, current_session
from adapters.http.operation import operation
from adapters.http.schema import Done
from domain.grants.access import AccessService
from domain.grants.granting import GrantService
from domain.kernel.ids import DeviceId, GrantId, KeyId, MembershipId

TAG = "Grants"
ERRORS = {403: "ROLE_REQUIRED", 404: "NOT_FOUND"}
Created = schema.GrantCreated | schema.GrantCreatedWarned
Changed = schema.GrantChanged | schema.GrantChangedWarned


def grants_blueprint(grants: GrantService[Any], access: AccessService[Any]) -> Blueprint:
    bp = Blueprint("grants", __name__, url_prefix="/api/v1")
    _looking(bp, grants, access)
    _changing(bp, grants)
    return bp


def _looking(bp: Blueprint, grants: GrantService[Any], access: AccessService[Any]) -> None:
    @operation(
        bp, "GET", "/devices/<device_id>/grants", tag=TAG, access=Access.SESSION, summary="Grants on a device",
        errors=ERRORS,
    )  # fmt: skip
    async def list_grants(device_id: str) -> list[schema.GrantReply]:
        """Oldest first, those over the device's whole project included. Needs Admin or Owner."""
        found = await grants.list(current_session(), DeviceId(device_id))
        return [schema.GrantReply.of(named) for named in found]

    @operation(
        bp, "GET", "/devices/<device_id>/access", tag=TAG, access=Access.SESSION, summary="Why a call would pass or not",
        errors={400: "VALIDATION_ERROR UNKNOWN_COMMAND", **ERRORS},
    )  # fmt: skip
    async def explain_access(device_id: str, query: schema.AccessQuery) -> schema.AccessReply:
        """The grant that lets it pass, or the first check that fails and when it would pass. Asking counts no use."""
        told = await access.explain(
            current_session(),
            DeviceId(device_id),
            command=query.cmd,
            key_id=None if query.api_key_id is None else KeyId(query.api_key_id),
            membership_id=None if query.membership_id is None else MembershipId(query.membership_id),
        )
        return schema.AccessReply.of(told)


def _changing(bp: Blueprint, grants: GrantService[Any]) -> None:
    @operation(
        bp, "POST", "/devices/<device_id>/grants", tag=TAG, access=Access.SESSION, summary="Create a grant",
        returns={201: Created}, errors=ERRORS, idempotent=True,
    )  # fmt: skip
    async def create_grant(device_id: str, body: schema.NewGrant) -> Created:
        """A command the device does not know is allowed, and `details` warns of it. Needs Admin or Owner."""
        granted = await grants.create(current_session(), DeviceId(device_id), body.draft())
        warned = schema.Warned.all_of(granted)
        if warned:
            return schema.GrantCreatedWarned(grant_id=granted.grant.grant_id, details=warned)
        return schema.GrantCreated(grant_id=granted.grant.grant_id)

    @operation(
        bp, "PATCH", "/devices/<device_id>/grants/<grant_id>", tag=TAG, access=Access.SESSION, summary="Change a grant",
        returns={200: Changed}, errors=ERRORS,
    )  # fmt: skip
    async def update_grant(device_id: str, grant_id: str, body: schema.GrantChanges) -> Changed:
        """Counts from the next call on. Needs Admin or Owner."""
        granted = await grants.edit(current_session(), DeviceId(device_id), GrantId(grant_id), body.changes())
        warned = schema.Warned.all_of(granted)
        return schema.GrantChangedWarned(details=warned) if warned else schema.GrantChanged()

    @operation(
        bp, "DELETE", "/devices/<device_id>/grants/<grant_id>", tag=TAG, access=Access.SESSION, summary="Take a grant back",
        errors=ERRORS,
    )  # fmt: skip
    async def delete_grant(device_id: str, grant_id: str) -> Done:
        """Counts from the next call on; a project-wide grant is gone for the whole project. Needs Admin or Owner."""
        await grants.delete(current_session(), DeviceId(device_id), GrantId(grant_id))
        return Done()
