"""Being an API key."""

from __future__ import annotations

import pytest

from domain.kernel.caller import SessionCaller
from domain.kernel.errors import Unauthenticated
from domain.keys.model import compose_key
from support.http import HttpWorld


class CountingUow:
    """Counts the transactions that are begun."""

    def __init__(self, inner: object) -> None:
        self.inner = inner
        self.reads = 0
        self.writes = 0

    def read(self, *, one_statement: bool = False) -> object:
        self.reads += 1
        return self.inner.read(one_statement=one_statement)  # type: ignore[attr-defined]

    def write(self, caller: object) -> object:
        self.writes += 1
        return self.inner.write(caller)  # type: ignore[attr-defined]


async def test_a_key_authenticates_as_itself_in_its_account(world: HttpWorld, owner: SessionCaller) -> None:
    made = await world.keys.create(owner, "CI")
    caller = await world.callers.authenticate_key(made.secret, "192.0.2.7")
    assert (caller.account_id, caller.key_id, caller.name, caller.address) == (
        owner.account_id,
        made.key.key_id,
        "CI",
        "192.0.2.7",
    )


async def test_a_mistyped_key_is_rejected_without_a_look_up(world: HttpWorld, owner: SessionCaller) -> None:
    counting = CountingUow(world.uow)
    world.callers.uow = counting
    for text in ("sk_live_short", compose_key("a" * 40)[:-1] + "!", "sk_test_" + "a" * 46):
        with pytest.raises(Unauthenticated):
            await world.callers.authenticate_key(text, "")
    assert counting.reads == 0


async def test_a_present_secret_costs_one_look_up(world: HttpWorld, owner: SessionCaller) -> None:
    made = await world.keys.create(owner, "CI", expires_ms=world.clock.now_ms() + 1, allowed_networks=["192.0.2.0/24"])
    new = await world.keys.rotate(owner, made.key.key_id)
    counting = world.callers.uow = CountingUow(world.uow)
    await world.callers.authenticate_key(new.secret, "192.0.2.7")
    assert (counting.reads, counting.writes) == (1, 0)
    await world.callers.authenticate_key(made.secret, "192.0.2.7")
    assert (counting.reads, counting.writes) == (3, 0)


async def test_a_disabled_or_deleted_key_is_rejected_from_the_next_call_on(world: HttpWorld, owner: SessionCaller) -> None:
    made = await world.keys.create(owner, "CI")
    await world.keys.update(owner, made.key.key_id, enabled=False)
    with pytest.raises(Unauthenticated):
        await world.callers.authenticate_key(made.secret, "")
    await world.keys.update(owner, made.key.key_id, enabled=True)
    await world.callers.authenticate_key(made.secret, "")
    await world.keys.delete(owner, made.key.key_id)
    with pytest.raises(Unauthenticated):
        await world.callers.authenticate_key(made.secret, "")


async def test_last_use_is_written_in_batches_not_per_call(world: HttpWorld, owner: SessionCaller) -> None:
    made = await world.keys.create(owner, "CI")
    counting = CountingUow(world.uow)
    world.callers.uow = counting
    for _ in range(100):
        await world.callers.authenticate_key(made.secret, "")
    assert counting.writes == 0
    await world.callers.flush_last_used()
    await world.callers.flush_last_used()
    assert counting.writes == 1
    [kept] = await world.keys.list(owner)
    assert kept.last_used_ms == world.clock.now_ms()


async def test_last_use_is_kept_when_a_write_fails(world: HttpWorld, owner: SessionCaller) -> None:
    made = await world.keys.create(owner, "CI")
    await world.callers.authenticate_key(made.secret, "")

    class Broken:
        def write(self, caller: object) -> object:
            raise RuntimeError("disk full")

    world.callers.uow, working = Broken(), world.callers.uow
    with pytest.raises(RuntimeError):
        await world.callers.flush_last_used()
    world.callers.uow = working
    await world.callers.flush_last_used()
    assert [key.last_used_ms for key in await world.keys.list(owner)] == [world.clock.now_ms()]
