"""Projects: who may change them."""

from __future__ import annotations

import pytest

from domain.kernel.caller import Role, SessionCaller
from domain.kernel.errors import NotFound, PermissionDenied
from support.http import HttpWorld, outcome


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


async def test_two_projects_cannot_have_one_name(world: HttpWorld, owner: SessionCaller) -> None:
    barn, field = await world.projects.create(owner, "Écurie"), await world.projects.create(owner, "Field")
    assert await outcome(world.projects.create(owner, "Écurie")) == "PROJECT_EXISTS"
    assert await outcome(world.projects.create(owner, "E\u0301CURIE")) == "PROJECT_EXISTS"
    assert await outcome(world.projects.rename(owner, field.project_id, "écurie")) == "PROJECT_EXISTS"
    renamed, _ = await world.projects.rename(owner, barn.project_id, "ÉCURIE")
    assert renamed.name == "ÉCURIE"


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
