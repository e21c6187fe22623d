"""Passkeys and the challenges that were used."""

from __future__ import annotations

from dataclasses import replace

import pytest

from domain.kernel.errors import Conflict
from domain.sign_in.model import Passkey, VerifiedPasskeyChallenge
from support.storage import NOW, StoredAccount, new_id


def a_passkey(world: StoredAccount) -> Passkey:
    return Passkey(new_id("pky"), world.user.user_id, b"\x00credential", b"\xa5key", 0, "Phone", ("internal", "usb"), True, NOW)


async def test_a_passkey_is_kept_found_by_its_credential_used_and_deleted(world: StoredAccount) -> None:
    passkey = a_passkey(world)
    async with world.uow.write(caller=None) as tx:
        assert not await tx.second_factors.is_enabled(world.user.user_id)
        await tx.passkeys.add(passkey)
        with pytest.raises(Conflict) as taken:
            await tx.passkeys.add(replace(passkey, passkey_id=new_id("pky")))
        assert taken.value.code == "PASSKEY_EXISTS"
    async with world.uow.write(caller=None) as tx:
        assert await tx.second_factors.is_enabled(world.user.user_id)
        assert not await tx.second_factors.has_totp(world.user.user_id)
        assert await tx.passkeys.find_by_credential(passkey.credential_id) == passkey
        assert await tx.passkeys.find_by_credential(b"other") is None
        await tx.passkeys.record_use(passkey.passkey_id, 7, NOW + 5)
        used = replace(passkey, sign_count=7, last_used_ms=NOW + 5)
        assert await tx.passkeys.get_for_update(passkey.passkey_id) == used
        assert list(await tx.passkeys.list_by_user(world.user.user_id)) == [used]
        assert not await tx.passkeys.delete(new_id("usr"), passkey.passkey_id)
        assert await tx.passkeys.delete(world.user.user_id, passkey.passkey_id)
        assert await tx.passkeys.get_for_update(passkey.passkey_id) is None
        assert not await tx.second_factors.is_enabled(world.user.user_id)


async def test_the_removal_of_all_factors_removes_passkeys(world: StoredAccount) -> None:
    async with world.uow.write(caller=None) as tx:
        await tx.passkeys.add(a_passkey(world))
        assert not await tx.second_factors.delete_totp(world.user.user_id)
        assert await tx.second_factors.delete_all(world.user.user_id)
        assert not await tx.second_factors.delete_all(world.user.user_id)
        assert list(await tx.passkeys.list_by_user(world.user.user_id)) == []


async def test_a_challenge_is_used_once_and_forgotten_after_its_time(world: StoredAccount) -> None:
    challenge = VerifiedPasskeyChallenge(b"hash", NOW)
    async with world.uow.write(caller=None) as tx:
        assert await tx.passkeys.use_challenge(challenge)
        assert not await tx.passkeys.use_challenge(replace(challenge, expires_ms=NOW + 1))
    async with world.uow.write(caller=None) as tx:
        assert not await tx.passkeys.use_challenge(challenge)
        assert await tx.passkeys.delete_challenges_older_than(NOW, 9) == 0
        assert await tx.passkeys.delete_challenges_older_than(NOW + 1, 9) == 1
        assert await tx.passkeys.use_challenge(challenge)
