"""Password hashes, and how many are computed at once."""

from __future__ import annotations

import asyncio

from adapters.crypto.passwords import Argon2PasswordHasher
from domain.kernel.errors import Unavailable


async def test_argon2_knows_the_right_password_and_outdated_parameters() -> None:
    cheap, dear = Argon2PasswordHasher(memory_kib=8, passes=1), Argon2PasswordHasher(memory_kib=16, passes=1)
    made = await cheap.hash("pässword")
    assert made.startswith("$argon2id$")
    assert await dear.verify(made, "pässword")
    assert not await dear.verify(made, "password")
    assert not await dear.verify("no hash", "password")
    await cheap.verify_dummy("x")
    assert (cheap.needs_rehash(made), dear.needs_rehash(made), dear.needs_rehash("no hash")) == (False, True, True)
    cheap.close()
    dear.close()


async def test_a_flood_of_logins_is_rejected_instead_of_queued_without_bound() -> None:
    hasher = Argon2PasswordHasher(threads=1, queue=2, memory_kib=8, passes=1)
    results = await asyncio.gather(*(hasher.hash("x") for _ in range(20)), return_exceptions=True)
    assert sum(isinstance(result, Unavailable) for result in results) == 17
    await hasher.hash("and then it works again")
    hasher.close()
