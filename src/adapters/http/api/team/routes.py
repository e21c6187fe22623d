"""The people of an account, and its projects."""

from __future__ import annotations

from pydantic import Field
from quart import Blueprint

from adapters.http.core.auth import RequiredAccess, current_session
from adapters.http.core.operation import operation
from adapters.http.core.schemas import DisplayName, OkResponse, PatchBody, RequestBody, ResponseModel, Timestamp
from domain.accounts.model import Member, Project
from domain.accounts.projects import ProjectService
from domain.accounts.team import TeamService
from domain.kernel.caller import Role
from domain.kernel.clock import to_iso

TEAM_TAG = "Team"
PROJECTS_TAG = "Projects"


class MemberCreateRequest(RequestBody):
    email: str = Field(max_length=254, examples=["grace@example.com"])
    name: DisplayName
    role: Role
    password: str = Field(min_length=8, max_length=256)


class MemberUpdateRequest(PatchBody):
    role: Role | None = None
    name: DisplayName | None = None


class MemberResponse(ResponseModel):
    membership_id: str
    user_id: str
    email: str
    name: str
    role: Role
    created_at: Timestamp


class ProjectRequest(RequestBody):
    name: DisplayName


class ProjectResponse(ResponseModel):
    project_id: str
    name: str
    device_count: int
    created_at: Timestamp


def team_blueprint(*, team: TeamService) -> Blueprint:
    bp = Blueprint("team", __name__, url_prefix="/api/v1")

    @operation(bp, "GET", "/members", tag=TEAM_TAG, access=RequiredAccess.SESSION, summary="List the members")
    async def list_members() -> list[MemberResponse]:
        """Oldest first. Every role sees them."""
        return [member_response(member) for member in await team.list_members(current_session())]

    @operation(
        bp,
        "POST",
        "/members",
        tag=TEAM_TAG,
        access=RequiredAccess.SESSION,
        status=201,
        idempotent=True,
        summary="Add a member",
        description="Needs the role Admin or Owner; only an Owner adds an Owner.",
        errors={403: "ROLE_REQUIRED", 409: "EMAIL_TAKEN"},
    )
    async def add_member(body: MemberCreateRequest) -> MemberResponse:
        added = await team.add_member(current_session(), email=body.email, name=body.name, role=body.role, password=body.password)
        return member_response(added)

    _add_member_update_routes(bp, team)
    return bp


def _add_member_update_routes(bp: Blueprint, team: TeamService) -> None:
    @operation(
        bp,
        "PATCH",
        "/members/<membership_id>",
        tag=TEAM_TAG,
        access=RequiredAccess.SESSION,
        summary="Change a member's role or name",
        description="Needs the role Admin or Owner; only an Owner changes an Owner. The last Owner stays one.",
        errors={403: "ROLE_REQUIRED", 409: "LAST_OWNER"},
    )
    async def change_member(membership_id: str, body: MemberUpdateRequest) -> MemberResponse:
        return member_response(await team.update_member(current_session(), membership_id, role=body.role, name=body.name))

    @operation(
        bp,
        "DELETE",
        "/members/<membership_id>",
        tag=TEAM_TAG,
        access=RequiredAccess.SESSION,
        summary="Remove a member",
        description="Grants and sessions of the member end at once. Needs Admin or Owner; only an Owner removes an Owner.",
        errors={403: "ROLE_REQUIRED", 409: "LAST_OWNER"},
    )
    async def remove_member(membership_id: str) -> OkResponse:
        await team.remove_member(current_session(), membership_id)
        return OkResponse()


def projects_blueprint(*, projects: ProjectService) -> Blueprint:
    bp = Blueprint("projects", __name__, url_prefix="/api/v1")

    @operation(bp, "GET", "/projects", tag=PROJECTS_TAG, access=RequiredAccess.SESSION, summary="List the projects")
    async def list_projects() -> list[ProjectResponse]:
        """Oldest first; the default project is among them."""
        return [project_response(project, devices) for project, devices in await projects.list(current_session())]

    @operation(
        bp,
        "POST",
        "/projects",
        tag=PROJECTS_TAG,
        access=RequiredAccess.SESSION,
        status=201,
        idempotent=True,
        summary="Create a project",
        description="Needs the role Admin or Owner.",
        errors={403: "ROLE_REQUIRED"},
    )
    async def create_project(body: ProjectRequest) -> ProjectResponse:
        return project_response(await projects.create(current_session(), body.name), 0)

    _add_project_update_routes(bp, projects)
    return bp


def _add_project_update_routes(bp: Blueprint, projects: ProjectService) -> None:
    @operation(
        bp,
        "PATCH",
        "/projects/<project_id>",
        tag=PROJECTS_TAG,
        access=RequiredAccess.SESSION,
        summary="Rename a project",
        description="Needs the role Admin or Owner.",
        errors={403: "ROLE_REQUIRED"},
    )
    async def rename_project(project_id: str, body: ProjectRequest) -> ProjectResponse:
        return project_response(*await projects.rename(current_session(), project_id, body.name))

    @operation(
        bp,
        "DELETE",
        "/projects/<project_id>",
        tag=PROJECTS_TAG,
        access=RequiredAccess.SESSION,
        summary="Delete an empty project",
        description="The default project stays. Needs the role Admin or Owner.",
        errors={403: "ROLE_REQUIRED", 409: "DEFAULT_PROJECT PROJECT_NOT_EMPTY"},
    )
    async def delete_project(project_id: str) -> OkResponse:
        await projects.delete(current_session(), project_id)
        return OkResponse()


def member_response(member: Member) -> MemberResponse:
    return MemberResponse(
        membership_id=member.membership.membership_id,
        user_id=member.user.user_id,
        email=member.user.email,
        name=member.user.name,
        role=member.membership.role,
        created_at=to_iso(member.membership.created_ms),
    )


def project_response(project: Project, devices: int) -> ProjectResponse:
    return ProjectResponse(
        project_id=project.project_id, name=project.name, device_count=devices, created_at=to_iso(project.created_ms)
    )
