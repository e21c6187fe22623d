"""A webhook that another instance has changed: this instance cancels the attempts that it has in flight for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from app.workers.instances import OtherInstanceEventHandler
from domain.events.cursors import EventLogCursor
from domain.webhooks.model import Webhook
from support.webhook_receiver import in_sequence, never_respond, respond, webhook_receiver
from support.webhook_world import WebhookWorld


def ignore_change(webhook: Webhook) -> None:
    """This instance does not learn of the change directly."""


async def follow(world: WebhookWorld) -> None:
    """What the log follower does with events of other instances."""
    unused: Any = Mock()
    peer_changes = OtherInstanceEventHandler(
        uow=world.uow,
        rules=unused,
        credential_sync=unused,
        dispatch=unused,
        device_plans=unused,
        execution_waiter=unused,
        approval_waiter=unused,
        deliveries=world.loop,
        wake_events=cast("Any", SimpleNamespace(deliveries=world.wake_event, recoveries=Mock())),
    )
    async with world.uow.read() as tx:
        events = await tx.events.list_after(EventLogCursor(), 500)
    for event in events:
        if event.kind.startswith("webhook_"):
            peer_changes.enqueue(event)
    await peer_changes.apply()


@pytest.mark.parametrize("change", ["rotated", "deleted", "disabled", "nothing"])
async def test_a_change_by_another_instance_cancels_attempts_in_flight(change: str) -> None:
    world = WebhookWorld()
    await world.populate()
    world.webhooks.on_changed = ignore_change
    async with webhook_receiver(in_sequence(never_respond(), respond())) as receiver, world.delivering():
        device = await world.device()
        made = await world.webhook(receiver.url, device)
        webhook_id = made.webhook.webhook_id
        await world.switch(device)
        await receiver.wait_for(1)
        if change == "rotated":
            rotated = await world.webhooks.rotate_secret(world.session(), webhook_id)
        elif change == "deleted":
            await world.webhooks.delete(world.session(), webhook_id)
        elif change == "disabled":
            await world.webhooks.update(world.session(), webhook_id, enabled=False)
        await follow(world)
        assert world.loop.in_flight == (1 if change == "nothing" else 0)
        if change == "rotated":
            got = (await receiver.wait_for(2))[1]
            assert got.signed_with(rotated.secret)
            assert not got.signed_with(made.secret)
