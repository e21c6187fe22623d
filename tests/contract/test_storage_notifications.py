"""Mails to members: settings and what is owed."""

from __future__ import annotations

from dataclasses import replace

from domain.notifications.model import Notification, NotificationSettings, NotificationTopic
from support.storage import NOW, StoredAccount, new_id


def a_notification(world: StoredAccount, **changes: object) -> Notification:
    of = world.membership.membership_id
    made = Notification(0, of, NotificationTopic.OFFLINE, world.device.device_id, "Pump: offline", "text", NOW)
    return replace(made, **changes)  # type: ignore[arg-type]


async def test_settings_are_kept_by_member_and_listed_by_account(world: StoredAccount) -> None:
    topics = (NotificationTopic.APPROVALS, NotificationTopic.OFFLINE)
    settings = NotificationSettings(
        world.membership.membership_id, world.account.account_id, topics, 7, 1320, 360, "Europe/Berlin"
    )
    async with world.uow.write(caller=None) as tx:
        assert await tx.notifications.get_settings(settings.membership_id) is None
        await tx.notifications.upsert_settings(replace(settings, topics=()))
        await tx.notifications.upsert_settings(settings)
        assert await tx.notifications.get_settings(settings.membership_id) == settings
        assert list(await tx.notifications.list_settings(world.account.account_id)) == [settings]
        assert list(await tx.notifications.list_settings(new_id("acc"))) == []


async def test_what_is_owed_is_due_in_order_postponed_and_deleted(world: StoredAccount) -> None:
    async with world.uow.write(caller=None) as tx:
        assert await tx.notifications.next_due_ms() is None
        for due_ms, subject in ((NOW + 9, "later"), (NOW - 1, "first"), (NOW, "second")):
            await tx.notifications.add_many([a_notification(world, due_ms=due_ms, subject=subject)])
        due = await tx.notifications.list_due(NOW, 9)
        assert [each.subject for each in due] == ["first", "second"]
        assert await tx.notifications.next_due_ms() == NOW - 1
        assert [each.subject for each in await tx.notifications.list_due(NOW, 1)] == ["first"]
        await tx.notifications.postpone(due[0].seq, NOW + 5, 1)
        await tx.notifications.delete(due[1].seq)
        [postponed, _] = await tx.notifications.list_due(NOW + 9, 9)
        assert postponed == replace(due[0], due_ms=NOW + 5, attempt=1)


async def test_a_device_that_returns_owes_nothing_for_being_offline(world: StoredAccount) -> None:
    async with world.uow.write(caller=None) as tx:
        await tx.notifications.add_many([a_notification(world)])
        await tx.notifications.add_many([a_notification(world, device_id=new_id("dev"))])
        await tx.notifications.add_many([a_notification(world, topic=NotificationTopic.DEVICES)])
        await tx.notifications.delete_offline([world.device.device_id])
        left = await tx.notifications.list_due(NOW, 9)
        assert [(each.topic, each.device_id == world.device.device_id) for each in left] == [
            (NotificationTopic.OFFLINE, False),
            (NotificationTopic.DEVICES, True),
        ]
