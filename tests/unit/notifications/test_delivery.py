"""Which events owe a notification to whom, and when it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adapters.crypto.key_ring import KeyRing
from adapters.crypto.tokens import JwtApprovalLinkCodec
from adapters.crypto.vault import AesVault
from adapters.translator import MessageCatalogTranslator
from domain.approvals.links import LINK_TTL_MS
from domain.approvals.model import APPROVAL_TTL_MS, Approval, ApprovalStatus, Requester
from domain.events.model import Event
from domain.kernel.caller import Role
from domain.kernel.clock import SECOND_MS
from domain.kernel.ids import ApprovalId, ChannelId, KeyId
from domain.notifications import delivery, model
from domain.notifications.delivery import QUIET_CHECK_MS, RETRY_PAUSES_MS, NotificationDeliveryService
from domain.notifications.destinations import (
    Destination,
    MailDestination,
    NtfyDestination,
    SealedDestination,
    TelegramDestination,
    kind_of,
    seal_destination,
)
from domain.notifications.fanout import GATHER_MS, MAX_PENDING_PER_CHANNEL, NotificationFanout
from domain.notifications.model import (
    ChannelErrorCode,
    ChannelSendResult,
    NotificationChannel,
    NotificationChannelKind,
    NotificationMessage,
    NotificationSendOutcome,
    NotificationSettings,
    NotificationTopic,
)
from support.manual_clock import ManualClock
from support.storage import NOW, StoredAccount, an_event, new_id, open_storage, populate

ALL = tuple(NotificationTopic)
AWAY = ChannelSendResult(NotificationSendOutcome.FAILED, ChannelErrorCode.MAIL_FAILED, "the mail server is away")
MAIL = ChannelId("nch_mail")


class FakeSender:
    """Keeps what is sent; answers `result`."""

    def __init__(self) -> None:
        self.sent: list[tuple[Destination, NotificationMessage]] = []
        self.result = ChannelSendResult(NotificationSendOutcome.SENT)

    async def send_many(self, outgoing: Sequence[tuple[Destination, NotificationMessage]]) -> Sequence[ChannelSendResult]:
        if self.result.outcome is NotificationSendOutcome.SENT:
            self.sent += outgoing
        return [self.result for _ in outgoing]


class Desk:
    """The part over an in-memory storage, with a channel for mail."""

    def __init__(self, world: StoredAccount) -> None:
        self.world, self.clock, self.sender = world, ManualClock(NOW), FakeSender()
        ring = KeyRing.generate()
        self.vault, self.links = AesVault(ring=ring), JwtApprovalLinkCodec(ring=ring)
        self.service = NotificationDeliveryService(
            uow=world.uow,
            clock=self.clock,
            vault=self.vault,
            sender=self.sender,
            links=self.links,
            public_url="https://latch.example",
            translator=MessageCatalogTranslator(),
        )
        self.observer = NotificationFanout(clock=self.clock, wake=lambda: None)

    async def choose(self, **settings: Any) -> None:
        of = NotificationSettings(self.world.membership.membership_id, self.world.account.account_id, **settings)
        async with self.world.uow.write(caller=None) as tx:
            await tx.notifications.upsert_settings(of)
            if await tx.notification_channels.get(MAIL) is None:
                await tx.notification_channels.add(self.channel(MAIL, NotificationChannelKind.MAIL, None))

    def channel(self, channel_id: ChannelId, kind: NotificationChannelKind, sealed: bytes | None) -> NotificationChannel:
        member = self.world.membership
        return NotificationChannel(channel_id, member.membership_id, member.account_id, kind, "One", "", sealed, NOW)

    async def add_channel(self, destination: SealedDestination) -> ChannelId:
        channel_id = ChannelId(new_id("nch"))
        sealed = seal_destination(self.vault, channel_id, destination)
        async with self.world.uow.write(caller=None) as tx:
            await tx.notification_channels.add(self.channel(channel_id, kind_of(destination), sealed))
        return channel_id

    async def find_channel(self, channel_id: ChannelId = MAIL) -> NotificationChannel | None:
        async with self.world.uow.read() as tx:
            return await tx.notification_channels.get(channel_id)

    async def happen(self, kind: str, **payload: Any) -> None:
        now_ms = self.clock.now_ms()
        event: Event = an_event(
            self.world, kind=kind, at_ms=now_ms, device_name="Pump", description="It happened", payload=payload
        )
        async with self.world.uow.write(caller=None) as tx:
            await self.observer.on_events(tx, [event])

    async def ask(self, requester: Requester | None = None) -> ApprovalId:
        """A request for approval, with its event."""
        approval_id, now_ms = ApprovalId(new_id("apv")), self.clock.now_ms()
        made = Approval(
            approval_id,
            self.world.account.account_id,
            self.world.device.device_id,
            "OPEN",
            None,
            60_000,
            ApprovalStatus.PENDING,
            requester or Requester("Robot", key_id=self.world.key.key_id),
            None,
            now_ms,
            now_ms + APPROVAL_TTL_MS,
        )
        async with self.world.uow.write(caller=None) as tx:
            await tx.approvals.add(made)
        await self.happen("approval_requested", approvalId=approval_id)
        return approval_id

    async def subjects(self) -> list[str]:
        while await self.service.send_due():
            pass
        return [message.title for _, message in self.sender.sent]


@pytest.fixture
async def desk(tmp_path: Path) -> Any:
    async with open_storage("memory", tmp_path) as uow:
        yield Desk(await populate(uow))


async def test_only_chosen_topics_are_mailed_with_a_link_to_the_page(desk: Desk) -> None:
    await desk.ask()
    desk.clock.forward(GATHER_MS)
    await desk.choose(topics=(NotificationTopic.APPROVALS,))
    await desk.ask()
    await desk.happen("rule_disabled")
    await desk.happen("relay_changed")
    assert await desk.subjects() == ["Pump: a command waits for approval"]
    [(destination, _)] = desk.sender.sent
    assert isinstance(destination, MailDestination)
    assert destination.address == desk.world.user.email
    assert await desk.service.next_due_ms() is None


async def test_a_device_is_mailed_as_offline_only_if_it_stays_so(desk: Desk) -> None:
    await desk.choose(topics=ALL, offline_minutes=5)
    await desk.happen("device_offline")
    assert await desk.subjects() == []
    desk.clock.forward(minutes=4)
    await desk.happen("device_online")
    desk.clock.forward(minutes=9)
    assert await desk.subjects() == []
    await desk.happen("device_offline")
    desk.clock.forward(minutes=5)
    assert await desk.subjects() == ["Pump: offline for 5 min"]


async def test_a_notification_is_in_the_language_of_the_recipient(desk: Desk) -> None:
    await desk.choose(topics=ALL, language="de")
    await desk.happen("rule_disabled")
    assert await desk.subjects() == ["Pump: eine Regel wurde abgeschaltet"]


async def test_a_mail_waits_for_the_end_of_the_quiet_hours(desk: Desk) -> None:
    settings = NotificationSettings(desk.world.membership.membership_id, desk.world.account.account_id)
    minute = NOW // 60_000 % 1440
    quiet = {"quiet_from_minute": (minute - 60) % 1440, "quiet_to_minute": (minute + 60) % 1440}
    assert model.quiet_until_ms(settings, NOW) is None
    end_ms = model.quiet_until_ms(replace(settings, **quiet), NOW)  # type: ignore[arg-type]
    assert end_ms == (NOW // 60_000 + 60) * 60_000
    await desk.choose(topics=ALL, **quiet)
    await desk.happen("rule_disabled")
    assert await desk.subjects() == []
    desk.clock.forward(minutes=61)
    assert await desk.subjects() == ["Pump: rule disabled"]


async def test_a_mail_that_is_not_accepted_is_sent_again_and_given_up_in_the_end(desk: Desk) -> None:
    await desk.choose(topics=ALL)
    await desk.happen("rule_disabled")
    desk.sender.result = AWAY
    assert await desk.subjects() == []
    assert await desk.service.next_due_ms() == NOW + RETRY_PAUSES_MS[0]
    desk.clock.forward(RETRY_PAUSES_MS[0])
    desk.sender.result = ChannelSendResult(NotificationSendOutcome.SENT)
    assert await desk.subjects() == ["Pump: rule disabled"]
    desk.sender.result = AWAY
    await desk.happen("rule_disabled")
    for pause_ms in RETRY_PAUSES_MS:
        await desk.subjects()
        desk.clock.forward(pause_ms)
    await desk.subjects()
    assert await desk.service.next_due_ms() is None


@pytest.mark.parametrize("minutes", [-60, 60])
async def test_a_step_of_the_clock_neither_delays_nor_hastens_a_mail(desk: Desk, minutes: int) -> None:
    await desk.choose(topics=ALL, offline_minutes=5)
    await desk.happen("device_offline")
    desk.clock.step(minutes=minutes)
    desk.clock.forward(minutes=4)
    assert await desk.subjects() == []
    desk.sender.result = AWAY
    desk.clock.forward(minutes=1)
    assert await desk.subjects() == []
    desk.sender.result = ChannelSendResult(NotificationSendOutcome.SENT)
    desk.clock.step(minutes=-2 * minutes)
    assert await desk.subjects() == []
    desk.clock.forward(RETRY_PAUSES_MS[0])
    assert await desk.subjects() == ["Pump: offline for 5 min"]


async def test_quiet_hours_end_by_the_wall_clock_also_when_it_is_set_meanwhile(desk: Desk) -> None:
    minute = NOW // 60_000 % 1440
    await desk.choose(topics=ALL, quiet_from_minute=(minute - 60) % 1440, quiet_to_minute=(minute + 60) % 1440)
    await desk.happen("rule_disabled")
    assert await desk.subjects() == []
    desk.clock.step(minutes=61)
    desk.clock.forward(QUIET_CHECK_MS)
    assert await desk.subjects() == ["Pump: rule disabled"]


async def test_whoever_may_not_decide_any_more_is_not_mailed_about_approvals(desk: Desk) -> None:
    await desk.choose(topics=ALL)
    await desk.ask()
    async with desk.world.uow.write(caller=None) as tx:
        await tx.memberships.save(replace(desk.world.membership, role=Role.VIEWER))
    assert await desk.subjects() == []
    assert await desk.service.next_due_ms() is None


async def test_a_message_about_an_approval_has_a_link_that_this_member_can_decide_with(desk: Desk) -> None:
    await desk.choose(topics=ALL)
    approval_id = await desk.ask()
    await desk.subjects()
    [(_, message)] = desk.sender.sent
    claims = desk.links.read(message.link.removeprefix("https://latch.example/#/decide/"))
    assert claims is not None
    assert (claims.approval_id, claims.membership_id) == (approval_id, desk.world.membership.membership_id)
    assert claims.expires_ms == (NOW + LINK_TTL_MS) // SECOND_MS * SECOND_MS
    assert (message.ttl_s, message.is_urgent) == (LINK_TTL_MS // SECOND_MS, True)


async def test_a_link_ends_with_its_approval(desk: Desk) -> None:
    minute = NOW // 60_000 % 1440
    late = (APPROVAL_TTL_MS - LINK_TTL_MS // 2) // 60_000
    await desk.choose(topics=ALL, quiet_from_minute=minute, quiet_to_minute=(minute + late) % 1440)
    await desk.ask()
    assert await desk.subjects() == []
    desk.clock.forward(minutes=late + 1)
    await desk.subjects()
    [(_, message)] = desk.sender.sent
    assert 0 < message.ttl_s < LINK_TTL_MS // SECOND_MS


@pytest.mark.parametrize(
    ("destination", "decides"),
    [
        (NtfyDestination("https://ntfy.example", "topic"), False),
        (NtfyDestination("https://ntfy.example", "topic", "tk_1"), True),
        (TelegramDestination("1:a", "2"), True),
    ],
)
async def test_a_topic_that_anyone_may_read_gets_no_link_to_decide_with(
    desk: Desk, destination: SealedDestination, decides: bool
) -> None:
    await desk.choose(topics=ALL)
    await desk.add_channel(destination)
    await desk.ask()
    await desk.subjects()
    [link] = [message.link for to, message in desk.sender.sent if to == destination]
    assert ("/#/decide/" in link) is decides
    assert decides or link == "https://latch.example/#/approvals"


@pytest.mark.parametrize("status", [ApprovalStatus.APPROVED, ApprovalStatus.DENIED, ApprovalStatus.EXPIRED])
async def test_a_request_that_is_decided_meanwhile_is_not_told(desk: Desk, status: ApprovalStatus) -> None:
    await desk.choose(topics=ALL)
    approval_id = await desk.ask()
    async with desk.world.uow.write(caller=None) as tx:
        approval = await tx.approvals.get(desk.world.account.account_id, approval_id)
        assert approval is not None
        await tx.approvals.decide_if_pending(replace(approval, status=status, decided_ms=NOW))
    assert await desk.subjects() == []
    assert await desk.service.next_due_ms() is None


async def test_nobody_is_told_of_a_request_of_their_own(desk: Desk) -> None:
    await desk.choose(topics=ALL)
    member = desk.world.membership
    await desk.ask(Requester("Ada", membership_id=member.membership_id, user_id=member.user_id))
    assert await desk.subjects() == []


async def test_every_channel_is_told_and_fails_alone(desk: Desk) -> None:
    await desk.choose(topics=ALL)
    ntfy = await desk.add_channel(NtfyDestination("https://ntfy.example", "topic", "tk_1"))
    desk.sender.result = ChannelSendResult(
        NotificationSendOutcome.REFUSED, ChannelErrorCode.REFUSED, "The receiver refused it with 403."
    )
    await desk.happen("rule_disabled")
    assert await desk.subjects() == []
    assert await desk.service.next_due_ms() is None
    channel = await desk.find_channel(ntfy)
    assert channel is not None
    assert (channel.last_error, channel.last_error_ms) == ("The receiver refused it with 403.", NOW)
    desk.sender.result = ChannelSendResult(NotificationSendOutcome.SENT)
    await desk.happen("rule_disabled")
    assert await desk.subjects() == ["Pump: rule disabled"] * 2
    channel = await desk.find_channel(ntfy)
    assert channel is not None
    assert (channel.last_error, channel.last_sent_ms) == (None, NOW)
    assert desk.service.sent_by_channel == {"MAIL": 1, "WEB_PUSH": 0, "NTFY": 1, "TELEGRAM": 0}
    assert desk.service.unsent_by_outcome["refused"] == 2


async def test_a_destination_that_is_gone_is_removed(desk: Desk) -> None:
    await desk.choose(topics=ALL)
    desk.sender.result = ChannelSendResult(NotificationSendOutcome.GONE, ChannelErrorCode.GONE, "410")
    await desk.happen("rule_disabled")
    await desk.subjects()
    assert await desk.find_channel() is None
    desk.sender.result = ChannelSendResult(NotificationSendOutcome.SENT)
    await desk.happen("rule_disabled")
    assert await desk.subjects() == []


async def test_a_receiver_may_lengthen_the_pause_and_not_shorten_it(desk: Desk) -> None:
    await desk.choose(topics=ALL)
    for retry_after_s, pause_ms in ((1, RETRY_PAUSES_MS[0]), (600, 600_000), (10**8, RETRY_PAUSES_MS[-1])):
        await desk.happen("rule_disabled")
        desk.sender.result = ChannelSendResult(
            NotificationSendOutcome.FAILED, ChannelErrorCode.RECEIVER_ERROR, "429", retry_after_s
        )
        started_ms = desk.clock.steady_ms()
        await desk.subjects()
        assert await desk.service.next_due_ms() == started_ms + pause_ms
        desk.clock.forward(pause_ms)
        desk.sender.result = ChannelSendResult(NotificationSendOutcome.SENT)
        await desk.subjects()


async def test_many_of_one_topic_become_one_message(desk: Desk) -> None:
    await desk.choose(topics=ALL, offline_minutes=5)
    for _ in range(delivery.MAX_LINES + 3):
        await desk.happen("device_offline")
    await desk.happen("rule_disabled")
    desk.clock.forward(minutes=5)
    assert sorted(await desk.subjects()) == ["Pump: offline for 5 min, and 22 more", "Pump: rule disabled"]
    [text] = [message.text for _, message in desk.sender.sent if "offline" in message.title]
    assert text.count("\n") == delivery.MAX_LINES
    assert text.endswith("… and 3 more")


async def test_a_channel_is_owed_so_much_and_no_more(desk: Desk) -> None:
    await desk.choose(topics=ALL)
    for _ in range(MAX_PENDING_PER_CHANNEL + 2):
        await desk.happen("rule_disabled")
    async with desk.world.uow.read() as tx:
        assert await tx.notifications.count() == MAX_PENDING_PER_CHANNEL
    assert desk.observer.dropped == 2


async def test_quiet_hours_hold_for_approvals_on_every_channel(desk: Desk) -> None:
    minute = NOW // 60_000 % 1440
    await desk.choose(topics=ALL, quiet_from_minute=(minute - 60) % 1440, quiet_to_minute=(minute + 60) % 1440)
    await desk.add_channel(TelegramDestination("1:a", "2"))
    await desk.ask()
    assert await desk.subjects() == []
    desk.clock.forward(minutes=61)
    assert await desk.subjects() == ["Pump: a command waits for approval"] * 2


async def test_what_one_asker_wants_within_seconds_is_one_message_without_a_link_that_decides(desk: Desk) -> None:
    await desk.choose(topics=ALL)
    for _ in range(12):
        await desk.ask()
    other = Requester("Watchdog", key_id=KeyId("key_other"))
    await desk.ask(other)
    assert await desk.subjects() == ["Pump: a command waits for approval"] * 2
    desk.clock.forward(GATHER_MS)
    assert (await desk.subjects())[2:] == ["Robot asks for 11 commands"]
    [_, gathered] = desk.sender.sent[-1]
    assert gathered.link == "https://latch.example/#/approvals"
    desk.clock.forward(GATHER_MS)
    await desk.ask(other)
    assert (await desk.subjects())[3:] == ["Pump: a command waits for approval"]


async def test_what_waited_for_the_end_of_the_quiet_hours_is_one_message_per_asker(desk: Desk) -> None:
    minute = NOW // 60_000 % 1440
    await desk.choose(topics=ALL, quiet_from_minute=(minute - 60) % 1440, quiet_to_minute=(minute + 60) % 1440)
    for asker in (Requester("Robot", key_id=desk.world.key.key_id), Requester("Watchdog", key_id=KeyId("key_other"))):
        for _ in range(2):
            await desk.ask(asker)
            desk.clock.forward(minutes=1)
    assert await desk.subjects() == []
    desk.clock.forward(minutes=61)
    assert sorted(await desk.subjects()) == ["Robot asks for 2 commands", "Watchdog asks for 2 commands"]
