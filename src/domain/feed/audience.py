"""What a feed client is shown: the devices it may see, their present state, and what it missed.

The state and the position it belongs to are read in one snapshot, so that whoever listened before it was taken can tell which of
the events heard meanwhile are in it already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.devices.model import Device, DeviceStatus
from domain.events.model import Event
from domain.events.ports import EventsTx
from domain.grants.model import GrantSubject
from domain.grants.ports import GrantsTx
from domain.kernel.caller import ApiKeyCaller, Session
from domain.kernel.clock import Clock
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import UnitOfWork
from domain.webhooks.recipients import NEVER_EXPIRES_MS, Visibility

PAGE_EVENTS = 500

Viewer = Session | ApiKeyCaller


@dataclass(frozen=True, slots=True)
class FeedVisibility:
    """`allowed` None: all of the account. `until_ms`: when this must be asked again at the latest, because a grant runs out."""

    allowed_devices: frozenset[DeviceId] | None
    valid_until_ms: int


@dataclass(frozen=True, slots=True)
class FeedSnapshot:
    position: int
    devices: Sequence[Device]
    visibility: FeedVisibility


@dataclass(frozen=True, slots=True)
class MissedEvents:
    """A page of the log. `position` is where it ends, `more` whether another follows. `events` None: what was missed has been
    forgotten meanwhile."""

    events: Sequence[Event] | None
    position: int
    has_more: bool


class AudienceService:
    def __init__(self, *, uow: UnitOfWork[GrantsTx], clock: Clock) -> None:
        self._uow = uow
        self._clock = clock

    async def snapshot(self, viewer: Viewer) -> FeedSnapshot | None:
        """None when the viewer has been shut out."""
        async with self._uow.read() as tx:
            if not await _is_authorized(tx, viewer):
                return None
            position = await tx.events.account_newest_position(viewer.account_id)
            devices = await _list_devices(tx, viewer)
            view = await self._visibility(tx, viewer, devices)
        if view.allowed_devices is not None:
            devices = [device for device in devices if device.device_id in view.allowed_devices]
        return FeedSnapshot(position, devices, view)

    async def get_visibility(self, viewer: Viewer) -> FeedVisibility | None:
        """What the viewer may see now; None when it has been shut out."""
        async with self._uow.read() as tx:
            if not await _is_authorized(tx, viewer):
                return None
            devices = await _list_devices(tx, viewer) if isinstance(viewer, ApiKeyCaller) else []
            return await self._visibility(tx, viewer, devices)

    async def list_missed(self, viewer: Viewer, after: int) -> MissedEvents:
        """Public events behind position `after`, oldest first."""
        async with self._uow.read() as tx:
            if not await _is_still_complete(tx, viewer, after):
                return MissedEvents(None, after, False)
            newest = await tx.events.account_newest_position(viewer.account_id)
            events = await tx.events.list_public_after(viewer.account_id, after, PAGE_EVENTS)
        more = len(events) >= PAGE_EVENTS
        return MissedEvents(events, events[-1].position if more else max(newest, after), more)

    async def _visibility(self, tx: GrantsTx, viewer: Viewer, devices: Sequence[Device]) -> FeedVisibility:
        if not isinstance(viewer, ApiKeyCaller):
            return FeedVisibility(None, NEVER_EXPIRES_MS)
        now_ms = self._clock.now_ms()
        sight = Visibility.from_grants(await tx.grants.list_by_subject(viewer.account_id, GrantSubject(key_id=viewer.key_id)))
        seen = [device.device_id for device in devices if sight.can_see(device.device_id, device.project_id, now_ms)]
        return FeedVisibility(frozenset(seen), sight.next_expiry_ms(now_ms))


async def _is_still_complete(tx: EventsTx, viewer: Viewer, after: int) -> bool:
    """Whether nothing behind `after` has been forgotten. Only old events are, in order: so if `after` is still there, all is."""
    if after > await tx.events.account_newest_position(viewer.account_id):
        return False  # of another database, or of before a restored backup
    return after == 0 or await tx.events.account_oldest_position(viewer.account_id) <= after


async def _is_authorized(tx: GrantsTx, viewer: Viewer) -> bool:
    if isinstance(viewer, ApiKeyCaller):
        key = await tx.api_keys.get(viewer.account_id, viewer.key_id)
        return key is not None and key.enabled
    membership = await tx.memberships.get(viewer.membership_id)
    return membership is not None and membership.account_id == viewer.account_id


async def _list_devices(tx: GrantsTx, viewer: Viewer) -> list[Device]:
    found = await tx.devices.list(viewer.account_id)
    return [device for device in found if device.status is not DeviceStatus.DELETING]
