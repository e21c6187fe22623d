"""The small account of `device_world` with the log, the feed and webhooks, wired as the program wires them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from adapters.delivery.address_guard import AddressGuard
from adapters.delivery.courier import NativeCourier
from adapters.engine.reference import ReferenceWebhookSigner
from adapters.feed_hub import InProcessFeedHub, LogOrderedFeedPublisher
from adapters.randomness import RandomIdAndSecretGenerator
from adapters.storage.sql.database import SqlDatabase
from app.workers.due import WakeEvent
from app.workers.webhook_delivery import WebhookDeliveryWorker
from domain.accounts.model import Account, Membership, Project, User
from domain.devices.model import Device, DeviceMetadata, DeviceStatus, FirmwareProfile
from domain.events.dispatcher import EventDispatcher
from domain.events.service import EventService
from domain.grants.model import Grant, GrantSubject, Scope, WeeklyGrantWindow
from domain.kernel.caller import Role, SessionCaller
from domain.kernel.domain_event import DomainEvent, EventKind
from domain.kernel.ids import AccountId, DeviceId, GrantId, IdPrefix, KeyId, MembershipId, ProjectId, UserId
from domain.keys.model import ApiKey
from domain.webhooks.delivery import WebhookDeliveryService
from domain.webhooks.delivery_log import WebhookDeliveryLogService
from domain.webhooks.model import DeliveryAttempt
from domain.webhooks.ports import CreateSigner
from domain.webhooks.queues import EndpointQueues
from domain.webhooks.recipients import WebhookDeliveryFanout, WebhookRecipientCache
from domain.webhooks.recovery import WebhookRecoveryService
from domain.webhooks.service import WebhookService, WebhookWithSecret
from support.device_world import TransparentVault
from support.empty_database import empty_postgres, empty_sqlite
from support.memory_storage.unit_of_work import MemoryUnitOfWork
from support.waiting import TIMEOUT_S

ACCOUNT = AccountId("acc_00000000000000000000")
PROJECT = ProjectId("prj_00000000000000000000")


class MovableClock:
    """The real clock plus an offset."""

    def __init__(self) -> None:
        self.moved_ms = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.moved_ms

    def monotonic_ms(self) -> int:
        return self.now_ms()

    def steady_ms(self) -> int:
        return self.now_ms()

    def forward(self, *, seconds: float) -> None:
        self.moved_ms += round(seconds * 1000)


class WebhookWorld:
    def __init__(
        self,
        uow: Callable[[Any], Any] = MemoryUnitOfWork,
        *,
        exclusive: bool = True,
        send_queues: EndpointQueues | None = None,
        create_signer: CreateSigner = ReferenceWebhookSigner,
        followed: bool = False,
        clock: Any = None,
    ) -> None:
        self.clock: Any = clock or MovableClock()
        self.ids = RandomIdAndSecretGenerator()
        self.vault = TransparentVault()
        self.wake_event = WakeEvent()
        self.recovery_wake_event = WakeEvent()
        self.feed = InProcessFeedHub()
        self.scopes = WebhookRecipientCache(exclusive=exclusive)
        self.fanout = WebhookDeliveryFanout(recipients=self.scopes, clock=self.clock, wake_worker=self.wake_event.set)
        self.log_wake_event = WakeEvent()
        self.followed = LogOrderedFeedPublisher(self.feed, self.log_wake_event.set) if followed else None
        self.recorder = EventDispatcher(ids=self.ids, observers=[self.fanout], feed=self.followed or self.feed)
        self.uow: Any = uow(self.recorder)
        self.courier = NativeCourier(clock=self.clock, guard=AddressGuard(allow_private=True))
        shared: dict[str, Any] = {"uow": self.uow, "clock": self.clock}
        self.events = EventService(**shared)
        self.deliveries = WebhookDeliveryService(
            **shared,
            ids=self.ids,
            vault=self.vault,
            create_signer=create_signer,
            recipients=self.scopes,
            jitter=lambda: 0.0,
            queues=send_queues or EndpointQueues(),
        )
        self.loop = WebhookDeliveryWorker(
            deliveries=self.deliveries, courier=self.courier, clock=self.clock, wake_event=self.wake_event
        )
        self.webhooks = WebhookService(
            **shared, ids=self.ids, vault=self.vault, courier=self.courier, on_changed=self.loop.cancel_webhook
        )
        self.recoveries = WebhookRecoveryService(**shared, wake_delivery=self.wake_event.set, wake=self.recovery_wake_event.set)
        self.log = WebhookDeliveryLogService(**shared, ids=self.ids, deliveries=self.deliveries, send=self.loop.send_manual)

    async def populate(self) -> WebhookWorld:
        async with self.uow.write() as tx:
            await tx.accounts.add(Account(ACCOUNT, "Acme", "free", 0))
            await tx.projects.add(Project(PROJECT, ACCOUNT, "Default", True, 0))
            for role in Role:
                session = self.session(role)
                email = f"{role}@acme.example".lower()
                await tx.users.add(User(session.user_id, email, f"{role}", "secret", True, 0, 0))
                await tx.memberships.add(Membership(session.membership_id, ACCOUNT, session.user_id, role, 0))
        return self

    def session(self, role: Role = Role.OWNER) -> SessionCaller:
        return SessionCaller(ACCOUNT, UserId(f"usr_{role.rank:020d}"), MembershipId(f"mbr_{role.rank:020d}"), role, "192.0.2.1")

    async def device(self, project_id: ProjectId = PROJECT) -> Device:
        device = Device(
            device_id=DeviceId(self.ids.new_id(IdPrefix.DEVICE)),
            device_no=0,
            account_id=ACCOUNT,
            project_id=project_id,
            name="Pump",
            board_type="ESP32",
            app_type="PUMP",
            app_type_other=None,
            status=DeviceStatus.ACTIVE,
            profile=FirmwareProfile.NATIVE,
            device_type_id=None,
            about=DeviceMetadata(),
            created_ms=0,
        )
        async with self.uow.write() as tx:
            stored = await tx.devices.add(device)
            tx.emit(self.domain_event("device_registered", device.device_id))
        return stored  # type: ignore[no-any-return]

    async def key(self) -> KeyId:
        key_id = KeyId(self.ids.new_id(IdPrefix.KEY))
        async with self.uow.write() as tx:
            await tx.api_keys.add(ApiKey(key_id, ACCOUNT, "Robot", "sk_live_abcd", key_id.encode(), True, None, 0, "user:usr_1"))
            tx.emit(self.domain_event("key_created"))
        return key_id

    async def grant(
        self, key_id: KeyId, device: Device | None = None, *, project: bool = False, expires_ms: int | None = None
    ) -> Grant:
        grant = await self.grant_of(key_id, device, project=project, expires_ms=expires_ms)
        async with self.uow.write() as tx:
            await tx.grants.add(grant)
            tx.emit(self.domain_event("grant_created"))
        return grant

    async def grant_of(
        self, key_id: KeyId, device: Device | None = None, *, project: bool = False, expires_ms: int | None = None
    ) -> Grant:
        """A grant that is not stored yet."""
        return Grant(
            grant_id=GrantId(self.ids.new_id(IdPrefix.GRANT)),
            account_id=ACCOUNT,
            subject=GrantSubject(key_id=key_id),
            device_id=None if project or device is None else device.device_id,
            project_id=PROJECT if project else None,
            commands=("*",),
            scope=Scope.READ,
            expires_ms=expires_ms,
            window=WeeklyGrantWindow(),
            rate_limit_per_minute=None,
            created_ms=self.clock.now_ms(),
            created_by="test",
        )

    async def revoke(self, grant: Grant) -> None:
        async with self.uow.write() as tx:
            await tx.grants.delete(grant.grant_id)
            tx.emit(self.domain_event("grant_revoked"))

    async def webhook(self, url: str, *devices: Device, project: bool = False) -> WebhookWithSecret:
        """A webhook of a new key with a grant on each device."""
        key_id = await self.key()
        for device in devices:
            await self.grant(key_id, device)
        if project:
            await self.grant(key_id, project=True)
        return await self.webhooks.create(self.session(), key_id=key_id, url=url)

    def domain_event(self, kind: EventKind, device_id: DeviceId | None = None, **data: Any) -> DomainEvent:
        return DomainEvent(ACCOUNT, kind, kind, self.clock.now_ms(), "device", device_id, data)

    async def switch(self, device: Device, relay: str = "ON") -> None:
        """A relay change reported by the device."""
        async with self.uow.write() as tx:
            tx.emit(self.domain_event("relay_changed", device.device_id, relay=relay, triggeredBy="device"))

    @contextlib.asynccontextmanager
    async def delivering(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.loop.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task], timeout=TIMEOUT_S)
            await self.courier.close()

    def later(self, *, seconds: float) -> None:
        """Move the clock and wake the worker."""
        self.clock.forward(seconds=seconds)
        self.wake_event.set()

    async def attempts(self, made: WebhookWithSecret, count: int) -> list[DeliveryAttempt]:
        """The attempts, oldest first, when `count` of them have ended."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                attempts = list(await self.log.list_attempts(self.session(), made.webhook.webhook_id))[::-1]
                if sum(attempt.finished_ms is not None for attempt in attempts) >= count:
                    return attempts
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def webhook_world(kind: str, path: Path) -> AsyncIterator[WebhookWorld]:
    """A `WebhookWorld` on an empty storage of this kind."""
    if kind == "memory":
        yield await WebhookWorld().populate()
        return
    database = SqlDatabase(
        empty_sqlite(path / "hooks.db") if kind == "sqlite" else await empty_postgres(), acquire_timeout_s=TIMEOUT_S
    )
    await database.start()
    try:
        yield await WebhookWorld(database.unit_of_work, exclusive=kind != "postgres").populate()
    finally:
        await database.stop()
