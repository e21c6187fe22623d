"""Request and response models of projects."""

from __future__ import annotations

from adapters.http.core.schemas import DisplayName, RequestBodyModel, ResponseModel, Timestamp
from domain.accounts.model import Project


class ProjectRequest(RequestBodyModel):
    name: DisplayName


class ProjectResponse(ResponseModel):
    project_id: str
    name: str
    device_count: int
    created_at: Timestamp


def project_response(project: Project, devices: int) -> ProjectResponse:
    return ProjectResponse.of(project, device_count=devices)
