"""The URL of a webhook is stored sealed, because its path and query often contain a secret. Scheme and host are stored plain."""

from __future__ import annotations

from urllib.parse import urlsplit

from domain.kernel.ids import WebhookId
from domain.kernel.ports import Vault
from domain.webhooks.model import Webhook


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
