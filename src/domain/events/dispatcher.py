"""Writing the event log.

Events are stored in the transaction of the change, and the observers add their rows (deliveries). The feed gets the events after
the commit and in its order, so a client that reads the log up to a position and then subscribes misses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Generic, TypeVar

from domain.events.hash_chain import ChainHasher, chain_events
from domain.events.model import PUBLIC_TYPES, Event
from domain.events.ports import EventsTx, FeedPublisher, FollowUpPort, TransactionEventObserver
from domain.kernel.dataclasses import service
from domain.kernel.domain_event import DomainEvent, JsonObject
from domain.kernel.ids import DeviceId, EventId, IdAndSecretGenerator, IdPrefix

TxT = TypeVar("TxT", bound=EventsTx)


@service
class EventDispatcher(Generic[TxT]):
    """Implements `TransactionEventDispatcher` for the storage adapter, and publishes telemetry for ingest."""

    ids: IdAndSecretGenerator
    observers: Sequence[TransactionEventObserver[TxT]]
    feed: FeedPublisher
    hasher: ChainHasher = chain_events
    follow_ups: list[FollowUpPort[TxT]] = field(default_factory=list, init=False)
    """Set once, when the parts above are constructed: they need the storage that this writes to."""

    async def dispatch(self, tx: TxT, domain_events: Sequence[DomainEvent]) -> None:
        """Store the events of a transaction and of its follow-ups, call the observers, and publish after the commit."""
        for each in self.follow_ups:
            domain_events = [*domain_events, *await each.follow(tx, domain_events)]
        unnamed = {event.device_id for event in domain_events if event.device_id is not None and event.device_name is None}
        names = {device.device_id: device.name for device in await tx.devices.list_by_ids(unnamed)} if unnamed else {}
        events = [
            to_event(
                event, EventId(self.ids.new_id(IdPrefix.EVENT)), event.device_name or names.get(event.device_id or DeviceId(""))
            )
            for event in domain_events
        ]
        stored = await tx.events.append_many(events, self.hasher)
        await self._notify(tx, events)
        self.publish_to_feed(tx, stored)

    async def publish_transient(self, tx: TxT, events: Sequence[Event]) -> None:
        """The same for events that are not stored in the log (telemetry: position 0)."""
        await self._notify(tx, events)
        self.publish_to_feed(tx, events)

    def publish_store_time(self, tx: TxT, store_time_s: int) -> None:
        """That all readings stored before this time (Unix seconds) have been published: after the commit, and before the events
        that are published after this call."""
        tx.after_commit(lambda: self.feed.set_store_time(store_time_s))

    async def _notify(self, tx: TxT, events: Sequence[Event]) -> None:
        for observer in self.observers:
            await observer.on_events(tx, events)

    def publish_to_feed(self, tx: TxT, events: Sequence[Event]) -> None:
        """After the commit: events whose deliveries are stored already."""

        def publish() -> None:
            for event in events:
                self.feed.publish(event)

        tx.after_commit(publish)


def to_event(event: DomainEvent, event_id: EventId, device_name: str | None) -> Event:
    """The row of the log for an event, not yet stored."""
    return Event(
        position=0,
        event_id=event_id,
        account_id=event.account_id,
        device_id=event.device_id,
        device_name=device_name,
        kind=event.kind,
        description=event.description,
        at_ms=event.at_ms,
        source=event.source,
        address=event.address,
        payload=public_payload(event, event_id) if event.kind in PUBLIC_TYPES else dict(event.data),
    )


def public_payload(event: DomainEvent, event_id: EventId) -> JsonObject:
    """The payload for feed and webhooks. Fields of the envelope override data of the same name."""
    return {
        **event.data,
        "type": event.kind,
        "eventId": event_id,
        "accountId": event.account_id,
        "deviceId": event.device_id,
        "timestamp": event.at_ms,
    }
