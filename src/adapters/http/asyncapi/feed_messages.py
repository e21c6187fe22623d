"""The messages of the live feed, in both directions."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, create_model

from adapters.http.asyncapi.event_payloads import EVENT_PAYLOADS, BaseEventPayload, UnixMilliseconds, event_type
from adapters.http.core.schemas import RequestBodyModel, ResponseModel, Timestamp

CURSOR_DESCRIPTION = "Connect with `?cursor=` to continue after this message."


class FeedAuthMessage(RequestBodyModel):
    """The first message of a client without credentials in query or header; later, renewed credentials. One of the two."""

    type: Literal["auth"]
    token: str | None = Field(default=None, description="An access token, or an API key.")
    api_key: str | None = None


class FeedPing(RequestBodyModel):
    """Answered with `pong`."""

    type: Literal["ping"]


class FeedDevice(ResponseModel):
    device_id: str
    name: str
    relay: Literal["ON", "OFF"] | None
    is_online: bool
    last_seen: Timestamp | None


class FeedInitialState(ResponseModel):
    """The first message after authentication. Events follow."""

    type: Literal["initial_state"]
    cursor: str = Field(description=CURSOR_DESCRIPTION)
    devices: list[FeedDevice]


class FeedResync(ResponseModel):
    """The client's cursor is too old or unreadable, or more than 10,000 readings were missed: some events are lost to it. A new
    initial state follows."""

    type: Literal["resync"]


class FeedAuthenticated(ResponseModel):
    """The answer to renewed credentials."""

    type: Literal["authenticated"]
    expires_at: Timestamp | None = Field(description="null for an API key, which does not expire.")


class FeedPong(ResponseModel):
    type: Literal["pong"]


class FeedAuditEvent(ResponseModel):
    """Any other event of the log, for sessions that connect with `?audit=true`."""

    type: Literal["audit"]
    event_type: str
    event_id: str
    account_id: str
    device_id: str | None
    device_name: str | None
    description: str
    source: str
    timestamp: UnixMilliseconds
    cursor: str = Field(description=CURSOR_DESCRIPTION)


def _feed_event(payload: type[BaseEventPayload]) -> type[ResponseModel]:
    fields: dict[str, Any] = {"cursor": (str, Field(description=CURSOR_DESCRIPTION))}
    name = f"Feed{payload.__name__}"
    return create_model(name, __base__=payload, __doc__=payload.__doc__, **fields)


SENT_MESSAGES: dict[str, type[ResponseModel]] = {
    "initial_state": FeedInitialState,
    **{event_type(payload): _feed_event(payload) for payload in EVENT_PAYLOADS},
    "audit": FeedAuditEvent,
    "resync": FeedResync,
    "authenticated": FeedAuthenticated,
    "pong": FeedPong,
}
"""From the service, by `type`."""
RECEIVED_MESSAGES: dict[str, type[RequestBodyModel]] = {"auth": FeedAuthMessage, "ping": FeedPing}
"""From the client, by `type`."""
