"""Who hears of a device: the webhooks of an account with what their keys may see, kept in memory while it cannot change.

The law is that a missing look-up never loses an event. What is kept was built inside a writing transaction and is used only
where this process is the single writer (`exclusive`); elsewhere every look-up goes to the database. A change of access shows
itself as an event in its own transaction: from that moment until its commit is known, and for `QUIET_MS` when it never is (a
rollback tells nobody), the account is looked up anew each time and nothing is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from domain.events.model import Event
from domain.events.policy import is_access_change
from domain.grants.model import Grant, KeyReadAccess
from domain.kernel.clock import MINUTE_MS, SECOND_MS
from domain.kernel.ids import AccountId, DeviceId, KeyId, ProjectId, WebhookId
from domain.webhooks.model import Webhook
from domain.webhooks.ports import RecipientTx

MAX_PENDING_CHANGE_MS = MINUTE_MS
CACHE_TTL_MS = 30 * SECOND_MS
"""How long something kept is believed at the most, should a change ever go unrecorded."""
NEVER_EXPIRES_MS = 2**62


@dataclass(frozen=True, slots=True)
class Visibility:
    """What one key may read, each with the Unix ms until which it may."""

    devices: Mapping[DeviceId, int]
    projects: Mapping[ProjectId, int]

    @classmethod
    def from_grants(cls, grants: Sequence[Grant | KeyReadAccess]) -> Visibility:
        devices: dict[DeviceId, int] = {}
        projects: dict[ProjectId, int] = {}
        for grant in grants:
            until_ms = NEVER_EXPIRES_MS if grant.expires_ms is None else grant.expires_ms
            if grant.device_id is not None:
                devices[grant.device_id] = max(until_ms, devices.get(grant.device_id, 0))
            elif grant.project_id is not None:
                projects[grant.project_id] = max(until_ms, projects.get(grant.project_id, 0))
        return cls(devices, projects)

    def visible_until_ms(self, device_id: DeviceId, project_id: ProjectId | None) -> int:
        """Until when the key may read this device; 0 when it never could."""
        by_project = 0 if project_id is None else self.projects.get(project_id, 0)
        return max(self.devices.get(device_id, 0), by_project)

    def can_see(self, device_id: DeviceId, project_id: ProjectId | None, now_ms: int) -> bool:
        return now_ms < self.visible_until_ms(device_id, project_id)

    def next_expiry_ms(self, now_ms: int) -> int:
        """When the next of the grants that hold now runs out."""
        ends = [end for end in (*self.devices.values(), *self.projects.values()) if end > now_ms]
        return min(ends, default=NEVER_EXPIRES_MS)


@dataclass(frozen=True, slots=True)
class WebhookRecipients:
    """The enabled webhooks of an account's enabled keys."""

    webhooks: Mapping[WebhookId, tuple[Webhook, Visibility]]
    uses_projects: bool
    """Whether any sight is over a project, so that a device's project matters."""
    _project_ids: dict[DeviceId, ProjectId | None] = field(default_factory=dict)

    async def load_projects(self, tx: RecipientTx, device_ids: Collection[DeviceId]) -> None:
        """Find out in which projects they are, if that matters."""
        missing = [device_id for device_id in device_ids if device_id not in self._project_ids] if self.uses_projects else []
        if missing:
            self._project_ids.update(dict.fromkeys(missing))
            self._project_ids.update({device.device_id: device.project_id for device in await tx.devices.list_by_ids(missing)})

    def list_for_device(self, device_id: DeviceId, now_ms: int) -> list[Webhook]:
        """Of a device that has been placed."""
        project_id = self._project_ids.get(device_id)
        return [hook for hook, sight in self.webhooks.values() if sight.can_see(device_id, project_id, now_ms)]

    def find_authorized(self, webhook_id: WebhookId, device_id: DeviceId | None, now_ms: int) -> Webhook | None:
        """The webhook, if it is enabled and its key still sees the device, which has been placed. No device: a ping, which shows
        nothing."""
        webhook, sight = self.webhooks.get(webhook_id, (None, None))
        if webhook is None or sight is None or device_id is None:
            return webhook
        return webhook if sight.can_see(device_id, self._project_ids.get(device_id), now_ms) else None


async def load_recipients(
    tx: RecipientTx, account_ids: Collection[AccountId], device_ids: Collection[DeviceId] | None = None
) -> dict[AccountId, WebhookRecipients]:
    """Two questions, however many accounts, webhooks and grants. `device_ids`: all that will be asked about; None: any."""
    found: dict[AccountId, dict[WebhookId, tuple[Webhook, Visibility]]] = {account_id: {} for account_id in account_ids}
    live = await tx.webhooks.list_enabled(list(account_ids))
    keys = list(dict.fromkeys(webhook.key_id for webhook in live))
    reaches: dict[KeyId, list[Grant | KeyReadAccess]] = {key_id: [] for key_id in keys}
    for reach in (
        (
            await tx.grants.list_read_access_by_keys(keys)
            if device_ids is None
            else await tx.grants.list_read_access_by_devices(device_ids)
        )
        if keys
        else ()
    ):
        if reach.key_id in reaches:
            reaches[reach.key_id].append(reach)
    sights = {key_id: Visibility.from_grants(mine) for key_id, mine in reaches.items()}
    for webhook in live:
        found[webhook.account_id][webhook.webhook_id] = (webhook, sights[webhook.key_id])
    by_project = {account_id: any(sight.projects for _, sight in hooks.values()) for account_id, hooks in found.items()}
    return {account_id: WebhookRecipients(hooks, by_project[account_id]) for account_id, hooks in found.items()}


class RecipientCache:
    """Scopes by account, kept where that is safe."""

    def __init__(self, *, exclusive: bool) -> None:
        """`exclusive`: no other process writes to this database."""
        self._exclusive = exclusive
        self._entries: dict[AccountId, tuple[WebhookRecipients, int]] = {}
        self._pending_changes: dict[AccountId, dict[object, int]] = {}

    async def load(
        self, tx: RecipientTx, places: Mapping[AccountId, Collection[DeviceId]], now_ms: int
    ) -> dict[AccountId, WebhookRecipients]:
        """For these accounts, to be asked about these devices. `tx` must be a writing transaction."""
        found: dict[AccountId, WebhookRecipients] = {}
        for account_id in places:
            kept = self._entries.get(account_id) if self._is_cacheable(account_id, now_ms) else None
            if kept is not None and now_ms < kept[1]:
                found[account_id] = kept[0]
        missing = [account_id for account_id in places if account_id not in found]
        lasting = [account_id for account_id in missing if self._is_cacheable(account_id, now_ms)]
        if lasting:
            for account_id, scope in (await load_recipients(tx, lasting)).items():
                found[account_id] = scope
                self._entries[account_id] = (scope, now_ms + CACHE_TTL_MS)
        passing = [account_id for account_id in missing if account_id not in found]
        if passing:
            found |= await load_recipients(tx, passing, {device for account_id in passing for device in places[account_id]})
        for account_id, scope in found.items():
            await scope.load_projects(tx, places[account_id])
        return found

    def _is_cacheable(self, account_id: AccountId, now_ms: int) -> bool:
        return self._exclusive and not self._has_pending_change(account_id, now_ms)

    def on_event(self, tx: RecipientTx, event: Event, now_ms: int) -> None:
        """An event is being recorded: keep nothing of its account until its commit, if it changes who may see."""
        if is_access_change(event.kind):
            self.invalidate_until_commit(tx, event.account_id, now_ms)

    def invalidate_until_commit(self, tx: RecipientTx, account_id: AccountId, now_ms: int) -> None:
        mark = object()
        self._entries.pop(account_id, None)
        self._pending_changes.setdefault(account_id, {})[mark] = now_ms + MAX_PENDING_CHANGE_MS
        tx.after_commit(lambda: self._end_change(account_id, mark))

    def invalidate(self, account_id: AccountId) -> None:
        """Look the account up anew; for a change that was not recorded as an event."""
        self._entries.pop(account_id, None)

    def _end_change(self, account_id: AccountId, mark: object) -> None:
        self._entries.pop(account_id, None)
        marks = self._pending_changes.get(account_id, {})
        marks.pop(mark, None)
        if not marks:
            self._pending_changes.pop(account_id, None)

    def _has_pending_change(self, account_id: AccountId, now_ms: int) -> bool:
        marks = self._pending_changes.get(account_id)
        if marks is None:
            return False
        for mark in [mark for mark, until_ms in marks.items() if until_ms <= now_ms]:
            del marks[mark]
        if not marks:
            del self._pending_changes[account_id]
        return bool(marks)
