"""Notifications: settings, channels and what is owed; and the secrets of the installation itself."""

from __future__ import annotations

from dataclasses import replace

from domain.kernel.ids import ApprovalId, ChannelId, UserId
from domain.notifications.model import (
    ChannelErrorCode,
    Notification,
    NotificationChannel,
    NotificationChannelKind,
    NotificationSettings,
    NotificationTopic,
    UnconditionalTopic,
)
from support.storage import NOW, StoredAccount, new_id


def a_channel(world: StoredAccount, **changes: object) -> NotificationChannel:
    made = NotificationChannel(
        ChannelId(new_id("nch")),
        world.membership.membership_id,
        world.account.account_id,
        NotificationChannelKind.NTFY,
        "Phone",
        "ntfy.example",
        b"sealed",
        NOW,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def a_notification(world: StoredAccount, channel: str = "nch_1", **changes: object) -> Notification:
    device_id = world.device.device_id
    made = Notification(0, ChannelId(channel), NotificationTopic.OFFLINE, device_id, None, "Pump: offline", "text", NOW)
    return replace(made, **changes)  # type: ignore[arg-type]


async def test_settings_are_kept_by_member_and_listed_by_account(world: StoredAccount) -> None:
    topics = (NotificationTopic.APPROVALS, NotificationTopic.OFFLINE)
    settings = NotificationSettings(
        world.membership.membership_id, world.account.account_id, topics, 7, 1320, 360, "Europe/Berlin", "de"
    )
    async with world.uow.write(caller=None) as tx:
        assert await tx.notifications.get_settings(settings.membership_id) is None
        await tx.notifications.upsert_settings(replace(settings, topics=(), language="en"))
        await tx.notifications.upsert_settings(settings)
        assert await tx.notifications.get_settings(settings.membership_id) == settings
        assert list(await tx.notifications.list_settings(world.account.account_id)) == [settings]
        assert list(await tx.notifications.list_settings(new_id("acc"))) == []


async def test_what_is_owed_is_due_in_order_postponed_and_deleted(world: StoredAccount) -> None:
    async with world.uow.write(caller=None) as tx:
        assert await tx.notifications.next_due_ms() is None
        for due_ms, subject in ((NOW + 9, "later"), (NOW - 1, "first"), (NOW, "second")):
            owed = a_notification(world, due_ms=due_ms, subject=subject, approval_id=ApprovalId("apv_1"))
            await tx.notifications.add_many([owed])
        due = await tx.notifications.list_due(NOW, 9)
        assert [(each.subject, each.approval_id) for each in due] == [("first", "apv_1"), ("second", "apv_1")]
        assert await tx.notifications.next_due_ms() == NOW - 1
        assert [each.subject for each in await tx.notifications.list_due(NOW, 1)] == ["first"]
        assert await tx.notifications.count() == 3
        await tx.notifications.postpone([due[0].seq], NOW + 5, 1)
        await tx.notifications.delete([due[1].seq])
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


async def test_channels_are_listed_in_their_order_with_their_last_result(world: StoredAccount) -> None:
    first, second = a_channel(world), a_channel(world, kind=NotificationChannelKind.MAIL, sealed=None, created_ms=NOW + 1)
    async with world.uow.write(caller=None) as tx:
        channels = tx.notification_channels
        await channels.add(second)
        await channels.add(first)
        assert list(await channels.list_by_member(world.membership.membership_id)) == [first, second]
        assert {each.channel_id for each in await channels.list_by_account(world.account.account_id)} == {
            first.channel_id,
            second.channel_id,
        }
        assert list(await channels.list_by_account(new_id("acc"))) == []
        await channels.record_error(first.channel_id, ChannelErrorCode.NO_RESPONSE, "no response", NOW + 2)
        failed = replace(first, last_error="no response", last_error_code=ChannelErrorCode.NO_RESPONSE, last_error_ms=NOW + 2)
        assert await channels.get(first.channel_id) == failed
        await channels.record_sent(first.channel_id, NOW + 3)
        assert await channels.get(first.channel_id) == replace(first, last_sent_ms=NOW + 3)
        await channels.delete(first.channel_id)
        assert await channels.get(first.channel_id) is None


async def test_what_is_owed_is_counted_by_channel_of_an_account(world: StoredAccount) -> None:
    channel = a_channel(world)
    async with world.uow.write(caller=None) as tx:
        await tx.notification_channels.add(channel)
        assert dict(await tx.notification_channels.count_pending(world.account.account_id)) == {}
        await tx.notifications.add_many([a_notification(world, channel.channel_id) for _ in range(3)])
        await tx.notifications.add_many([a_notification(world, "nch_of_another")])
        assert dict(await tx.notification_channels.count_pending(world.account.account_id)) == {channel.channel_id: 3}


async def test_a_removed_member_keeps_no_channel(world: StoredAccount) -> None:
    channel = a_channel(world)
    async with world.uow.write(caller=None) as tx:
        await tx.notification_channels.add(channel)
        await tx.memberships.delete(world.membership.membership_id)
    async with world.uow.read() as tx:
        assert await tx.notification_channels.get(channel.channel_id) is None


async def test_a_secret_of_the_installation_is_made_once_and_replaced_only_if_unchanged(world: StoredAccount) -> None:
    async with world.uow.write(caller=None) as tx:
        assert await tx.service_secrets.get("vapid") is None
        await tx.service_secrets.add_if_absent("vapid", b"one")
        await tx.service_secrets.add_if_absent("vapid", b"two")
        assert await tx.service_secrets.get("vapid") == b"one"
        assert await tx.service_secrets.rekey("vapid", b"two", b"three") == 0
        assert await tx.service_secrets.rekey("vapid", b"one", b"three") == 1
        assert list(await tx.service_secrets.list_all()) == [("vapid", b"three")]


async def test_sealed_channels_come_in_pages_and_are_replaced_only_if_unchanged(world: StoredAccount) -> None:
    made = sorted((a_channel(world) for _ in range(3)), key=lambda each: each.channel_id)
    async with world.uow.write(caller=None) as tx:
        for channel in (*made, a_channel(world, kind=NotificationChannelKind.MAIL, sealed=None)):
            await tx.notification_channels.add(channel)
        assert await tx.notification_channels.count_sealed() == 3
        page = await tx.notification_channels.list_sealed_page(made[0].channel_id, 1)
        assert list(page) == [made[1]]
        assert await tx.notification_channels.rekey(made[0].channel_id, b"other", b"new") == 0
        assert await tx.notification_channels.rekey(made[0].channel_id, b"sealed", b"new") == 1
        assert await tx.notification_channels.get(made[0].channel_id) == replace(made[0], sealed=b"new")


async def test_the_channels_of_a_user_are_suspended_at_once_and_confirmed_one_by_one(world: StoredAccount) -> None:
    """And nobody else's; a second time changes no time."""
    phone, tablet = a_channel(world), a_channel(world)
    async with world.uow.write(caller=None) as tx:
        await tx.notification_channels.add(phone)
        await tx.notification_channels.add(tablet)
        assert await tx.notification_channels.suspend_by_user(UserId(new_id("usr")), NOW) == 0
        assert await tx.notification_channels.suspend_by_user(world.user.user_id, NOW + 1) == 2
        assert await tx.notification_channels.suspend_by_user(world.user.user_id, NOW + 2) == 0
        assert await tx.notification_channels.get(phone.channel_id) == replace(phone, suspended_ms=NOW + 1)
        await tx.notification_channels.confirm(phone.channel_id)
        assert await tx.notification_channels.get(phone.channel_id) == phone
        assert await tx.notification_channels.get(tablet.channel_id) == replace(tablet, suspended_ms=NOW + 1)


async def test_what_a_person_is_told_in_any_case_is_kept_with_its_topic(world: StoredAccount) -> None:
    async with world.uow.write(caller=None) as tx:
        await tx.notifications.add_many([a_notification(world, topic=UnconditionalTopic.SECURITY)])
        [due] = await tx.notifications.list_due(NOW, 9)
    assert due.topic is UnconditionalTopic.SECURITY
