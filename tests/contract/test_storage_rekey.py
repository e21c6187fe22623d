"""Stored secrets after a key rotation, on every storage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from adapters.crypto.key_ring import KeyRing
from adapters.crypto.vault import AesVault, sealing_key_id
from domain.devices.model import DeviceCredentials
from domain.kernel.idempotency import StoredResponse
from domain.secrets.rekey import RekeyService
from domain.webhooks.model import open_url, seal_url
from support.storage import NOW, StoredAccount, a_device, a_webhook

URL = "https://example.org/hook?token=secret"


async def filled(world: StoredAccount, vault: AesVault, devices: int) -> list[str]:
    made = []
    async with world.uow.write() as tx:
        for number in range(devices):
            device = await tx.devices.add(a_device(world.account.account_id, world.project.project_id))
            await tx.credentials.upsert(
                DeviceCredentials(device.device_id, vault.seal(f"password {number}", device.device_id), NOW)
            )
            made.append(device.device_id)
    return made


async def test_rekeying_encrypts_every_secret_with_the_new_key(world: StoredAccount) -> None:
    ring = KeyRing.generate()
    devices = await filled(world, AesVault(ring=ring), 450)
    hook_row = a_webhook(world)
    hook_row = type(hook_row)(
        **{n: getattr(hook_row, n) for n in hook_row.__slots__}
        | {
            "sealed_secret": AesVault(ring=ring).seal("whsec", hook_row.webhook_id),
            "sealed_url": seal_url(AesVault(ring=ring), hook_row.webhook_id, URL),
        }
    )
    sealed_response = AesVault(ring=ring).seal("response", "answer:user:1:key")
    response = StoredResponse("user:1", "key", b"hash", 201, sealed_response, NOW)
    claim = replace(response, key="claim", status=None, body=b"a process")
    async with world.uow.write() as tx:
        await tx.webhooks.add(hook_row)
        assert await tx.stored_responses.claim(response)
        assert await tx.stored_responses.claim(claim)
    vault = AesVault(ring=ring.with_new_key())
    seen: list[int] = []
    service = RekeyService(uow=world.uow, vault=vault, key_of=sealing_key_id)
    report = await service.run(seen.append)
    assert (report.checked, report.rekeyed, report.unreadable) == (453, 453, [])
    assert seen == sorted(seen)
    assert await service.count_secrets() == seen[-1] == 453
    only_new = AesVault(ring=KeyRing((vault.ring.newest,)))
    async with world.uow.read() as tx:
        stored = [await tx.credentials.get_for_update(device_id) for device_id in devices]
        webhook = await tx.webhooks.find(hook_row.webhook_id)
        kept = await tx.stored_responses.get("user:1", "key")
        assert await tx.stored_responses.get("user:1", "claim") == claim  # it has no response, so nothing is sealed
    assert only_new.open(kept.body, kept.seal_context) == "response"
    async with world.uow.write() as tx:
        assert not await tx.stored_responses.rekey(response, b"ours"), "it has changed meanwhile"
        assert list(await tx.stored_responses.page(kept, 9)) == []
    assert [only_new.open(found.sealed, found.device_id) for found in stored] == [f"password {n}" for n in range(450)]
    assert only_new.open(webhook.sealed_secret, webhook.webhook_id) == "whsec"
    assert open_url(only_new, webhook) == URL
    assert (await service.run(seen.append)).rekeyed == 0


async def test_rekeying_keeps_a_secret_that_changes_meanwhile(world: StoredAccount) -> None:
    vault = AesVault(ring=KeyRing.generate())
    (device_id,) = await filled(world, vault, 1)
    async with world.uow.write() as tx:
        before = await tx.credentials.get_for_update(device_id)
        theirs = vault.seal("theirs", device_id)
        await tx.credentials.upsert(DeviceCredentials(device_id, theirs, NOW))
        assert not await tx.credentials.rekey(device_id, before.sealed, b"ours")
        assert (await tx.credentials.get_for_update(device_id)).sealed == theirs
        assert await tx.credentials.rekey(device_id, theirs, b"ours")


async def test_rekeying_reports_and_keeps_a_secret_that_no_key_decrypts(world: StoredAccount) -> None:
    (device_id,) = await filled(world, AesVault(ring=KeyRing.generate()), 1)
    service = RekeyService(uow=world.uow, vault=AesVault(ring=KeyRing.generate()), key_of=sealing_key_id)
    report: Any = await service.run(lambda seen: None)
    assert (report.rekeyed, report.unreadable) == (0, [device_id])
    assert sum((await service.survey()).by_key.values()) == 1
