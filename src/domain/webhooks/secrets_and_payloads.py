"""The secret, the payload and the event types of a webhook."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection

from domain.events.model import PUBLIC_TYPES
from domain.kernel.domain_event import JsonObject
from domain.kernel.errors import ValidationFailed
from domain.webhooks.signature_reference import SECRET_PREFIX

SHOWN_PREFIX_LENGTH = len(SECRET_PREFIX) + 4


def new_secret(random: bytes) -> str:
    return SECRET_PREFIX + base64.b64encode(random).decode()


def shown_prefix(secret: str) -> str:
    return secret[:SHOWN_PREFIX_LENGTH]


def encode_payload(payload: JsonObject) -> bytes:
    """The payload as JSON bytes, the same in the body of every attempt."""
    return json.dumps(payload, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def check_types(types: Collection[str] | None) -> tuple[str, ...] | None:
    """Each type once, in alphabetical order. Raises ValidationFailed for none, and for one that webhooks cannot receive."""
    if types is None:
        return None
    allowed = f"Use one or more of {', '.join(sorted(PUBLIC_TYPES))}."
    if not types:
        raise ValidationFailed.for_field("types", f"is empty. {allowed}")
    for index, name in enumerate(types):
        if name not in PUBLIC_TYPES:
            raise ValidationFailed.for_field(f"types.{index}", f"{name[:64]!r} is no event type of webhooks. {allowed}")
    return tuple(sorted(set(types)))
