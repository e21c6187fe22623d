"""Finds the devices whose telemetry has live subscribers: feed clients and webhooks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from domain.accounts.ports import HasAccounts
from domain.events.feed_model import FeedFilter
from domain.kernel.clock import Clock
from domain.kernel.ids import AccountId, DeviceId
from domain.kernel.unit_of_work import UnitOfWork
from domain.webhooks.ports import WebhookRecipientTx
from domain.webhooks.recipients import load_recipients


class DevicesWithSubscribersTx(WebhookRecipientTx, HasAccounts, Protocol): ...


class DevicesWithSubscribersService:
    def __init__(self, *, uow: UnitOfWork[DevicesWithSubscribersTx], clock: Clock) -> None:
        self._uow = uow
        self._clock = clock

    async def list_watched_devices(self, interests: Iterable[FeedFilter]) -> set[int]:
        """Device numbers. A feed client counts for all devices of its account; the feed drops what the client may not see."""
        wanted = interests_by_account(interests)
        numbers: set[int] = set()
        async with self._uow.read() as tx:
            for account_id in await tx.accounts.list_ids():
                numbers |= await self._watched_in_account(tx, account_id, wanted.get(account_id, frozenset()))
        return numbers

    async def _watched_in_account(
        self, tx: DevicesWithSubscribersTx, account_id: AccountId, devices: frozenset[DeviceId] | None
    ) -> set[int]:
        now_ms = self._clock.now_ms()
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


def interests_by_account(interests: Iterable[FeedFilter]) -> dict[AccountId, frozenset[DeviceId] | None]:
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
