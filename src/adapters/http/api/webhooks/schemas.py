"""Request and response models of webhooks."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from adapters.http.core.schemas import EnumValue, IdText, OkResponse, PatchBody, RequestBodyModel, ResponseModel, Timestamp
from domain.events.model import DEFAULT_TYPES, PUBLIC_TYPES
from domain.webhooks.model import WebhookFormat

Url = Annotated[str, Field(min_length=1, max_length=2048, examples=["https://example.com/hooks/latchboard"])]
FORMAT = (
    "`standard`: the envelope that the documents describe. The others: a CloudEvent 1.0, in structured or binary content mode."
)

EventTypes = Annotated[
    list[Annotated[str, Field(max_length=64)]],
    Field(
        max_length=len(PUBLIC_TYPES),
        json_schema_extra={"items": {"type": "string", "enum": sorted(PUBLIC_TYPES)}},
        description=f"The event types to send. Default: {', '.join(DEFAULT_TYPES)}.",
    ),
]


class WebhookCreateRequest(RequestBodyModel):
    key_id: IdText[str]
    url: Url
    types: EventTypes | None = None
    format: Annotated[EnumValue[WebhookFormat], Field(description=FORMAT)] = WebhookFormat.STANDARD


class WebhookUpdateRequest(PatchBody):
    url: Url | None = None
    enabled: bool | None = None
    types: EventTypes | None = None
    format: Annotated[EnumValue[WebhookFormat], Field(description=FORMAT)] | None = None


class WebhookDetailsResponse(ResponseModel):
    webhook_id: str
    key_id: str
    url: str = Field(description="For a Member or Viewer only its scheme and host: the rest often contains a secret.")
    types: list[str]
    format: WebhookFormat
    secret_prefix: str
    enabled: bool
    disabled_reason: str | None
    created_at: Timestamp
    updated_at: Timestamp


class WebhookCreatedResponse(ResponseModel):
    webhook_id: str
    key_id: str
    url: str
    enabled: bool
    secret: str = Field(description="Shown only in this response.")


class WebhookSecretRotatedResponse(ResponseModel):
    webhook_id: str
    secret: str = Field(description="Shown only in this response. The old secret is no longer used.")


class DeliveryAttemptResponse(ResponseModel):
    delivery_id: str
    webhook_event_id: str = Field(description="The id of the event, the same for all attempts.")
    event_type: str
    device_id: str | None
    attempt: int
    status_code: int | None
    error: str | None
    succeeded: bool
    created_at: Timestamp
    duration_ms: int | None = Field(description="Null while the attempt is running, and if it was interrupted.")
    next_attempt_at: Timestamp | None


class DeliveryStartedResponse(OkResponse):
    delivery_id: str
