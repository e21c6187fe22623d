"""A sealed webhook URL is bound to its webhook, on every storage."""

from __future__ import annotations

import pytest

from adapters.crypto.key_ring import KeyRing
from adapters.crypto.vault import AesVault
from domain.kernel.errors import SecretUnreadable
from domain.webhooks.model import open_url, seal_url
from support.storage import StoredAccount, a_webhook

URL = "https://example.org:8443/hook?token=secret"


async def test_a_sealed_url_is_of_its_webhook_and_is_replaced_only_as_it_was_read(world: StoredAccount) -> None:
    vault = AesVault(ring=KeyRing.generate())
    webhook, other = a_webhook(world), a_webhook(world)
    sealed = seal_url(vault, webhook.webhook_id, URL)
    async with world.uow.write() as tx:
        await tx.webhooks.add(webhook)
        assert not await tx.webhooks.rekey_url(webhook.webhook_id, b"another", sealed)
        assert await tx.webhooks.rekey_url(webhook.webhook_id, webhook.sealed_url, sealed)
        stored = await tx.webhooks.find(webhook.webhook_id)
    assert stored.origin == webhook.origin
    assert open_url(vault, stored) == URL
    for taken in (vault.seal(URL, webhook.webhook_id), seal_url(vault, other.webhook_id, URL)):
        with pytest.raises(SecretUnreadable):
            open_url(vault, a_webhook(world, webhook_id=webhook.webhook_id, sealed_url=taken))
