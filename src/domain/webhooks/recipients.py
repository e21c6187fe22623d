"""Which webhooks receive the events of a device, and a delivery for each of them in the event's own transaction: a crash at any
moment loses nothing, because either the event is stored with all its deliveries, or neither is.

An account's webhooks, with what their keys may see, are cached where that is safe. The law: a missing cache entry never loses an
event. An entry is built inside a writing transaction, and is used only where this process is the only writer (`exclusive`);
otherwise every lookup reads the database. A change of access appears as an event in its own transaction. From that moment until
its commit, or for MAX_PENDING_CHANGE_MS when it is rolled back (a rollback is not reported), every lookup of the account reads
the database and nothing is cached.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from domain.events.model import Event, is_access_change
from domain.grants.model import ApiKeyReadAccess, Grant
from domain.kernel.clock import MINUTE_MS, SECOND_MS, Clock, Now
from domain.kernel.dataclasses import service
from domain.kernel.ids import AccountId, DeviceId, KeyId, WebhookId
from domain.webhooks.model import Webhook, WebhookDelivery, encode_payload
from domain.webhooks.ports import WebhooksTx

MAX_PENDING_CHANGE_MS = MINUTE_MS
CACHE_TTL_MS = 30 * SECOND_MS
"""The longest life of an entry, in case a change is not recorded as an event."""
NEVER_EXPIRES_MS = 2**62


@dataclass(frozen=True, slots=True)
class ApiKeyReadScope:
    """The devices, groups and projects that one key may read, by id, each with the Unix ms until which it may."""

    until_ms: Mapping[str, int]
    ends_ms: int = NEVER_EXPIRES_MS
    """When the key itself ends."""

    @classmethod
    def from_grants(cls, grants: Sequence[Grant | ApiKeyReadAccess], ends_ms: int | None = None) -> ApiKeyReadScope:
        found: dict[str, int] = {}
        for grant in grants:
            until_ms = NEVER_EXPIRES_MS if grant.expires_ms is None else grant.expires_ms
            found[grant.place] = max(until_ms, found.get(grant.place, 0))
        return cls(found, NEVER_EXPIRES_MS if ends_ms is None else ends_ms)

    def can_see(self, places: Iterable[str], now_ms: int) -> bool:
        """`places`: those of a device (`Device.places`)."""
        return now_ms < self.ends_ms and any(now_ms < self.until_ms.get(place, 0) for place in places)

    def next_expiry_ms(self, now_ms: int) -> int:
        """When the next currently valid grant expires, or the key ends."""
        return min((end for end in (*self.until_ms.values(), self.ends_ms) if end > now_ms), default=NEVER_EXPIRES_MS)


@dataclass(frozen=True, slots=True)
class AccountWebhookRecipients:
    """The enabled webhooks of an account's enabled keys."""

    webhooks: Mapping[WebhookId, tuple[Webhook, ApiKeyReadScope]]
    uses_places: bool
    """Whether any key may read a group or project, so that those of a device matter."""
    _places: dict[DeviceId, tuple[str, ...]] = field(default_factory=dict)

    async def load_places(self, tx: WebhooksTx, device_ids: Collection[DeviceId]) -> None:
        """Loads the projects and groups of these devices, if any key may read one."""
        missing = [device_id for device_id in device_ids if device_id not in self._places] if self.uses_places else []
        if missing:
            self._places.update({device_id: (device_id,) for device_id in missing})
            self._places.update({device.device_id: device.places for device in await tx.devices.list_by_ids(missing)})

    def list_for_device(self, device_id: DeviceId, now_ms: int) -> list[Webhook]:
        """The webhooks that may see this device. Call `load_places` for it first."""
        places = self._places.get(device_id, (device_id,))
        return [webhook for webhook, visibility in self.webhooks.values() if visibility.can_see(places, now_ms)]

    def find_authorized(self, webhook_id: WebhookId, device_id: DeviceId | None, now_ms: int) -> Webhook | None:
        """The webhook, if it is enabled and its key still sees the device. Call `load_places` for the device first. A ping
        has no device and discloses nothing."""
        webhook, visibility = self.webhooks.get(webhook_id, (None, None))
        if webhook is None or visibility is None or now_ms >= visibility.ends_ms:
            return None
        if device_id is None:
            return webhook
        return webhook if visibility.can_see(self._places.get(device_id, (device_id,)), now_ms) else None


async def load_recipients(
    tx: WebhooksTx, account_ids: Collection[AccountId], device_ids: Collection[DeviceId] | None = None
) -> dict[AccountId, AccountWebhookRecipients]:
    """Two queries for any number of accounts, webhooks and grants. `device_ids`: the devices that matter; None: all devices."""
    found: dict[AccountId, dict[WebhookId, tuple[Webhook, ApiKeyReadScope]]] = {account_id: {} for account_id in account_ids}
    enabled = await tx.webhooks.list_enabled(list(account_ids))
    ends = {webhook.key_id: ends_ms for webhook, ends_ms in enabled}
    keys = list(ends)
    access_by_key: dict[KeyId, list[Grant | ApiKeyReadAccess]] = {key_id: [] for key_id in keys}
    accesses: Sequence[ApiKeyReadAccess] = ()
    if keys and device_ids is None:
        accesses = await tx.grants.list_read_access_by_keys(keys)
    elif keys and device_ids is not None:
        accesses = await tx.grants.list_read_access_by_devices(device_ids)
    for access in accesses:
        if access.key_id in access_by_key:
            access_by_key[access.key_id].append(access)
    visibilities = {key_id: ApiKeyReadScope.from_grants(grants, ends[key_id]) for key_id, grants in access_by_key.items()}
    for webhook, _ in enabled:
        found[webhook.account_id][webhook.webhook_id] = (webhook, visibilities[webhook.key_id])
    wide = {key_id for key_id, held in access_by_key.items() if any(access.device_id is None for access in held)}
    return {
        account_id: AccountWebhookRecipients(webhooks, any(webhook.key_id in wide for webhook, _ in webhooks.values()))
        for account_id, webhooks in found.items()
    }


@service
class WebhookRecipientCache:
    """`exclusive`: no other process writes to this database."""

    exclusive: bool
    _entries: dict[AccountId, tuple[AccountWebhookRecipients, int]] = field(default_factory=dict, init=False)
    _pending_changes: dict[AccountId, dict[object, int]] = field(default_factory=dict, init=False)

    async def load(
        self, tx: WebhooksTx, devices_by_account: Mapping[AccountId, Collection[DeviceId]], now_ms: int
    ) -> dict[AccountId, AccountWebhookRecipients]:
        """The recipients of these accounts, with the places of these devices loaded. `tx` must be a writing transaction."""
        found: dict[AccountId, AccountWebhookRecipients] = {}
        for account_id in devices_by_account:
            cached = self._entries.get(account_id) if self._is_cacheable(account_id, now_ms) else None
            if cached is not None and now_ms < cached[1]:
                found[account_id] = cached[0]
        missing = [account_id for account_id in devices_by_account if account_id not in found]
        cacheable = [account_id for account_id in missing if self._is_cacheable(account_id, now_ms)]
        if cacheable:
            for account_id, recipients in (await load_recipients(tx, cacheable)).items():
                found[account_id] = recipients
                self._entries[account_id] = (recipients, now_ms + CACHE_TTL_MS)
        uncacheable = [account_id for account_id in missing if account_id not in found]
        if uncacheable:
            found |= await load_recipients(
                tx, uncacheable, {device for account_id in uncacheable for device in devices_by_account[account_id]}
            )
        for account_id, recipients in found.items():
            await recipients.load_places(tx, devices_by_account[account_id])
        return found

    def _is_cacheable(self, account_id: AccountId, now_ms: int) -> bool:
        return self.exclusive and not self._has_pending_change(account_id, now_ms)

    def on_event(self, tx: WebhooksTx, event: Event, now_ms: int) -> None:
        """Handles an event that is being stored: if it changes access, nothing of its account is cached until the commit."""
        if is_access_change(event.kind):
            self.invalidate_until_commit(tx, event.account_id, now_ms)

    def invalidate_until_commit(self, tx: WebhooksTx, account_id: AccountId, now_ms: int) -> None:
        change = object()
        self._entries.pop(account_id, None)
        self._pending_changes.setdefault(account_id, {})[change] = now_ms + MAX_PENDING_CHANGE_MS
        tx.after_commit(lambda: self._end_change(account_id, change))

    def invalidate(self, account_id: AccountId) -> None:
        """Drops the entry of an account, after a change that was not stored as an event."""
        self._entries.pop(account_id, None)

    def _end_change(self, account_id: AccountId, change: object) -> None:
        self._entries.pop(account_id, None)
        changes = self._pending_changes.get(account_id, {})
        changes.pop(change, None)
        if not changes:
            self._pending_changes.pop(account_id, None)

    def _has_pending_change(self, account_id: AccountId, now_ms: int) -> bool:
        changes = self._pending_changes.get(account_id)
        if changes is None:
            return False
        for change in [change for change, until_ms in changes.items() if until_ms <= now_ms]:
            del changes[change]
        if not changes:
            del self._pending_changes[account_id]
        return bool(changes)


@service
class WebhookDeliveryFanout:
    """An `TransactionEventObserver`. `wake_worker` is called after the commit."""

    recipients: WebhookRecipientCache
    clock: Clock
    wake_worker: Callable[[], None]

    async def on_events(self, tx: WebhooksTx, events: Sequence[Event]) -> None:
        now = Now.of(self.clock)
        public_events: dict[AccountId, list[Event]] = {}
        for event in events:
            if event.is_public and event.device_id is not None:
                public_events.setdefault(event.account_id, []).append(event)
            else:
                self.recipients.on_event(tx, event, now.wall_ms)
        devices = {account_id: {one.device_id for one in public if one.device_id} for account_id, public in public_events.items()}
        recipients = await self.recipients.load(tx, devices, now.wall_ms)
        deliveries: list[WebhookDelivery] = []
        for account_id, public in public_events.items():
            for event in public:
                deliveries += _deliveries_for(recipients[account_id], event, now)
        if deliveries:
            await tx.deliveries.add_many(deliveries)
            tx.after_commit(self.wake_worker)


def _deliveries_for(recipients: AccountWebhookRecipients, event: Event, now: Now) -> list[WebhookDelivery]:
    visible = [] if event.device_id is None else recipients.list_for_device(event.device_id, now.wall_ms)
    webhooks = [webhook for webhook in visible if event.kind in webhook.wanted_types]
    data = encode_payload(event.payload) if webhooks else b""
    return [
        WebhookDelivery.pending(webhook, event.device_id, event.event_id, event.kind, data, now.steady_ms, now.wall_ms)
        for webhook in webhooks
    ]
