"""Which events owe a mail to whom, and when it is sent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from domain.events.model import Event
from domain.kernel.caller import Role
from domain.kernel.errors import Unavailable
from domain.notifications import policy
from domain.notifications.model import NotificationSettings, NotificationTopic
from domain.notifications.observer import NotificationObserver
from domain.notifications.service import QUIET_CHECK_MS, NotificationService
from support.manual_clock import ManualClock
from support.storage import NOW, StoredAccount, an_event, open_storage, populate

ALL = tuple(NotificationTopic)


class Postbox:
    def __init__(self) -> None:
        self.mails: list[tuple[str, str, str]] = []
        self.is_away = False

    async def send(self, to: str, subject: str, text: str) -> None:
        if self.is_away:
            raise Unavailable("the mail server is away")
        self.mails.append((to, subject, text))


class Desk:
    """The part over an in-memory storage."""

    def __init__(self, world: StoredAccount) -> None:
        self.world, self.clock, self.post = world, ManualClock(NOW), Postbox()
        self.service = NotificationService(uow=world.uow, clock=self.clock, mailer=self.post)
        self.observer = NotificationObserver(public_url="https://latch.example", clock=self.clock, wake=lambda: None)

    async def choose(self, **settings: Any) -> None:
        of = NotificationSettings(self.world.membership.membership_id, self.world.account.account_id, **settings)
        async with self.world.uow.write(caller=None) as tx:
            await tx.notifications.upsert_settings(of)

    async def happen(self, kind: str) -> None:
        event: Event = an_event(self.world, kind=kind, at_ms=self.clock.now_ms(), device_name="Pump", description="It happened")
        async with self.world.uow.write(caller=None) as tx:
            await self.observer.on_events(tx, [event])

    async def subjects(self) -> list[str]:
        while await self.service.send_due():
            pass
        return [subject for _, subject, _ in self.post.mails]


@pytest.fixture
async def desk(tmp_path: Path) -> Any:
    async with open_storage("memory", tmp_path) as uow:
        yield Desk(await populate(uow))


async def test_only_chosen_topics_are_mailed_with_a_link_to_the_page(desk: Desk) -> None:
    await desk.happen("approval_requested")
    await desk.choose(topics=(NotificationTopic.APPROVALS,))
    await desk.happen("approval_requested")
    await desk.happen("rule_disabled")
    await desk.happen("relay_changed")
    assert await desk.subjects() == ["Pump: a command waits for approval"]
    assert "https://latch.example/#/approvals" in desk.post.mails[0][2]
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


async def test_a_mail_waits_for_the_end_of_the_quiet_hours(desk: Desk) -> None:
    settings = NotificationSettings(desk.world.membership.membership_id, desk.world.account.account_id)
    minute = NOW // 60_000 % 1440
    quiet = {"quiet_from_minute": (minute - 60) % 1440, "quiet_to_minute": (minute + 60) % 1440}
    assert policy.quiet_until_ms(settings, NOW) is None
    end_ms = policy.quiet_until_ms(replace(settings, **quiet), NOW)  # type: ignore[arg-type]
    assert end_ms == (NOW // 60_000 + 60) * 60_000
    await desk.choose(topics=ALL, **quiet)
    await desk.happen("rule_disabled")
    assert await desk.subjects() == []
    desk.clock.forward(minutes=61)
    assert await desk.subjects() == ["Pump: rule disabled"]


async def test_a_mail_that_is_not_accepted_is_sent_again_and_given_up_in_the_end(desk: Desk) -> None:
    await desk.choose(topics=ALL)
    await desk.happen("rule_disabled")
    desk.post.is_away = True
    assert await desk.subjects() == []
    assert await desk.service.next_due_ms() == NOW + policy.RETRY_PAUSES_MS[0]
    desk.clock.forward(policy.RETRY_PAUSES_MS[0])
    desk.post.is_away = False
    assert await desk.subjects() == ["Pump: rule disabled"]
    desk.post.is_away = True
    await desk.happen("rule_disabled")
    for pause_ms in policy.RETRY_PAUSES_MS:
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
    desk.post.is_away = True
    desk.clock.forward(minutes=1)
    assert await desk.subjects() == []
    desk.post.is_away = False
    desk.clock.step(minutes=-2 * minutes)
    assert await desk.subjects() == []
    desk.clock.forward(policy.RETRY_PAUSES_MS[0])
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
    await desk.happen("approval_requested")
    async with desk.world.uow.write(caller=None) as tx:
        await tx.memberships.save(replace(desk.world.membership, role=Role.VIEWER))
    assert await desk.subjects() == []
    assert await desk.service.next_due_ms() is None
