"""The feed of readings across processes: those of a cluster, or the worker processes of one machine."""

from __future__ import annotations

from app.runtime.lock_with_timeout import LockWithTimeout
from app.wiring.adapters import ServiceAdapters
from app.wiring.domain_services import DomainServices
from app.workers.base import WakeEvent
from app.workers.cluster_feed import ClusterReadingFeedWorker


def create_shared_feed(
    adapters: ServiceAdapters, services: DomainServices, interest_wake: WakeEvent
) -> ClusterReadingFeedWorker | None:
    """None for an instance that shares no readings."""
    bus = adapters.feed_bus
    if bus is None:
        return None
    feed = ClusterReadingFeedWorker(
        instance=adapters.feed_name,
        bus=bus,
        hub=adapters.feed,
        clock=adapters.clock,
        interest_wake=interest_wake,
        commit_lock=LockWithTimeout(services.engine_commit_lock),
    )
    if services.followed_feed is not None:
        services.followed_feed.on_reading = feed.publish
        services.followed_feed.on_store_time = feed.set_store_time
    return feed
