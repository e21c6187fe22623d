"""Announces the readings of devices with subscribers to feed and webhooks, each message once.

A device repeats a message whose acknowledgement was lost. The repeated message has the same row, so it is recognised before the
row is written.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any, Protocol

from domain.events.dispatcher import DomainEventDispatcher
from domain.events.model import Event
from domain.kernel.ids import EventId
from domain.rules.ports import TelemetryRow, WatchedReading
from domain.telemetry.model import reading_event
from domain.telemetry.ports import HasReadings, RowKey
from domain.webhooks.ports import WebhookFanoutTx

MAX_TRACKED_RESULTS = 64


class ReadingAnnouncerTx(WebhookFanoutTx, HasReadings, Protocol): ...


class ReadingAnnouncerInput(Protocol):
    @property
    def rows(self) -> Sequence[TelemetryRow]: ...

    @property
    def watched_readings(self) -> Sequence[WatchedReading]: ...


@dataclass(frozen=True, slots=True)
class ReadingAnnouncements:
    """Telemetry events for feed and webhooks, and those for the feed alone."""

    new: Sequence[Event] = ()
    feed_only: Sequence[Event] = ()


NO_ANNOUNCEMENTS = ReadingAnnouncements()


class ReadingAnnouncer:
    def __init__(self, publisher: DomainEventDispatcher[Any]) -> None:
        self._publisher = publisher
        self._stored_before: dict[int, tuple[ReadingAnnouncerInput, Set[RowKey]]] = {}
        """By `id` of a result whose transaction has not committed yet: its rows that were stored before the first attempt."""

    async def prepare(self, tx: ReadingAnnouncerTx, result: ReadingAnnouncerInput) -> ReadingAnnouncements:
        """What to announce of these readings: nothing of a message that was stored before, because a device has sent it
        twice. When a retry finds a message that was not stored before the first attempt, that attempt has committed although the
        database did not say so: its deliveries are stored, but the feed has not got it."""
        watched = {reading[0] for reading in result.watched_readings}
        keys = [row[:3] for row in result.rows if row[0] in watched]
        stored = await tx.readings.list_existing(keys)
        if len(self._stored_before) >= MAX_TRACKED_RESULTS:
            self._stored_before.clear()  # results that were never committed
        _, stored_before = self._stored_before.setdefault(id(result), (result, stored))
        tx.after_commit(lambda: self._forget(result))
        new = {key[:2] for key in keys if key not in stored}
        committed = {key[:2] for key in keys if key in stored and key not in stored_before} - new
        found = await tx.devices.list_by_numbers(watched)
        devices = {device.device_no: device for device in found}
        events: dict[EventId, tuple[Event, tuple[int, int]]] = {}
        for device_no, at_ms, metric, value, text, unit in result.watched_readings:
            if device_no in devices:
                event = reading_event(devices[device_no], at_ms, metric, value, text, unit)
                events.setdefault(event.event_id, (event, (device_no, at_ms)))
        return ReadingAnnouncements(
            [event for event, place in events.values() if place in new],
            [event for event, place in events.values() if place in committed],
        )

    def _forget(self, result: ReadingAnnouncerInput) -> None:
        self._stored_before.pop(id(result), None)

    async def publish(self, tx: ReadingAnnouncerTx, announcements: ReadingAnnouncements) -> None:
        if announcements.new:
            await self._publisher.publish_transient(tx, announcements.new)
        if announcements.feed_only:
            self._publisher.publish_to_feed(tx, announcements.feed_only)
