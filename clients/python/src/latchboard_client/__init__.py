"""Client of Latchboard: `Latchboard` (sync) and `AsyncLatchboard`, with one method for each operation of the REST API.

    with Latchboard("http://127.0.0.1:8080", api_key="sk_live_…") as latchboard:
        execution = latchboard.run_command("dev_…", "ON", reason="The soil is dry")

`models` has the shapes of responses and events; `webhooks.verify` checks deliveries; errors are subclasses of `LatchboardError`.
"""

from latchboard_client import models, webhooks
from latchboard_client.aio.client import AsyncLatchboard
from latchboard_client.aio.feed import AsyncFeed
from latchboard_client.codec import UNSET, Unset
from latchboard_client.errors import (
    ApiError,
    ApprovalRefusedError,
    CommandNotDoneError,
    ConflictError,
    ForbiddenError,
    InvalidRequestError,
    LatchboardError,
    NotFoundError,
    RateLimitedError,
    ResponseError,
    TransportError,
    UnauthenticatedError,
    UnavailableError,
    VerificationError,
    WaitTimeoutError,
)
from latchboard_client.events import InitialState, Resync, UnknownEvent
from latchboard_client.sync.client import Latchboard
from latchboard_client.sync.feed import Feed

__all__ = [
    "UNSET",
    "ApiError",
    "ApprovalRefusedError",
    "AsyncFeed",
    "AsyncLatchboard",
    "CommandNotDoneError",
    "ConflictError",
    "Feed",
    "ForbiddenError",
    "InitialState",
    "InvalidRequestError",
    "Latchboard",
    "LatchboardError",
    "NotFoundError",
    "RateLimitedError",
    "ResponseError",
    "Resync",
    "TransportError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnknownEvent",
    "Unset",
    "VerificationError",
    "WaitTimeoutError",
    "models",
    "webhooks",
]
