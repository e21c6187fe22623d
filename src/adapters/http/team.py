"""The people of an account, and its projects."""

from __future__ import annotations

from pydantic import Field
from quart import Blueprint

from adapters.http.auth import Access, current_session
from adapters.http.operation import operation
from adapters.http.schema import Body, Change, Done, Name, Reply, Timestamp
from domain.accounts.model import Member, Project
from domain.accounts.projects import ProjectService
from domain.accounts.team import TeamService
from domain.kernel.caller import Role
from domain.kernel.clock import iso

TEAM = "Team"
PROJECTS = "Projects"


class NewMember(Body):
    email: str = Field(max_length=254, examples=["grace@example.com"])
    name: Name
    role: Role
    password: str = Field(min_length=8, max_length=256)


class MemberChange(Change):
    role: Role | None = None
    name: Name | None = None


class MemberReply(Reply):
    membership_id: str
    user_id: str
    email: str
    name: str
    role: Role
    created_at: Timestamp


class ProjectBody(Body):
    name: Name


class ProjectReply(Reply):
    project_id: str
    name: str
    device_count: int
    created_at: Timestamp


def team_blueprint(*, team: TeamService) -> Blueprint:
    bp = Blueprint("team", __name__, url_prefix="/api/v1")

    @operation(bp, "GET", "/members", tag=TEAM, access=Access.SESSION, summary="List the members")
    async def list_members() -> list[MemberReply]:
        """Oldest first. Every role sees them."""
        return [_member(member) for member in await team.members(current_session())]

    @operation(
        bp,
        "POST",
        "/members",
        tag=TEAM,
        access=Access.SESSION,
        status=201,
        idempotent=True,
        summary="Add a member",
        description="Needs the role Admin or Owner; only an Owner adds an Owner.",
        errors={403: "ROLE_REQUIRED", 409: "EMAIL_TAKEN"},
    )
    async def add_member(body: NewMember) -> MemberReply:
        added = await team.add(current_session(), email=body.email, name=body.name, role=body.role, password=body.password)
        return _member(added)

    _change_members(bp, team)
    return bp


def _change_members(bp: Blueprint, team: TeamService) -> None:
    @operation(
        bp,
        "PATCH",
        "/members/<membership_id>",
        tag=TEAM,
        access=Access.SESSION,
        summary="Change a member's role or name",
        description="Needs the role Admin or Owner; only an Owner changes an Owner. The last Owner stays one.",
        errors={403: "ROLE_REQUIRED", 409: "LAST_OWNER"},
    )
    async def change_member(membership_id: str, body: MemberChange) -> MemberReply:
        return _member(await team.change(current_session(), membership_id, role=body.role, name=body.name))

    @operation(
        bp,
        "DELETE",
        "/members/<membership_id>",
        tag=TEAM,
        access=Access.SESSION,
        summary="Remove a member",
        description="Grants and sessions of the member end at once. Needs Admin or Owner; only an Owner removes an Owner.",
        errors={403: "ROLE_REQUIRED", 409: "LAST_OWNER"},
    )
    async def remove_member(membership_id: str) -> Done:
        await team.remove(current_session(), membership_id)
        return Done()


def projects_blueprint(*, projects: ProjectService) -> Blueprint:
    bp = Blueprint("projects", __name__, url_prefix="/api/v1")

    @operation(bp, "GET", "/projects", tag=PROJECTS, access=Access.SESSION, summary="List the projects")
    async def list_projects() -> list[ProjectReply]:
        """Oldest first; the default project is among them."""
        return [_project(project, devices) for project, devices in await projects.list(current_session())]

    @operation(
        bp,
        "POST",
        "/projects",
        tag=PROJECTS,
        access=Access.SESSION,
        status=201,
        idempotent=True,
        summary="Create a project",
        description="Needs the role Admin or Owner.",
        errors={403: "ROLE_REQUIRED"},
    )
    async def create_project(body: ProjectBody) -> ProjectReply:
        return _project(await projects.create(current_session(), body.name), 0)

    _change_projects(bp, projects)
    return bp


def _change_projects(bp: Blueprint, projects: ProjectService) -> None:
    @operation(
        bp,
        "PATCH",
        "/projects/<project_id>",
        tag=PROJECTS,
        access=Access.SESSION,
        summary="Rename a project",
        description="Needs the role Admin or Owner.",
        errors={403: "ROLE_REQUIRED"},
    )
    async def rename_project(project_id: str, body: ProjectBody) -> ProjectReply:
        return _project(*await projects.rename(current_session(), project_id, body.name))

    @operation(
        bp,
        "DELETE",
        "/projects/<project_id>",
        tag=PROJECTS,
        access=Access.SESSION,
        summary="Delete an empty project",
        description="The default project stays. Needs the role Admin or Owner.",
        errors={403: "ROLE_REQUIRED", 409: "DEFAULT_PROJECT PROJECT_NOT_EMPTY"},
    )
    async def delete_project(project_id: str) -> Done:
        await projects.delete(current_session(), project_id)
        return Done()


def _member(member: Member) -> MemberReply:
    return MemberReply(
        membership_id=member.membership.membership_id,
        user_id=member.user.user_id,
        email=member.user.email,
        name=member.user.name,
        role=member.membership.role,
        created_at=iso(member.membership.created_ms),
    )


def _project(project: Project, devices: int) -> ProjectReply:
    return ProjectReply(
        project_id=project.project_id, name=project.name, device_count=devices, created_at=iso(project.created_ms)
    )
