"""Readings of watched devices are announced once, whatever is delivered or stored again."""

from __future__ import annotations

from domain.events.feed_model import reading_event_id
from domain.kernel.ids import IdPrefix, has_id_format
from support.telemetry_world import TelemetryWorld


async def test_each_reading_of_a_watched_device_is_published(world: TelemetryWorld) -> None:
    device, other = await world.device(), await world.device()
    world.engine.set_watched(device.device_no, True)
    await world.report(device, temperature=21.5, mode="eco")
    await world.report(other, temperature=1)
    published = [(e.device_id, e.payload["metric"], e.payload["value"], e.payload["valueText"]) for e in world.publisher.events]
    assert published == [(device.device_id, "temperature", 21.5, None), (device.device_id, "mode", None, "eco")]


async def test_a_message_that_is_delivered_again_is_announced_once(world: TelemetryWorld) -> None:
    device = await world.device()
    world.engine.set_watched(device.device_no, True)
    payload = b'{"ts": %d, "m": {"temperature": 21.5}}' % world.clock.now_ms()
    for number in (1, 2, 2):
        messages = [(device.device_no, world.clock.now_ms() + number, payload)] * number
        await world.store(await world.ingest_all(messages))
    [event] = world.publisher.events
    assert event.event_id == reading_event_id(device.device_id, event.at_ms, "temperature", 21.5, None)
    assert has_id_format(IdPrefix.EVENT, event.event_id)
    assert world.publisher.to_feed == []


async def test_a_retry_after_a_commit_whose_answer_was_lost_still_reaches_the_feed(world: TelemetryWorld) -> None:
    device = await world.device()
    world.engine.set_watched(device.device_no, True)
    result = await world.ingest_all([(device.device_no, world.clock.now_ms(), b'{"temperature": 21.5}')])
    async with world.uow.write() as tx:
        await world.ingest.store(tx, result)
        tx.after_commit_calls.clear()  # the commit succeeds, and its caller does not learn of it
    await world.store(result)
    assert world.publisher.events == world.publisher.to_feed
    assert len(world.publisher.to_feed) == 1
