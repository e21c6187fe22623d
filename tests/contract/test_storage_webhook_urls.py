"""Plain webhook URLs of an older version are sealed in batches, on every storage."""

from __future__ import annotations

import pytest

from adapters.crypto.key_ring import KeyRing
from adapters.crypto.vault import AesVault
from domain.kernel.errors import SecretUnreadable, Unavailable
from domain.webhooks import url_sealing_migration
from domain.webhooks.model import open_url, seal_url
from domain.webhooks.url_sealing_migration import WebhookUrlSealingMigration
from support.storage import StoredAccount, a_webhook

URL = "https://example.org:8443/hook?token=secret"


class VaultThatFails(AesVault):
    remaining = 3

    def seal(self, secret: str, bound_to: str) -> bytes:
        self.remaining -= 1
        if self.remaining < 0:
            raise Unavailable("stopped here")
        return super().seal(secret, bound_to)


async def test_an_interrupted_start_leaves_whole_batches_and_the_next_one_seals_the_rest(
    world: StoredAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(url_sealing_migration, "SEAL_BATCH_ROWS", 2)
    ring = KeyRing.generate()
    vault = AesVault(ring=ring)
    plain = [a_webhook(world, origin=URL, sealed_url=None) for _ in range(5)]
    new = a_webhook(world)
    new_url = seal_url(vault, new.webhook_id, "https://example.org/new")
    async with world.uow.write() as tx:
        for webhook in (*plain, a_webhook(world, webhook_id=new.webhook_id, sealed_url=new_url)):
            await tx.webhooks.add(webhook)
        assert await tx.webhooks.count_sealed() == 7
    with pytest.raises(Unavailable):
        await WebhookUrlSealingMigration(uow=world.uow, vault=VaultThatFails(ring)).run()
    async with world.uow.read() as tx:
        assert len(await tx.webhooks.list_unsealed(10)) == 3
        assert await tx.webhooks.count_sealed() == 9

    assert await WebhookUrlSealingMigration(uow=world.uow, vault=vault).run() == 3
    async with world.uow.read() as tx:
        stored = [await tx.webhooks.find(webhook.webhook_id) for webhook in plain]
        assert (await tx.webhooks.find(new.webhook_id)).sealed_url == new_url
        assert await tx.webhooks.list_unsealed(10) == []
    for webhook in stored:
        assert (webhook.origin, webhook.host) == ("https://example.org:8443", "example.org:8443")
        assert open_url(vault, webhook) == URL
    assert await WebhookUrlSealingMigration(uow=world.uow, vault=vault).run() == 0


async def test_a_sealed_url_is_of_its_webhook_and_is_replaced_only_as_it_was_read(world: StoredAccount) -> None:
    vault = AesVault(ring=KeyRing.generate())
    webhook, other = a_webhook(world), a_webhook(world)
    sealed = seal_url(vault, webhook.webhook_id, URL)
    async with world.uow.write() as tx:
        await tx.webhooks.add(webhook)
        assert not await tx.webhooks.rekey_url(webhook.webhook_id, b"another", sealed)
        assert await tx.webhooks.rekey_url(webhook.webhook_id, webhook.sealed_url, sealed)
        await tx.webhooks.seal_url(webhook.webhook_id, "https://example.com", b"late")
        stored = await tx.webhooks.find(webhook.webhook_id)
    assert stored.origin == webhook.origin
    assert open_url(vault, stored) == URL
    for taken in (vault.seal(URL, webhook.webhook_id), seal_url(vault, other.webhook_id, URL)):
        with pytest.raises(SecretUnreadable):
            open_url(vault, a_webhook(world, webhook_id=webhook.webhook_id, sealed_url=taken))
