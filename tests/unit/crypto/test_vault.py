"""Sealed secrets, before and after a rotation of the key ring."""

from __future__ import annotations

import pytest

from adapters.crypto.key_ring import KeyRing
from adapters.crypto.vault import AesVault
from domain.kernel.errors import Unavailable


def rotated(ring: KeyRing) -> KeyRing:
    return KeyRing((*KeyRing.generate().keys, *ring.keys))


def test_a_sealed_secret_opens_only_for_its_row() -> None:
    vault = AesVault(ring=KeyRing.generate())
    sealed = vault.seal("hünter2", "dev_1")
    assert vault.open(sealed, "dev_1") == "hünter2"
    assert b"nter2" not in sealed
    for bad, place in (
        (sealed, "dev_2"),
        (sealed[:-1], "dev_1"),
        (sealed[:-1] + bytes([sealed[-1] ^ 1]), "dev_1"),
        (b"", "x"),
        (b"\1\xff", "x"),
    ):
        with pytest.raises(Unavailable) as caught:
            vault.open(bad, place)
        assert caught.value.code == "SECRET_UNREADABLE"


def test_sealing_the_same_secret_twice_gives_different_bytes() -> None:
    vault = AesVault(ring=KeyRing.generate())
    assert vault.seal("a", "b") != vault.seal("a", "b")


def test_after_a_rotation_old_secrets_open_and_need_rekeying() -> None:
    ring = KeyRing.generate()
    old, new = AesVault(ring=ring), AesVault(ring=rotated(ring))
    sealed = old.seal("s", "dev_1")
    assert new.open(sealed, "dev_1") == "s"
    assert (old.needs_rekey(sealed), new.needs_rekey(sealed)) == (False, True)
    assert not new.needs_rekey(new.seal("s", "dev_1"))
