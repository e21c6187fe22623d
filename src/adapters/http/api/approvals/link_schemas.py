"""Request and response models of approval links."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from adapters.http.api.approvals.schemas import ApprovalResponse
from adapters.http.api.authentication.second_factor_schemas import PasskeyResponseField
from adapters.http.core.schemas import OkResponse, Remark, RequestBodyModel, ResponseModel, Timestamp
from domain.approvals.links import ApprovalLinkDetails
from domain.sign_in.second_factor import PresentedSecondFactor


class LinkTokenRequest(RequestBodyModel):
    token: str = Field(min_length=1, max_length=1024, description="The end of the link.")


class LinkDecisionRequest(LinkTokenRequest):
    decision: Literal["APPROVE", "DENY"]
    note: Remark | None = Field(default=None, description="A line for the requester, who sees it in the approval.")
    totp: str | None = Field(default=None, max_length=16)
    recovery_code: str | None = Field(default=None, max_length=32)
    passkey: PasskeyResponseField | None = None

    @model_validator(mode="after")
    def _at_most_one_factor(self) -> LinkDecisionRequest:
        if sum(one is not None for one in (self.totp, self.recovery_code, self.passkey)) > 1:
            raise ValueError("send only one of totp, recoveryCode and passkey")
        return self

    def to_factor(self) -> PresentedSecondFactor | None:
        shown = PresentedSecondFactor(self.totp, self.recovery_code, self.passkey)
        return None if shown == PresentedSecondFactor() else shown


class ApprovalByLinkResponse(ResponseModel):
    approval: ApprovalResponse
    device_name: str
    decider: str = Field(description="The member whom the link was sent to: they decide.")
    link_expires_at: Timestamp
    second_factors: list[Literal["totp", "passkey", "recovery"]] = Field(
        description="One of them must be shown; empty for a member without a second factor."
    )

    @classmethod
    def from_domain(cls, linked: ApprovalLinkDetails) -> ApprovalByLinkResponse:
        return cls.of(
            approval=ApprovalResponse.from_domain(linked.approval),
            device_name=linked.device.name,
            decider=linked.user.name,
            link_expires_at=linked.expires_ms,
            second_factors=linked.methods,
        )


class LinkDecisionResponse(OkResponse):
    execution_id: str | None = Field(description="Of the approved command; null when it was denied.")
