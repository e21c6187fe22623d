"""A webhook that another instance has changed: what this one has under way with what it was is cut."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.runtime.peer_changes import PeerChangeHandler
from domain.webhooks.model import Webhook
from support.webhook_receiver import in_sequence, never_respond, respond, webhook_receiver
from support.webhook_world import WebhookWorld


def unheard(webhook: Webhook) -> None:
    """A change made elsewhere is not told here."""


async def follow(world: WebhookWorld) -> None:
    """As the log loop does with what others wrote."""
    services = cast("Any", SimpleNamespace(uow=world.uow))
    bells = cast("Any", SimpleNamespace(deliveries=world.wake_event))
    neighbours = PeerChangeHandler(
        services=services, wake_events=bells, execution_waiter=cast("Any", None), deliveries=world.loop
    )
    async with world.uow.read() as tx:
        events = await tx.events.list_after(0, 500)
    for event in events:
        if event.kind.startswith("webhook_"):
            neighbours.enqueue(event)
    await neighbours.apply()


@pytest.mark.parametrize("change", ["rotated", "deleted", "disabled", "nothing"])
async def test_what_another_instance_changed_is_cut_here(change: str) -> None:
    world = WebhookWorld()
    await world.populate()
    world.webhooks._on_changed = unheard
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
