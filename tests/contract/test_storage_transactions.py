"""Units of work: all or nothing, one winner, snapshots, and callbacks after the commit."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adapters.storage.errors import NestedWriteError, ReadOnlyTransactionError, TransactionClosedError
from domain.approvals.model import ApprovalStatus
from domain.commands.model import ExecutionStatus
from domain.kernel.domain_event import DomainEvent
from domain.sign_in.model import RefreshToken
from support.storage import (
    NOW,
    STORAGES,
    StoredAccount,
    a_grant,
    add_execution,
    an_account,
    an_approval,
    an_event,
    an_execution,
    open_storage,
    populate,
)


class Stop(Exception):
    pass


@pytest.mark.parametrize("background", [False, True])
async def test_a_committed_transaction_is_stored(storage: Any, background: bool) -> None:
    account = an_account()
    async with storage.write(background=background) as tx:
        await tx.accounts.add(account)
        assert await tx.accounts.get(account.account_id) == account
    async with storage.read() as tx:
        assert await tx.accounts.get(account.account_id) == account


async def test_an_exception_rolls_everything_back_and_reaches_the_caller(storage: Any) -> None:
    account, calls = an_account(), []

    async def fail() -> None:
        async with storage.write() as tx:
            await tx.accounts.add(account)
            tx.after_commit(lambda: calls.append(1))
            raise Stop

    with pytest.raises(Stop):
        await fail()
    async with storage.read() as tx:
        assert not await tx.accounts.has_any()
    assert calls == []


async def test_a_failing_transaction_does_not_affect_others(storage: Any) -> None:
    good = [an_account() for _ in range(20)]

    async def write(account: Any, fails: bool) -> None:
        async with storage.write() as tx:
            await tx.accounts.add(account)
            if fails:
                raise Stop

    bad = [an_account() for _ in range(20)]
    work = [write(a, fails) for pair in zip(good, bad, strict=True) for a, fails in zip(pair, (False, True), strict=True)]
    results = await asyncio.gather(*work, return_exceptions=True)
    assert sum(isinstance(result, Stop) for result in results) == 20
    assert sum(result is None for result in results) == 20
    async with storage.read() as tx:
        assert set(await tx.accounts.list_ids()) == {account.account_id for account in good}


async def test_a_cancelled_transaction_stores_nothing_and_blocks_nothing(storage: Any) -> None:
    entered, account = asyncio.Event(), an_account()

    async def hang() -> None:
        async with storage.write() as tx:
            await tx.accounts.add(account)
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hang())
    await entered.wait()
    waiting = asyncio.create_task(_add(storage, an_account()))
    await asyncio.sleep(0)
    waiting.cancel()
    task.cancel()
    await asyncio.gather(task, waiting, return_exceptions=True)
    other = an_account()
    await _add(storage, other)
    async with storage.read() as tx:
        assert await tx.accounts.list_ids() == [other.account_id]


async def _add(storage: Any, account: Any) -> None:
    async with storage.write() as tx:
        await tx.accounts.add(account)


async def test_a_reader_keeps_the_snapshot_it_began_with(world: StoredAccount) -> None:
    async with world.uow.read() as tx:
        assert await tx.devices.count(world.account.account_id) == 1
        async with world.uow.write() as writing:
            await writing.devices.delete(world.device.device_id, NOW)
        assert await tx.devices.count(world.account.account_id) == 1
    async with world.uow.read() as tx:
        assert await tx.devices.count(world.account.account_id) == 0


async def test_a_reader_sees_nothing_of_an_open_transaction(world: StoredAccount) -> None:
    async with world.uow.write() as writing:
        await writing.devices.set_relay_many({world.device.device_id: True}, 5)
        async with world.uow.read() as tx:
            device = await tx.devices.find(world.device.device_id)
            assert device.relay is None


async def test_writing_in_a_read_transaction_is_rejected(world: StoredAccount) -> None:
    emitted = DomainEvent(world.account.account_id, "login_failed", "no", NOW, "user")
    for write in (
        lambda tx: tx.devices.set_online(world.device.device_id, True),
        lambda tx: tx.events.append_many([an_event(world)]),
        lambda tx: tx.readings.add_many([(1, NOW, 1, b"x")]),
        lambda tx: tx.emit(emitted),
    ):
        async with world.uow.read() as tx:
            with pytest.raises(ReadOnlyTransactionError):
                await write(tx)


async def test_a_transaction_cannot_be_used_after_its_end(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        pass
    with pytest.raises(TransactionClosedError):
        await tx.devices.find(world.device.device_id)


async def test_a_second_transaction_inside_the_first_is_an_error_at_once(storage: Any) -> None:
    async with storage.write():
        with pytest.raises(NestedWriteError):
            async with storage.write():
                pass


async def test_callbacks_after_the_commit_run_in_order_and_see_it(storage: Any) -> None:
    account, order = an_account(), []
    async with storage.write() as tx:
        await tx.accounts.add(account)
        tx.after_commit(lambda: order.append("first"))
        tx.after_commit(lambda: order.append("second"))
        assert order == []
    assert order == ["first", "second"]


async def test_a_callback_that_raises_after_the_commit_undoes_nothing(storage: Any) -> None:
    order: list[str] = []

    def fail() -> None:
        raise Stop

    async with storage.write() as tx:
        tx.after_commit(fail)
        tx.after_commit(lambda: order.append("next"))
    assert order == ["next"]


@pytest.mark.parametrize("kind", STORAGES)
async def test_events_go_to_the_dispatcher_inside_the_transaction(kind: str, tmp_path: Path) -> None:
    class Dispatcher:
        async def dispatch(self, tx: Any, domain_events: list[DomainEvent]) -> None:
            await tx.events.append_many([an_event(world, kind=event.kind) for event in domain_events])

    async with open_storage(kind, tmp_path, Dispatcher()) as uow:
        world = await populate(uow)
        event = DomainEvent(world.account.account_id, "grant_created", "granted", NOW, "user")

        async def emit(*, fails: bool) -> None:
            async with uow.write() as tx:
                tx.emit(event)
                if fails:
                    raise Stop

        await emit(fails=False)
        with pytest.raises(Stop):
            await emit(fails=True)
        async with uow.read() as tx:
            assert [event.kind for event in await tx.events.page(world.account.account_id, limit=9)] == ["grant_created"]


async def test_a_hundred_callers_spend_a_token_once(world: StoredAccount) -> None:
    token = RefreshToken(b"h", "fam", world.user.user_id, world.membership.membership_id, NOW, NOW + 9)
    async with world.uow.write() as tx:
        await tx.refresh_tokens.add(token)
    assert await _winners(world, lambda tx: tx.refresh_tokens.mark_spent(b"h", NOW)) == 1


async def test_a_hundred_callers_decide_an_approval_once(world: StoredAccount) -> None:
    approval = an_approval(world)
    async with world.uow.write() as tx:
        await tx.approvals.add(approval)
    decided = replace(approval, status=ApprovalStatus.APPROVED, decided_by="user:usr_1", decided_ms=NOW)
    assert await _winners(world, lambda tx: tx.approvals.decide_if_pending(decided)) == 1


async def test_a_hundred_callers_advance_an_execution_once(world: StoredAccount) -> None:
    async with world.uow.write() as tx:
        execution = await add_execution(tx, an_execution(world))
    sent = replace(execution, status=ExecutionStatus.SENT, sent_ms=NOW)
    assert await _winners(world, lambda tx: tx.executions.transition_many([(sent, ExecutionStatus.QUEUED)])) == 1


async def test_a_hundred_callers_save_one_version_of_a_device_once(world: StoredAccount) -> None:
    assert await _winners(world, lambda tx: tx.devices.save(world.device)) == 1


async def test_a_hundred_callers_use_a_limited_grant_as_often_as_it_allows(world: StoredAccount) -> None:
    grant = a_grant(world)
    async with world.uow.write() as tx:
        await tx.grants.add(grant)

    async def use(tx: Any) -> bool:
        if len(await tx.grants.list_recent_uses(grant, NOW - 1, NOW + 9, 7)) == 7:
            return False
        await tx.grants.add_use(grant.grant_id, NOW)
        return True

    assert await _winners(world, use) == 7


async def _winners(world: StoredAccount, attempt: Any) -> int:
    async def one() -> bool:
        async with world.uow.write() as tx:
            return bool(await attempt(tx))

    return sum(await asyncio.gather(*[one() for _ in range(100)]))
