"""The key ring: its file, and what it shows of itself."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest

from adapters.crypto.key_ring import KeyRing, KeyRingFile


def test_the_key_ring_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    made = KeyRingFile(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert KeyRingFile(path).keys == made.keys
    path.chmod(0o644)
    with pytest.raises(PermissionError):
        KeyRingFile(path)


@pytest.mark.parametrize("text", ["", "secret", "k1:AAAA", "key1:!!!!", "key1:" + base64.b64encode(b"x" * 31).decode()])
def test_an_invalid_key_ring_is_rejected_without_quoting_it(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        KeyRing.parse(text)
    assert not text or text.partition(":")[2] not in str(caught.value) or ":" not in text


def test_two_keys_with_the_same_id_are_rejected() -> None:
    text = KeyRing.generate().to_text()
    with pytest.raises(ValueError, match="same id"):
        KeyRing.parse(f"{text},{text}")


def test_a_key_ring_does_not_show_its_secrets() -> None:
    ring = KeyRing.generate()
    assert repr(ring.newest.secret) not in repr(ring)
