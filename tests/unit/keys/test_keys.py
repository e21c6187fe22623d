"""Making API keys, and being one."""

from __future__ import annotations

import binascii
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.kernel.caller import Role, SessionCaller
from domain.kernel.errors import NotFound, PermissionDenied, Unauthenticated
from domain.keys.model import KEY_PREFIX, check_key_format, checksum, compose_key, display_prefix
from support.http import HttpWorld

LETTERS = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", min_size=40, max_size=40)


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


@given(LETTERS)
def test_a_composed_key_has_a_valid_format(random: str) -> None:
    check_key_format(compose_key(random))


@given(LETTERS, st.integers(8, 53), st.sampled_from("AZaz09"))
def test_one_wrong_character_is_detected(random: str, at: int, other: str) -> None:
    key = compose_key(random)
    if key[at] != other:
        with pytest.raises(Unauthenticated):
            check_key_format(key[:at] + other + key[at + 1 :])


@given(st.text(max_size=80))
def test_other_text_is_not_a_key(text: str) -> None:
    with pytest.raises(Unauthenticated):
        check_key_format(text)
    with pytest.raises(Unauthenticated):
        check_key_format(KEY_PREFIX + text[:45])


@given(LETTERS)
def test_the_checksum_is_the_crc_32_in_base_62_so_that_scanners_can_compute_it(random: str) -> None:
    digits = string.digits + string.ascii_uppercase + string.ascii_lowercase
    value = 0
    for digit in checksum(random):
        value = value * 62 + digits.index(digit)
    assert value == binascii.crc32(random.encode())


async def test_a_key_is_shown_once_and_only_its_hash_is_kept(world: HttpWorld, owner: SessionCaller) -> None:
    made = await world.keys.create(owner, " CI ")
    [kept] = await world.keys.list(owner)
    assert (kept.name, kept.prefix) == ("CI", display_prefix(made.secret))
    assert made.secret not in repr(kept)
    assert kept.secret_hash == world.digest.sha256(made.secret)
    assert made.secret not in repr(world.uow.emitted_events)


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


@pytest.mark.parametrize("role", [Role.MEMBER, Role.VIEWER])
async def test_members_see_keys_but_cannot_change_them(world: HttpWorld, owner: SessionCaller, role: Role) -> None:
    made = await world.keys.create(owner, "CI")
    caller = await world.join(owner, role, "grace@example.com")
    assert len(await world.keys.list(caller)) == 1
    for action in (
        world.keys.create(caller, "x"),
        world.keys.update(caller, made.key.key_id, name="x"),
        world.keys.delete(caller, made.key.key_id),
    ):
        with pytest.raises(PermissionDenied):
            await action


async def test_keys_of_another_account_are_not_found(world: HttpWorld, owner: SessionCaller) -> None:
    made = await world.keys.create(owner, "CI")
    other = (await world.account("eve@example.com", "Other")).owner.membership
    eve = SessionCaller(other.account_id, other.user_id, other.membership_id, Role.OWNER)
    assert list(await world.keys.list(eve)) == []
    for action in (world.keys.update(eve, made.key.key_id, name="x"), world.keys.delete(eve, made.key.key_id)):
        with pytest.raises(NotFound):
            await action


async def test_each_change_of_a_key_is_logged(world: HttpWorld, owner: SessionCaller) -> None:
    made = await world.keys.create(owner, "CI")
    await world.keys.update(owner, made.key.key_id, enabled=False)
    await world.keys.update(owner, made.key.key_id, enabled=False)
    await world.keys.delete(owner, made.key.key_id)
    reported = [event.kind for event in world.uow.emitted_events if event.kind.startswith("key_")]
    assert reported == ["key_created", "key_changed", "key_deleted"]
