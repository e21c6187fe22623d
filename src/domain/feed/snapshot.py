"""What a feed client may see: its devices, their current state, and the events that it missed.

The state and its log position are read in one snapshot. So a client that subscribed before the snapshot can tell which of the
events received in the meantime the state already contains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.devices.model import Device, DeviceStatus
from domain.events.cursors import EventLogCursor
from domain.events.model import Event
from domain.grants.model import GrantSubject
from domain.kernel.caller import ApiKeyCaller, SessionCaller
from domain.kernel.clock import Clock
from domain.kernel.dataclasses import service
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import UnitOfWork
from domain.webhooks.ports import WebhooksTx
from domain.webhooks.recipients import NEVER_EXPIRES_MS, ApiKeyReadScope

PAGE_EVENTS = 500

Viewer = SessionCaller | ApiKeyCaller


@dataclass(frozen=True, slots=True)
class FeedVisibility:
    """`allowed_devices` None means all devices of the account. At `valid_until_ms` (Unix ms) a grant expires: load it again."""

    allowed_devices: frozenset[DeviceId] | None
    valid_until_ms: int


@dataclass(frozen=True, slots=True)
class FeedSnapshot:
    log: EventLogCursor
    devices: Sequence[Device]
    visibility: FeedVisibility


@dataclass(frozen=True, slots=True)
class MissedEventsPage:
    """A page of the event log. `log` covers what has been read with it. `events` is None if missed events have been deleted
    already."""

    events: Sequence[Event] | None
    log: EventLogCursor
    has_more: bool


@service
class FeedSnapshotAndReplayService:
    uow: UnitOfWork[WebhooksTx]
    clock: Clock

    async def snapshot(self, viewer: Viewer, *, with_devices: bool = True) -> FeedSnapshot | None:
        """None if the viewer has lost access to the account. Without `with_devices`, `devices` is empty."""
        async with self.uow.read() as tx:
            ends_ms = await _load_end(tx, viewer, self.clock.now_ms())
            if ends_ms is None:
                return None
            log = await tx.events.end()
            needed = with_devices or isinstance(viewer, ApiKeyCaller)
            devices = await _list_devices(tx, viewer) if needed else []
            visibility = await self._visibility(tx, viewer, devices, ends_ms)
        if visibility.allowed_devices is not None:
            devices = [device for device in devices if device.device_id in visibility.allowed_devices]
        return FeedSnapshot(log, devices if with_devices else [], visibility)

    async def get_visibility(self, viewer: Viewer) -> FeedVisibility | None:
        """What the viewer may see now; None if it has lost access to the account."""
        async with self.uow.read() as tx:
            ends_ms = await _load_end(tx, viewer, self.clock.now_ms())
            if ends_ms is None:
                return None
            devices = await _list_devices(tx, viewer) if isinstance(viewer, ApiKeyCaller) else []
            return await self._visibility(tx, viewer, devices, ends_ms)

    async def list_missed(self, viewer: Viewer, after: EventLogCursor) -> MissedEventsPage:
        """A page of public events that `after` does not cover, oldest first."""
        async with self.uow.read() as tx:
            end = await tx.events.end()
            if after.highest > end.highest or not await _is_still_complete(tx, after):
                return MissedEventsPage(None, after, False)  # or a cursor of another database, or of a backup
            events = await tx.events.list_public_after(viewer.account_id, after, PAGE_EVENTS)
        has_more = len(events) >= PAGE_EVENTS
        return MissedEventsPage(events, after.after(events) if has_more else after.union(end), has_more)

    async def _visibility(self, tx: WebhooksTx, viewer: Viewer, devices: Sequence[Device], ends_ms: int) -> FeedVisibility:
        if not isinstance(viewer, ApiKeyCaller):
            return FeedVisibility(None, NEVER_EXPIRES_MS)
        now_ms = self.clock.now_ms()
        visibility = ApiKeyReadScope.from_grants(
            await tx.grants.list_by_subject(viewer.account_id, GrantSubject(key_id=viewer.key_id)), ends_ms
        )
        visible = [device.device_id for device in devices if visibility.can_see(device.places, now_ms)]
        return FeedVisibility(frozenset(visible), visibility.next_expiry_ms(now_ms))


async def _is_still_complete(tx: WebhooksTx, after: EventLogCursor) -> bool:
    """Whether no event has been deleted that `after` does not cover. Retention deletes the oldest events first."""
    return after.highest == 0 or 0 < await tx.events.oldest_position() <= after.lowest + 1


async def _load_end(tx: WebhooksTx, viewer: Viewer, now_ms: int) -> int | None:
    """When the viewer's key or its secret ends (Unix ms); None if the viewer has lost access to the account."""
    if not isinstance(viewer, ApiKeyCaller):
        return NEVER_EXPIRES_MS if await _is_authorized(tx, viewer) else None
    key = await tx.api_keys.get(viewer.account_id, viewer.key_id)
    if key is None or not key.is_usable(viewer, now_ms):
        return None
    ends_ms = key.end_for(viewer)
    return NEVER_EXPIRES_MS if ends_ms is None else ends_ms


async def _is_authorized(tx: WebhooksTx, viewer: SessionCaller) -> bool:
    if viewer.session_id is not None:
        session = await tx.user_sessions.get(viewer.session_id)
        if session is None or session.revoked_ms is not None:
            return False
    membership = await tx.memberships.get(viewer.membership_id)
    if membership is None or membership.account_id != viewer.account_id:
        return False
    return viewer.operations is None or membership.role.is_at_least(viewer.role)  # a service session ends with its maker's role


async def _list_devices(tx: WebhooksTx, viewer: Viewer) -> list[Device]:
    found = await tx.devices.list(viewer.account_id)
    return [device for device in found if device.status is not DeviceStatus.DELETING]
