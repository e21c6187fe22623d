"""Which readings somebody follows live: feed clients of this instance and of the others, and webhooks.

Instances of a cluster tell each other what their feed clients want, and which readings they have stored. These messages are quick
and may be lost. Readings are not lost with them: each sender numbers its messages, so a receiver notices a gap, and its clients
resume from the stored readings. The law: whoever was confirmed to follow an interest has stored what it evaluated without it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from domain.events.feed_model import FeedFilter
from domain.events.model import TELEMETRY, Event
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.ids import AccountId, DeviceId
from domain.kernel.unit_of_work import UnitOfWork
from domain.webhooks.ports import WebhooksTx
from domain.webhooks.recipients import load_recipients

MAX_DEVICES = 20
"""An account whose clients want more single devices is announced as a whole: the interest is repeated every second."""
SILENT_AFTER_MS = 5_000
"""An instance that has not been heard for so long is gone."""


@dataclass(frozen=True, slots=True)
class PeerFeedInterestMessage:
    """What the feed clients of one instance want; every change has a greater version."""

    version: int
    filters: Sequence[FeedFilter] = ()


@dataclass(frozen=True, slots=True)
class PeerFeedReadingsMessage:
    """Readings of one instance. `sequence` counts its messages that have events; one without events repeats the last number."""

    sequence: int
    store_time_s: int
    events: Sequence[Event] = ()
    interest_seen: Mapping[str, int] = field(default_factory=dict)
    """Instance → version of its interest that the sender follows."""


class FeedMessageBus(Protocol):
    """Messages to all other instances. The callbacks take the sender, and run on the event loop."""

    async def announce_readings(self, readings: PeerFeedReadingsMessage) -> None: ...

    async def on_readings(self, call: Callable[[str, PeerFeedReadingsMessage], Awaitable[None] | None]) -> None: ...

    async def announce_interest(self, interest: PeerFeedInterestMessage) -> None: ...

    async def flush(self) -> None:
        """Returns when what was announced is on its way."""

    async def on_interest(self, call: Callable[[str, PeerFeedInterestMessage], Awaitable[None] | None]) -> None: ...


class RemoteFeedInterest:
    """What the feed clients of the other instances want. Times are monotonic milliseconds."""

    def __init__(self) -> None:
        self._by_instance: dict[str, tuple[PeerFeedInterestMessage, int]] = {}

    def update(self, instance: str, interest: PeerFeedInterestMessage, now_ms: int) -> bool:
        """Whether it has changed."""
        before = self._by_instance.get(instance)
        self._by_instance[instance] = (interest, now_ms)
        return before is None or before[0] != interest

    def forget_silent(self, now_ms: int) -> bool:
        """Whether an instance was forgotten."""
        gone = [instance for instance, (_, at_ms) in self._by_instance.items() if now_ms - at_ms >= SILENT_AFTER_MS]
        for instance in gone:
            del self._by_instance[instance]
        return bool(gone)

    def versions(self) -> dict[str, int]:
        return {instance: interest.version for instance, (interest, _) in self._by_instance.items()}

    def filters(self) -> list[FeedFilter]:
        return [one for interest, _ in self._by_instance.values() for one in interest.filters]

    def wants(self, event: Event) -> bool:
        return any(one.account_id == event.account_id and one.matches(event.kind, event.device_id) for one in self.filters())


@dataclass(slots=True)
class _PeerReceiveState:
    sequence: int
    received_ms: int
    interest_seen: Mapping[str, int]


class FeedInstanceGapTracker:
    """The instances that send readings, and whether all that they sent has arrived. Times are monotonic milliseconds."""

    def __init__(self) -> None:
        self._by_instance: dict[str, _PeerReceiveState] = {}

    def accept(self, instance: str, readings: PeerFeedReadingsMessage, now_ms: int) -> bool:
        """False if a message of this sender was lost before this one, or if it had sent some before it was heard (again): what
        comes then may be older than what other instances have stored meanwhile."""
        before = self._by_instance.get(instance)
        self._by_instance[instance] = _PeerReceiveState(readings.sequence, now_ms, readings.interest_seen)
        return readings.sequence == (0 if before is None else before.sequence) + bool(readings.events)

    def forget_silent(self, now_ms: int) -> list[str]:
        """The senders that are gone: what they stored last may not have been sent."""
        gone = [instance for instance, sender in self._by_instance.items() if now_ms - sender.received_ms >= SILENT_AFTER_MS]
        for instance in gone:
            del self._by_instance[instance]
        return gone

    def unaware_of(self, instance: str, version: int) -> list[str]:
        """The senders that do not follow this version of the interest of `instance` yet."""
        return [sender for sender, last in self._by_instance.items() if last.interest_seen.get(instance, -1) < version]


@service
class DevicesWithSubscribersService:
    """Finds the devices whose telemetry has live subscribers: feed clients and webhooks."""

    uow: UnitOfWork[WebhooksTx]
    clock: Clock

    async def list_watched_devices(self, interests: Iterable[FeedFilter]) -> set[int]:
        """Device numbers. A feed client counts for all devices of its account; the feed drops what the client may not see."""
        wanted = _interests_by_account(interests)
        numbers: set[int] = set()
        async with self.uow.read() as tx:
            for account_id in await tx.accounts.list_ids():
                numbers |= await self._watched_in_account(tx, account_id, wanted.get(account_id, frozenset()))
        return numbers

    async def _watched_in_account(self, tx: WebhooksTx, account_id: AccountId, devices: frozenset[DeviceId] | None) -> set[int]:
        now_ms = self.clock.now_ms()
        recipients = (await load_recipients(tx, [account_id]))[account_id]
        if devices is not None and not devices and not recipients.webhooks:
            return set()
        visibilities = [visibility for _, visibility in recipients.webhooks.values()]
        return {
            device.device_no
            for device in await tx.devices.list(account_id)
            if devices is None
            or device.device_id in devices
            or any(visibility.can_see(device.places, now_ms) for visibility in visibilities)
        }


def wanted_readings(filters: Iterable[FeedFilter]) -> list[FeedFilter]:
    """The filters that cover the readings that these want, few for each account and in a fixed order."""
    wanted = []
    for account_id, devices in _interests_by_account(filters).items():
        is_whole = devices is None or len(devices) > MAX_DEVICES
        for device_id in [None] if is_whole else sorted(devices or ()):
            wanted.append(FeedFilter(account_id, frozenset({TELEMETRY}), device_id))
    return sorted(wanted, key=lambda each: (each.account_id, each.device_id or ""))


def _interests_by_account(interests: Iterable[FeedFilter]) -> dict[AccountId, frozenset[DeviceId] | None]:
    """The devices that feed clients want, by account; None means all devices of the account."""
    wanted: dict[AccountId, frozenset[DeviceId] | None] = {}
    for interest in interests:
        if not interest.wants_readings:
            continue
        devices = wanted.get(interest.account_id, frozenset())
        if interest.device_id is None or devices is None:
            wanted[interest.account_id] = None
        else:
            wanted[interest.account_id] = devices | {interest.device_id}
    return wanted


async def no_other_instances() -> None:
    """Confirms an interest where there is no cluster."""
