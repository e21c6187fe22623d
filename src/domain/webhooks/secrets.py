"""The URL of a webhook is stored sealed, because its path and query often contain a secret. Scheme and host are stored plain.

The secret, the payload and the event types of a webhook.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection
from urllib.parse import urlsplit

from domain.events.model import PUBLIC_TYPES
from domain.kernel.domain_event import JsonObject
from domain.kernel.errors import ValidationFailed
from domain.kernel.ids import WebhookId
from domain.kernel.ports import Vault
from domain.webhooks.model import Webhook
from domain.webhooks.reference import SECRET_PREFIX


def url_origin(url: str) -> str:
    """Scheme and host."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def url_seal_context(webhook_id: WebhookId) -> str:
    """What a sealed URL is bound to: its webhook, and that it is no signing secret."""
    return f"url:{webhook_id}"


def seal_url(vault: Vault, webhook_id: WebhookId, url: str) -> bytes:
    return vault.seal(url, url_seal_context(webhook_id))


def open_url(vault: Vault, webhook: Webhook) -> str:
    """Raises SecretUnreadable when the key ring lacks the key."""
    if webhook.sealed_url is None:
        return webhook.origin
    return vault.open(webhook.sealed_url, url_seal_context(webhook.webhook_id))


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
