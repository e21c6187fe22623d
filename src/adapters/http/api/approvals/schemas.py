"""Request and response models of approvals."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from adapters.http.core.schemas import (
    IdText,
    OkResponse,
    QueryParametersModel,
    Remark,
    RequestBodyModel,
    ResponseModel,
    Timestamp,
)
from domain.approvals.model import Approval, ApprovalStatus
from domain.approvals.service import LIST_LIMIT
from domain.kernel.ids import ApprovalId


class ApprovalResponse(ResponseModel):
    approval_id: str
    device_id: str
    cmd: str
    params: Any
    status: ApprovalStatus
    created_at: Timestamp
    expires_at: Timestamp
    requested_by: str = Field(description="Name of the API key or member that requested the command.")
    decided_by: str | None
    decided_at: Timestamp | None
    execution_id: str | None
    reason: str | None = Field(description="Why the requester wants it.")
    note: str | None = Field(description="What the decider says about it.")

    @classmethod
    def from_domain(cls, approval: Approval) -> ApprovalResponse:
        return cls.of(approval, requested_by=approval.requested_by.name or approval.requested_by.label)


class DecisionRequest(RequestBodyModel):
    note: Remark | None = Field(default=None, description="A line for the requester, who sees it in the approval.")


class ApproveResponse(OkResponse):
    execution_id: str


class ApprovalsQueryParameters(QueryParametersModel):
    status: ApprovalStatus | None = None
    limit: Annotated[int, Field(ge=1, le=LIST_LIMIT)] = LIST_LIMIT
    before: IdText[ApprovalId] | None = Field(
        default=None, description="The id of an approval: only older ones. The `Link` header carries it."
    )
