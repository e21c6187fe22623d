"""Webhooks, deliveries and attempts."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from domain.kernel.clock import TimeSpan
from domain.webhooks.model import WebhookDeliveryState, WebhookRecovery
from support.storage import NOW, StoredAccount, a_delivery, a_key, a_webhook, an_attempt, new_id


async def test_a_webhook_comes_back_as_it_went_in(world: StoredAccount) -> None:
    first, second = a_webhook(world), a_webhook(world)
    async with world.uow.write() as tx:
        await tx.webhooks.add(first)
        await tx.webhooks.add(second)
        assert await tx.webhooks.get(world.account.account_id, first.webhook_id) == first
        assert await tx.webhooks.get(new_id("acc"), first.webhook_id) is None
        assert list(await tx.webhooks.list_by_account(world.account.account_id)) == [first, second]
        changed = replace(first, enabled=False, disabled_reason="gone", failing_since_ms=NOW, generation=2, sealed_secret=b"n")
        await tx.webhooks.save(changed)
        assert await tx.webhooks.find(first.webhook_id) == changed


async def test_enabled_webhooks_have_an_enabled_key(world: StoredAccount) -> None:
    off = a_key(world.account.account_id, enabled=False)
    live, disabled = a_webhook(world), a_webhook(world, enabled=False)
    async with world.uow.write() as tx:
        await tx.api_keys.add(off)
        for webhook in (live, disabled, a_webhook(world, key_id=off.key_id)):
            await tx.webhooks.add(webhook)
        assert list(await tx.webhooks.list_enabled([world.account.account_id, new_id("acc")])) == [(live, None)]
        assert list(await tx.webhooks.list_enabled([new_id("acc")])) == []


async def test_due_deliveries_are_claimed_once_oldest_first(world: StoredAccount) -> None:
    webhook, busy = a_webhook(world), a_webhook(world)
    async with world.uow.write() as tx:
        await tx.webhooks.add(webhook)
        await tx.webhooks.add(busy)
        await tx.deliveries.add_many([a_delivery(webhook, due_ms=NOW + offset) for offset in (0, -5, 5)])
        await tx.deliveries.add_many([a_delivery(busy, due_ms=NOW - 9)])
        assert await tx.deliveries.next_due_ms() == NOW - 9
        claimed = await tx.deliveries.claim(NOW, NOW + 60, 9, busy=[busy.webhook_id])
        assert [(one.due_ms, one.claimed_until_ms) for one in claimed] == [(NOW - 5, NOW + 60), (NOW, NOW + 60)]
        assert await tx.deliveries.get(claimed[0].no) == claimed[0]
        assert list(await tx.deliveries.claim(NOW, NOW + 60, 9, busy=[busy.webhook_id])) == []
        assert len(await tx.deliveries.claim(NOW, NOW + 60, 9)) == 1


async def test_a_delivery_is_claimed_again_after_its_lease(world: StoredAccount) -> None:
    webhook = a_webhook(world)
    async with world.uow.write() as tx:
        await tx.webhooks.add(webhook)
        await tx.deliveries.add_many([a_delivery(webhook)])
        await tx.deliveries.claim(NOW, NOW + 60, 9)
        assert await tx.deliveries.next_due_ms() == NOW + 60
        assert list(await tx.deliveries.claim(NOW + 59, NOW + 99, 9)) == []
        assert len(await tx.deliveries.claim(NOW + 60, NOW + 99, 9)) == 1


async def test_concurrent_claimants_share_and_never_overlap(world: StoredAccount) -> None:
    webhook = a_webhook(world)
    async with world.uow.write() as tx:
        await tx.webhooks.add(webhook)
        await tx.deliveries.add_many([a_delivery(webhook) for _ in range(50)])

    async def claim() -> list[int]:
        async with world.uow.write() as tx:
            return [one.no for one in await tx.deliveries.claim(NOW, NOW + 60, 7)]

    numbers = [no for claimed in await asyncio.gather(*[claim() for _ in range(20)]) for no in claimed]
    assert len(numbers) == len(set(numbers)) == 50


async def test_a_delivery_finishes_once_and_drops_its_lease(world: StoredAccount) -> None:
    webhook = a_webhook(world)
    async with world.uow.write() as tx:
        await tx.webhooks.add(webhook)
        await tx.deliveries.add_many([a_delivery(webhook)])
        [claimed] = await tx.deliveries.claim(NOW, NOW + 60, 9)
        again = replace(claimed, attempts=1, due_ms=NOW + 5)
        await tx.deliveries.finish_many([again])
        free = replace(again, claimed_until_ms=None)
        assert await tx.deliveries.get(claimed.no) == free
        assert await tx.deliveries.next_due_ms() == NOW + 5
        await tx.deliveries.finish_many([replace(again, attempts=7)])
        assert await tx.deliveries.get(claimed.no) == free
        done = replace(free, state=WebhookDeliveryState.DELIVERED, attempts=2)
        await tx.deliveries.finish_many([done])
        await tx.deliveries.finish_many([free, replace(free, no=999_999)])
        assert await tx.deliveries.get(claimed.no) == done
        assert await tx.deliveries.next_due_ms() is None


async def test_an_instance_that_lost_a_delivery_cannot_change_it(world: StoredAccount) -> None:
    webhook = a_webhook(world)
    async with world.uow.write() as tx:
        await tx.webhooks.add(webhook)
        await tx.deliveries.add_many([a_delivery(webhook)])
        [lost] = await tx.deliveries.claim(NOW, NOW + 60, 9)
        [held] = await tx.deliveries.claim(NOW + 60, NOW + 120, 9)
        late = replace(lost, state=WebhookDeliveryState.GIVEN_UP, attempts=6)
        await tx.deliveries.finish_many([late])
        assert await tx.deliveries.get(held.no) == held
        await tx.deliveries.finish_many([replace(held, attempts=1, due_ms=NOW + 200)])
        await tx.deliveries.finish_many([late, held])
        assert await tx.deliveries.get(held.no) == replace(held, attempts=1, due_ms=NOW + 200, claimed_until_ms=None)


async def test_pending_deliveries_can_be_cancelled(world: StoredAccount) -> None:
    webhook = a_webhook(world)
    async with world.uow.write() as tx:
        await tx.webhooks.add(webhook)
        await tx.deliveries.add_many([a_delivery(webhook)])
        [claimed] = await tx.deliveries.claim(NOW, NOW + 60, 9)
        assert await tx.deliveries.has_pending(webhook.webhook_id)
        assert await tx.deliveries.cancel_pending(webhook.webhook_id, 9) == 1
        assert not await tx.deliveries.has_pending(webhook.webhook_id)
        assert await tx.deliveries.cancel_pending(webhook.webhook_id, 9) == 0
        await tx.deliveries.finish_many([claimed])
        assert (await tx.deliveries.get(claimed.no)).state is WebhookDeliveryState.CANCELLED


async def test_a_deleted_webhook_gets_no_deliveries(world: StoredAccount) -> None:
    webhook = a_webhook(world)
    async with world.uow.write() as tx:
        await tx.deliveries.add_many([a_delivery(webhook)])
        assert await tx.deliveries.next_due_ms() is None
        await tx.webhooks.add(webhook)
        await tx.deliveries.add_many([a_delivery(webhook)])
        [claimed] = await tx.deliveries.claim(NOW, NOW + 60, 9)
        attempt = an_attempt(claimed)
        await tx.deliveries.add_attempts([attempt])
        await tx.webhooks.delete(webhook.webhook_id)
        await tx.deliveries.add_many([a_delivery(webhook)])
        assert await tx.deliveries.delete_batch_by_webhook(webhook.webhook_id, 9) == [claimed.no]
        assert await tx.deliveries.get(claimed.no) is None
        assert await tx.deliveries.get_attempt(webhook.webhook_id, attempt.delivery_id) is None


async def test_deliveries_of_a_deleted_webhook_are_found_and_deleted_in_batches(world: StoredAccount) -> None:
    hooks = sorted((a_webhook(world) for _ in range(3)), key=lambda hook_row: hook_row.webhook_id)
    async with world.uow.write() as tx:
        assert await tx.deliveries.find_orphaned_webhook_id() is None
        for hook_row in hooks:
            await tx.webhooks.add(hook_row)
            await tx.deliveries.add_many([a_delivery(hook_row) for _ in range(3)])
        assert await tx.deliveries.find_orphaned_webhook_id() is None
        claimed = await tx.deliveries.claim(NOW, NOW + 60, 9)
        await tx.deliveries.add_attempts([an_attempt(one) for one in claimed])
        gone = hooks[1].webhook_id
        await tx.webhooks.delete(gone)
        assert await tx.deliveries.find_orphaned_webhook_id() == gone
        first, second, third = (one.no for one in claimed if one.webhook_id == gone)
        assert await tx.deliveries.delete_batch_by_webhook(gone, 2, after=first) == [second, third]
        assert await tx.deliveries.delete_batch_by_webhook(gone, 2, after=third) == []
        assert await tx.deliveries.delete_batch_by_webhook(gone, 2) == [first]
        assert await tx.deliveries.find_orphaned_webhook_id() is None
        assert len(await tx.deliveries.list_attempts(hooks[0].webhook_id, 9)) == 3
        assert not await tx.deliveries.list_attempts(gone, 9)


async def test_deliveries_of_a_deleted_key_are_orphaned(world: StoredAccount) -> None:
    key = a_key(world.account.account_id)
    webhook = a_webhook(world, key_id=key.key_id)
    async with world.uow.write() as tx:
        await tx.api_keys.add(key)
        await tx.webhooks.add(webhook)
        await tx.deliveries.add_many([a_delivery(webhook)])
        await tx.api_keys.delete(key.key_id)
        assert await tx.webhooks.find(webhook.webhook_id) is None
        assert await tx.deliveries.find_orphaned_webhook_id() == webhook.webhook_id


async def test_an_attempt_that_was_not_sent_is_deleted(world: StoredAccount) -> None:
    webhook = a_webhook(world)
    async with world.uow.write() as tx:
        await tx.webhooks.add(webhook)
        await tx.deliveries.add_many([a_delivery(webhook)])
        [claimed] = await tx.deliveries.claim(NOW, NOW + 60, 9)
        first, second = an_attempt(claimed), an_attempt(claimed, 2)
        await tx.deliveries.add_attempts([first, second])
        await tx.deliveries.delete_attempts([second.delivery_id, new_id("whd")])
        assert list(await tx.deliveries.list_attempts(webhook.webhook_id, 9)) == [first]
        at_ms = first.created_ms
        for span in (TimeSpan(at_ms), TimeSpan(at_ms + 1), TimeSpan(None, at_ms), TimeSpan(None, at_ms + 1)):
            found = await tx.deliveries.list_attempts(webhook.webhook_id, 9, None, span)
            assert bool(found) is span.contains(at_ms)


async def test_attempts_are_logged_newest_first_and_completed(world: StoredAccount) -> None:
    webhook = a_webhook(world)
    async with world.uow.write() as tx:
        await tx.webhooks.add(webhook)
        await tx.deliveries.add_many([a_delivery(webhook)])
        [claimed] = await tx.deliveries.claim(NOW, NOW + 60, 9)
        first, second = an_attempt(claimed), replace(an_attempt(claimed, 2), created_ms=NOW - 9)  # a clock that was set back
        await tx.deliveries.add_attempts([first, second])
        done = replace(first, finished_ms=NOW + 9, status_code=500, error="no", duration_ms=9, next_attempt_ms=NOW + 14)
        await tx.deliveries.finish_attempts([done, replace(second, delivery_id=new_id("whd"))])
        assert list(await tx.deliveries.list_attempts(webhook.webhook_id, 9)) == [second, done]
        assert list(await tx.deliveries.list_attempts(webhook.webhook_id, 1)) == [second]
        assert await tx.deliveries.get_attempt(webhook.webhook_id, first.delivery_id) == done
        assert await tx.deliveries.get_attempt(new_id("whk"), first.delivery_id) is None


async def test_finished_deliveries_are_deleted_with_their_attempts(world: StoredAccount) -> None:
    webhook = a_webhook(world)
    async with world.uow.write() as tx:
        await tx.webhooks.add(webhook)
        await tx.deliveries.add_many([a_delivery(webhook, created_ms=NOW + number) for number in range(4)])
        claimed = await tx.deliveries.claim(NOW, NOW + 60, 9)
        await tx.deliveries.add_attempts([an_attempt(one) for one in claimed])
        await tx.deliveries.finish_many([replace(one, state=WebhookDeliveryState.DELIVERED) for one in claimed[:3]])
        assert [await tx.deliveries.delete_older_than(NOW + 9, 2) for _ in range(3)] == [2, 1, 0]
        assert [one.delivery_no for one in await tx.deliveries.list_attempts(webhook.webhook_id, 9)] == [claimed[3].no]


async def test_finishing_many_deliveries_skips_finished_ones(world: StoredAccount) -> None:
    webhook = a_webhook(world)
    async with world.uow.write() as tx:
        await tx.webhooks.add(webhook)
        await tx.deliveries.add_many([a_delivery(webhook) for _ in range(3)])
        first, second, third = await tx.deliveries.claim(NOW, NOW + 60, 9)
        await tx.deliveries.finish_many([replace(third, state=WebhookDeliveryState.CANCELLED)])
        done = replace(first, state=WebhookDeliveryState.DELIVERED, attempts=1)
        again = replace(second, attempts=1, due_ms=NOW + 5)
        await tx.deliveries.finish_many([done, again, replace(third, state=WebhookDeliveryState.DELIVERED)])
        assert (await tx.deliveries.get(first.no)).state is WebhookDeliveryState.DELIVERED
        assert await tx.deliveries.get(second.no) == replace(again, claimed_until_ms=None)
        assert (await tx.deliveries.get(third.no)).state is WebhookDeliveryState.CANCELLED


async def test_a_busy_webhook_does_not_hide_the_others(world: StoredAccount) -> None:
    hooks = [a_webhook(world) for _ in range(5)]
    async with world.uow.write() as tx:
        for hook_row in hooks:
            await tx.webhooks.add(hook_row)
            await tx.deliveries.add_many([a_delivery(hook_row, due_ms=NOW + offset) for offset in (-1, 0, 5)])
        busy = [hooks[0].webhook_id, hooks[3].webhook_id]
        claimed = await tx.deliveries.claim(NOW, NOW + 60, 5, busy=busy)
        assert len(claimed) == 5
        assert not {one.webhook_id for one in claimed} & set(busy)
        assert len(await tx.deliveries.claim(NOW, NOW + 60, 5, busy=busy)) == 1
        assert len(await tx.deliveries.claim(NOW, NOW + 60, 9, busy=[hook_row.webhook_id for hook_row in hooks])) == 0


async def test_undelivered_deliveries_are_found_in_the_order_of_their_events(world: StoredAccount) -> None:
    webhook, other = a_webhook(world), a_webhook(world)
    states = WebhookDeliveryState
    async with world.uow.write() as tx:
        for one in (webhook, other):
            await tx.webhooks.add(one)
        made = [(NOW + 5, states.GIVEN_UP), (NOW + 1, states.CANCELLED), (NOW + 1, states.GIVEN_UP), (NOW + 2, states.DELIVERED)]
        made += [(NOW - 1, states.GIVEN_UP), (NOW + 9, states.GIVEN_UP), (NOW + 3, states.PENDING)]
        await tx.deliveries.add_many([a_delivery(webhook, created_ms=at_ms, state=state, attempts=6) for at_ms, state in made])
        await tx.deliveries.add_many([a_delivery(other, created_ms=NOW + 1, state=states.GIVEN_UP)])
        position = WebhookRecovery(webhook.webhook_id, webhook.account_id, NOW, 0, NOW + 8)
        assert await tx.deliveries.count_undelivered(position, 99) == 3
        assert await tx.deliveries.count_undelivered(position, 2) == 2
        found = []
        while (one := await tx.deliveries.find_undelivered(position)) is not None:
            found.append(one)
            position = replace(position, from_ms=one.created_ms, after_no=one.no)
        assert [one.created_ms for one in found] == [NOW + 1, NOW + 1, NOW + 5]
        assert found[0].no < found[1].no
        await tx.deliveries.revive(found[0].no, NOW + 7)
        revived = replace(found[0], state=states.PENDING, attempts=0, due_ms=NOW + 7)
        assert await tx.deliveries.get(found[0].no) == revived
        await tx.deliveries.revive(found[0].no, NOW + 99)
        assert await tx.deliveries.get(found[0].no) == revived
        assert [one.no for one in await tx.deliveries.claim(NOW + 7, NOW + 60, 9)][-1] == found[0].no


async def test_a_recovery_is_ready_when_its_delivery_has_ended(world: StoredAccount) -> None:
    webhooks = sorted((a_webhook(world) for _ in range(3)), key=lambda one: one.webhook_id)
    async with world.uow.write() as tx:
        for one in webhooks:
            await tx.webhooks.add(one)
            await tx.deliveries.add_many([a_delivery(one)])
        claimed = {one.webhook_id: one for one in await tx.deliveries.claim(NOW, NOW + 60, 9)}
        assert not await tx.recoveries.has_any()
        stored = [
            WebhookRecovery(one.webhook_id, one.account_id, NOW, 0, NOW + 8, claimed[one.webhook_id].no, 1, 2, 3)
            for one in webhooks
        ]
        stored[2] = replace(stored[2], current_no=None)
        for recovery in stored:
            await tx.recoveries.save(recovery)
        assert await tx.recoveries.has_any()
        assert await tx.recoveries.list_ready(None, 9) == [stored[2]]
        await tx.deliveries.finish_many([replace(claimed[webhooks[0].webhook_id], state=WebhookDeliveryState.DELIVERED)])
        assert await tx.recoveries.list_ready(None, 9) == [stored[0], stored[2]]
        assert await tx.recoveries.list_ready(None, 1) == [stored[0]]
        assert await tx.recoveries.list_ready(stored[0].webhook_id, 9) == [stored[2]]
        changed = replace(stored[0], from_ms=1, after_no=2, until_ms=3, current_no=None, sent=4, failed=5, failed_in_row=6)
        await tx.recoveries.save(changed)
        assert await tx.recoveries.get_for_update(changed.webhook_id) == changed
        await tx.recoveries.delete(changed.webhook_id)
        assert await tx.recoveries.get_for_update(changed.webhook_id) is None
        await tx.webhooks.delete(stored[2].webhook_id)
        assert await tx.recoveries.list_ready(None, 9) == []
