"""Projects: parts of the account, each with devices of its own."""

from __future__ import annotations

from adapters.http.core.callers import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint, HttpHandlerResult
from adapters.http.core.paging import PageQueryParameters, list_response
from adapters.http.core.schemas import DisplayName, RequestBodyModel, ResponseModel, Timestamp
from domain.accounts.projects import ProjectService


class ProjectRequest(RequestBodyModel):
    name: DisplayName


class ProjectUpdateRequest(ProjectRequest):
    """Another name."""


class ProjectResponse(ResponseModel):
    project_id: str
    name: str
    device_count: int
    created_at: Timestamp


def projects_blueprint(*, projects: ProjectService) -> ApiBlueprint:
    bp = ApiBlueprint("projects", "Projects")

    @bp.operation("GET /projects", AllowedCallers.SESSION, "List projects")
    async def list_projects(query: PageQueryParameters) -> HttpHandlerResult[list[ProjectResponse]]:
        """Oldest first, including the default project."""
        found = await projects.list(current_session())
        return list_response(
            found,
            query,
            lambda entry: ProjectResponse.of(entry[0], device_count=entry[1]),
            lambda entry: (entry[0].created_ms, entry[0].project_id),
        )

    @bp.operation("GET /projects/<project_id>", AllowedCallers.SESSION, "Get a project")
    async def get_project(project_id: str) -> ProjectResponse:
        """With the number of its devices."""
        project, devices = await projects.get(current_session(), project_id)
        return ProjectResponse.of(project, device_count=devices)

    @bp.operation(
        "POST /projects",
        AllowedCallers.SESSION,
        "Create a project",
        status=201,
        idempotent=True,
        errors={403: "ROLE_REQUIRED", 409: "PROJECT_EXISTS PROJECT_LIMIT"},
    )
    async def create_project(body: ProjectRequest) -> ProjectResponse:
        """No other project of the account may have the name, in any case. Requires the role Admin or Owner."""
        return ProjectResponse.of(await projects.create(current_session(), body.name), device_count=0)

    @bp.operation(
        "PATCH /projects/<project_id>",
        AllowedCallers.SESSION,
        "Rename a project",
        errors={403: "ROLE_REQUIRED", 409: "PROJECT_EXISTS"},
    )
    async def update_project(project_id: str, body: ProjectUpdateRequest) -> ProjectResponse:
        """Requires the role Admin or Owner."""
        project, devices = await projects.rename(current_session(), project_id, body.name)
        return ProjectResponse.of(project, device_count=devices)

    @bp.operation(
        "DELETE /projects/<project_id>",
        AllowedCallers.SESSION,
        "Delete an empty project",
        errors={403: "ROLE_REQUIRED", 409: "DEFAULT_PROJECT PROJECT_NOT_EMPTY"},
    )
    async def delete_project(project_id: str) -> None:
        """The default project cannot be deleted. Requires the role Admin or Owner."""
        await projects.delete(current_session(), project_id)

    return bp
