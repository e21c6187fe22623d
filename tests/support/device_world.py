"""An account with people, keys and devices on the in-memory storage, with fakes for everything external."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self

from adapters.firmware_sources import ExampleFirmwareSourceReader
from adapters.mqtt.codec import ProfileDispatchingDeviceCodec
from adapters.params_validator import JsonSchemaParamsValidator
from adapters.waiters import InProcessApprovalWaiter, InProcessExecutionWaiter
from domain.accounts.model import Account, Membership, Project, User
from domain.commands.authority import QueuedCommandAuthority
from domain.commands.cancellation import CommandCancellationService
from domain.commands.definitions import CommandDefinitionService
from domain.commands.device_types import DeviceTypeAdminService
from domain.commands.dispatch import CommandDispatchService
from domain.commands.dispatch_queue import DispatchQueue
from domain.commands.queries import DeviceQueries, SubmittedCommandWaiter
from domain.commands.reports import ExecutionChangeCollector, ReportService
from domain.commands.submission import CommandSubmissionService
from domain.devices.absence import AbsenceTracker
from domain.devices.credential_sync import CredentialSyncService
from domain.devices.credentials import CredentialIssuer, DeviceCredentialService, FirmwareProjectService
from domain.devices.erasure import DeviceErasureService
from domain.devices.firmware import BrokerEndpoint
from domain.devices.link import PublishResult
from domain.devices.messages import CommandResultReport, DeviceReport, OutboundMessage, RelayReport
from domain.devices.model import Device
from domain.devices.presence import PresenceBatch, PresenceService
from domain.devices.registration import DeviceRegistrationInput
from domain.devices.service import DeviceService
from domain.grants.authorizer import Authorizer
from domain.grants.model import Grant, GrantRateLimitDecision, GrantSubject, Scope, WeeklyGrantWindow
from domain.grants.reference import rate_allowance
from domain.kernel.caller import ApiKeyCaller, Role, SessionCaller
from domain.kernel.ids import AccountId, DeviceId, ExecutionId, GrantId, IdPrefix, KeyId, MembershipId, ProjectId, UserId
from domain.keys.model import ApiKey
from support.manual_clock import START_MS, ManualClock
from support.memory_storage.unit_of_work import MemoryUnitOfWork
from support.plain_hasher import PlainHasher

ACCOUNT = AccountId("acc_00000000000000000000")


class CountingIds:
    def __init__(self) -> None:
        self._last = 0

    def new_id(self, prefix: IdPrefix) -> str:
        self._last += 1
        return f"{prefix}_{self._last:020d}"

    def random_digits(self, count: int) -> str:
        return "1" * count

    def random_alphanumeric(self, length: int) -> str:
        self._last += 1
        return f"p{self._last}".ljust(length, "x")

    def random_bytes(self, size: int) -> bytes:
        return bytes(size)


class TransparentVault:
    """Stores the binding in the sealed bytes, so that a test detects a secret opened for the wrong owner."""

    def seal(self, secret: str, bound_to: str) -> bytes:
        return f"{bound_to}|{secret}".encode()

    def open(self, sealed: bytes, bound_to: str) -> str:
        owner, secret = sealed.decode().split("|", 1)
        assert owner == bound_to
        return secret

    def needs_rekey(self, sealed: bytes) -> bool:
        return False


class FakeWindowEvaluator:
    """Every window is open unless a test closes them."""

    def __init__(self) -> None:
        self.open = True

    def is_known_timezone(self, timezone: str) -> bool:
        return True

    def is_open(self, window: WeeklyGrantWindow, at_ms: int) -> bool:
        return self.open

    def next_open_ms(self, window: WeeklyGrantWindow, at_ms: int) -> int | None:
        return at_ms if self.open else at_ms + 60_000

    def rate_allowance(self, uses: Sequence[int], limit: int, now_ms: int) -> GrantRateLimitDecision:
        return rate_allowance(uses, limit, now_ms)


@dataclass
class SentMessage:
    device_id: str
    topic: str
    payload: bytes
    expiry_s: int | None


@dataclass
class FakeLink:
    """Devices in `listening` receive what is sent. `broken` makes every call fail."""

    admitted: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    expelled: list[str] = field(default_factory=list)
    listening: set[str] = field(default_factory=set)
    sent: list[SentMessage] = field(default_factory=list)
    broken: Exception | None = None
    deaf_for: int = 0
    unconfirmed: bool = False
    too_large: bool = False
    """The next sends that fail although the device is connected."""
    on_send: Callable[[SentMessage], None] | None = None
    subscribed: dict[str, int] = field(default_factory=dict)

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def hold_partitions(self, partitions: Collection[int]) -> None: ...

    def suspend(self) -> None: ...

    def resume(self) -> None: ...

    def has_waiting(self) -> bool:
        return False

    async def receive(self, limit: int) -> Any:
        raise NotImplementedError

    async def upsert_credentials(self, device_id: str, device_no: int, password: str, profile: str) -> None:
        if self.broken:
            raise self.broken
        self.admitted[device_id] = (device_no, password, profile)

    async def remove_device(self, device_id: str) -> None:
        if self.broken:
            raise self.broken
        self.admitted.pop(device_id, None)
        self.listening.discard(device_id)
        self.expelled.append(device_id)

    async def send(self, device_id: str, message: OutboundMessage) -> PublishResult:
        if self.broken:
            raise self.broken
        if device_id not in self.listening:
            return PublishResult.NOT_SENT
        if self.too_large:
            return PublishResult.TOO_LARGE
        if self.deaf_for:
            self.deaf_for -= 1
            return PublishResult.NOT_SENT
        if self.unconfirmed:
            return PublishResult.UNCONFIRMED
        sent = SentMessage(device_id, message.topic, message.payload, message.expiry_s)
        self.sent.append(sent)
        if self.on_send is not None:
            self.on_send(sent)
        return PublishResult.SENT

    def is_connected(self, device_id: str) -> bool:
        return device_id in self.listening

    def last_subscribed_ms(self, device_id: str) -> int:
        return self.subscribed.get(device_id, 0)

    def disconnect(self, device_id: str) -> bool:
        connected = device_id in self.listening
        self.listening.discard(device_id)
        return connected

    def warning(self) -> str | None:
        return None

    def stats(self) -> dict[str, int]:
        return {}


class FakeWakeEvent:
    def __init__(self) -> None:
        self.rings = 0

    def __call__(self) -> None:
        self.rings += 1


class DeviceWorld:
    """Everything of the devices and commands parts, wired as the program wires it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ids = CountingIds()
        self.uow = MemoryUnitOfWork()
        self.absence = AbsenceTracker(uow=self.uow, clock=self.clock)
        self.link = FakeLink()
        self.windows = FakeWindowEvaluator()
        self.outcomes = InProcessExecutionWaiter()
        self.checker = JsonSchemaParamsValidator()
        self.wake_event = FakeWakeEvent()
        self.deleted: list[int] = []
        self.readmitted: list[DeviceId] = []
        shared: dict[str, Any] = {"uow": self.uow, "clock": self.clock}
        self.gate = Authorizer(evaluator=self.windows)
        self.presence = PresenceService(**shared, link=self.link, wake=self.wake_event)
        self.admission = self.make_admission()
        self.erasure = DeviceErasureService(**shared, wake=self.wake_event, on_deleted=self.deleted.append)
        self.devices = DeviceService(
            **shared, ids=self.ids, credential_sync=self.admission, presence=self.presence, erasure=self.erasure
        )
        endpoint = BrokerEndpoint("mqtt.example", 1883, 8083)
        self.firmware = FirmwareProjectService(
            uow=self.uow, endpoint=endpoint, sources=ExampleFirmwareSourceReader(), ota_password=lambda one: f"ota of {one}"
        )
        self.credentials = DeviceCredentialService(
            **shared,
            issuer=CredentialIssuer(ids=self.ids, vault=TransparentVault(), endpoint=endpoint),
            vault=TransparentVault(),
            hasher=PlainHasher(),
            credential_sync=self.admission,
            presence=self.presence,
        )
        self.offers = DispatchQueue(wake=self.wake_event)
        self.commands = CommandSubmissionService(
            **shared,
            ids=self.ids,
            authorizer=self.gate,
            validator=self.checker,
            dispatch_queue=self.offers,
            wake_approvals=self.wake_event,
        )
        self.decisions = InProcessApprovalWaiter()
        self.authority = QueuedCommandAuthority(
            evaluator=self.windows, execution_waiter=self.outcomes, approval_waiter=self.decisions, forget=self.offers.discard
        )
        self.cancellation = CommandCancellationService(**shared, authorizer=self.gate, authority=self.authority)
        self.waiter = SubmittedCommandWaiter(**shared, execution_waiter=self.outcomes, approval_waiter=self.decisions)
        self.definitions = CommandDefinitionService(
            **shared, ids=self.ids, authorizer=self.gate, validator=self.checker, commands=self.commands
        )
        self.types = DeviceTypeAdminService(**shared, ids=self.ids, validator=self.checker)
        self.control = DeviceQueries(**shared, authorizer=self.gate)
        self.reports = ReportService(execution_waiter=self.outcomes)
        self.dispatch = self.make_dispatch()

    def make_admission(self) -> CredentialSyncService:
        return CredentialSyncService(
            uow=self.uow,
            link=self.link,
            vault=TransparentVault(),
            lock=asyncio.Lock(),
            wake=self.wake_event,
            on_synced=self.readmitted.append,
        )

    def make_dispatch(self) -> CommandDispatchService:
        """A new one is like a restart."""
        return CommandDispatchService(
            uow=self.uow,
            clock=self.clock,
            link=self.link,
            codec=ProfileDispatchingDeviceCodec(),
            execution_waiter=self.outcomes,
            dispatch_queue=self.offers,
            absence=self.absence,
            wake=self.wake_event,
            authority=self.authority,
        )

    async def populate(self) -> Self:
        async with self.uow.write() as tx:
            await tx.accounts.add(Account(ACCOUNT, "Acme", "free", START_MS))
            await tx.projects.add(Project(ProjectId("prj_00000000000000000000"), ACCOUNT, "Default", True, START_MS))
        for role in Role:
            await self._add_person(role)
        return self

    async def _add_person(self, role: Role) -> None:
        session = self.session(role)
        user = User(session.user_id, f"{role}@acme.example".lower(), f"{role}", "plain:1:secret", True, START_MS, START_MS)
        async with self.uow.write() as tx:
            await tx.users.add(user)
            await tx.memberships.add(Membership(session.membership_id, ACCOUNT, session.user_id, role, START_MS))

    def session(self, role: Role = Role.OWNER) -> SessionCaller:
        return SessionCaller(ACCOUNT, UserId(f"usr_{role.rank:020d}"), MembershipId(f"mbr_{role.rank:020d}"), role, "192.0.2.1")

    async def device(self, *, active: bool = True, online: bool = False, **fields: Any) -> Device:
        wanted = {"name": "Pump", "board_type": "ESP32", "app_type": "PUMP"} | fields
        device = await self.devices.register(self.session(), DeviceRegistrationInput(**wanted))
        if active:
            await self.credentials.generate(self.session(), device.device_id)
        if online:
            await self.connect(device.device_id)
        return await self.stored(device.device_id)

    async def connect(self, device_id: DeviceId) -> None:
        self.link.listening.add(device_id)
        device = await self.stored(device_id)
        async with self.presence_batch() as batch:
            self.presence.on_connected(batch, device, self.clock.now_ms())
        self.dispatch.on_device_ready(device.device_no, self.clock.now_ms() + 1)

    @asynccontextmanager
    async def presence_batch(self) -> AsyncIterator[PresenceBatch]:
        """One batch, written in one transaction at the end."""
        async with self.uow.write() as tx:
            batch = PresenceBatch()
            yield batch
            await batch.write(tx)

    async def stored(self, device_id: DeviceId) -> Device:
        async with self.uow.read() as tx:
            device = await tx.devices.find(device_id)
        assert device is not None
        return device

    async def key(self, *grants: tuple[DeviceId, Sequence[str]], **fields: Any) -> ApiKeyCaller:
        """A key with a grant for each (device, commands)."""
        key_id = KeyId(self.ids.new_id(IdPrefix.KEY))
        async with self.uow.write() as tx:
            await tx.api_keys.add(
                ApiKey(key_id, ACCOUNT, "Robot", "sk_live_", key_id.encode(), True, None, START_MS, "user:usr_1")
            )
        for device_id, commands in grants:
            await self.grant(GrantSubject(key_id=key_id), device_id, commands, **fields)
        return ApiKeyCaller(ACCOUNT, key_id, "Robot", "192.0.2.2")

    async def grant(
        self, subject: GrantSubject, device_id: DeviceId, commands: Sequence[str], *, scope: Scope = Scope.WRITE, **fields: Any
    ) -> Grant:
        grant = Grant(
            grant_id=GrantId(self.ids.new_id(IdPrefix.GRANT)),
            account_id=ACCOUNT,
            subject=subject,
            device_id=device_id,
            project_id=None,
            commands=tuple(commands),
            scope=scope,
            expires_ms=None,
            window=WeeklyGrantWindow(),
            rate_limit_per_minute=None,
            created_ms=START_MS,
            created_by="test",
        )
        grant = replace(grant, **fields)
        async with self.uow.write() as tx:
            await tx.grants.add(grant)
        return grant

    async def report(self, device_id: DeviceId, *reports: DeviceReport) -> None:
        """Apply these reports of one device, in order, as one batch."""
        async with self.uow.write() as tx:
            present = await tx.devices.find(device_id)
            assert present is not None
            named = [
                one.execution_id for one in reports if isinstance(one, RelayReport | CommandResultReport) and one.execution_id
            ]
            _, executions = await tx.command_contexts.list_reported((), [ExecutionId(one) for one in named])
            changes = ExecutionChangeCollector(tx, executions, self.clock.now_ms())
            for one in reports:
                if isinstance(one, RelayReport):
                    await self.reports.on_relay_report(
                        changes,
                        present,
                        one.relay,
                        execution_id=one.execution_id,
                        reported_cause=one.cause,
                        at_ms=self.clock.now_ms(),
                    )
                elif isinstance(one, CommandResultReport):
                    await self.reports.on_result_report(
                        changes, present, one.execution_id, one.status, one.code, one.relay, one.data, self.clock.now_ms()
                    )
            await self.reports.write_changes(changes)

    def events_of_kind(self, kind: str) -> list[Any]:
        return [event for event in self.uow.emitted_events if event.kind == kind]

    async def dispatch_all(self) -> None:
        while await self.dispatch.send_queued():
            pass
