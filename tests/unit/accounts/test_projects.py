"""Projects: who may change them."""

from __future__ import annotations

import pytest

from domain.kernel.caller import Role, SessionCaller
from domain.kernel.errors import DomainError, NotFound, PermissionDenied
from support.http import HttpWorld


async def outcome(action: object) -> str:
    try:
        await action  # type: ignore[misc]
    except DomainError as error:
        return error.code
    return "ok"


async def test_admins_create_rename_and_delete_projects(world: HttpWorld, owner: SessionCaller) -> None:
    project = await world.projects.create(owner, " Barn ")
    assert project.name == "Barn"
    renamed, _ = await world.projects.rename(owner, project.project_id, "Shed")
    assert renamed.name == "Shed"
    await world.projects.delete(owner, project.project_id)
    with pytest.raises(NotFound):
        await world.projects.delete(owner, project.project_id)


async def test_the_default_project_cannot_be_deleted(world: HttpWorld, owner: SessionCaller) -> None:
    [(default, count)] = await world.projects.list(owner)
    assert (default.is_default, count) == (True, 0)
    assert await outcome(world.projects.delete(owner, default.project_id)) == "DEFAULT_PROJECT"


@pytest.mark.parametrize("role", [Role.MEMBER, Role.VIEWER])
async def test_members_read_projects_but_cannot_change_them(world: HttpWorld, owner: SessionCaller, role: Role) -> None:
    caller = await world.join(owner, role, "grace@example.com")
    [(default, _)] = await world.projects.list(caller)
    for action in (
        world.projects.create(caller, "x"),
        world.projects.rename(caller, default.project_id, "x"),
        world.projects.delete(caller, default.project_id),
    ):
        with pytest.raises(PermissionDenied):
            await action
