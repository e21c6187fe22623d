"""Storages to test against, and values to put into them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from adapters.storage.sql import SqlDatabase
from domain.accounts.model import Account, Membership, Project, User
from domain.approvals.model import Approval, ApprovalStatus, Requester
from domain.commands.model import CommandDefinition, CommandKind, CommandWidget, Execution, ExecutionStatus, TriggeredBy
from domain.devices.model import Device, DeviceMetadata, DeviceStatus, FirmwareProfile
from domain.events.model import Event
from domain.grants.model import Grant, GrantSubject, Scope, WeeklyGrantWindow
from domain.kernel.caller import Role
from domain.keys.model import ApiKey
from domain.rules.model import Comparator, Rule, RuleAction, RuleCondition
from domain.schedules.model import PLAIN_OFF, PLAIN_ON, MisfirePolicy, Schedule, ScheduleStatus, SwitchEdge
from domain.webhooks.model import DeliveryAttempt, Webhook, WebhookDelivery, WebhookDeliveryState
from support import postgres
from support.empty_database import empty_postgres, empty_sqlite
from support.memory_storage import MemoryUnitOfWork
from support.waiting import TIMEOUT_S

NOW = 1_790_000_000_000
_numbers = count(1)

STORAGES = ["memory", "sqlite", *(["postgres"] if postgres.available() else [])]


def new_id(prefix: str) -> Any:
    """An id of the API's form; later ids sort after earlier ones."""
    return f"{prefix}_{next(_numbers):020d}"


@asynccontextmanager
async def open_storage(kind: str, path: Path, recorder: Any = None, **bounds: Any) -> AsyncIterator[Any]:
    """A unit of work over an empty storage of this kind."""
    if kind == "memory":
        yield MemoryUnitOfWork(recorder)
        return
    url = empty_sqlite(path / "latchboard.db") if kind == "sqlite" else await empty_postgres()
    database = SqlDatabase(url, **{"acquire_timeout_s": TIMEOUT_S} | bounds)
    await database.start()
    try:
        yield database.unit_of_work(recorder)
    finally:
        await database.stop()


@dataclass(frozen=True)
class StoredAccount:
    """One account with an owner, a default project, a key and a device, all stored."""

    uow: Any
    account: Account
    user: User
    membership: Membership
    project: Project
    key: ApiKey
    device: Device


async def populate(uow: Any) -> StoredAccount:
    account, user = an_account(), a_user()
    membership = Membership(new_id("mbr"), account.account_id, user.user_id, Role.OWNER, NOW)
    project = Project(new_id("prj"), account.account_id, "Default", True, NOW)
    key = a_key(account.account_id)
    async with uow.write() as tx:
        await tx.accounts.add(account)
        await tx.users.add(user)
        await tx.memberships.add(membership)
        await tx.projects.add(project)
        await tx.api_keys.add(key)
        device = await tx.devices.add(a_device(account.account_id, project.project_id))
    return StoredAccount(uow, account, user, membership, project, key, device)


def an_account() -> Account:
    return Account(new_id("acc"), "Acme", "free", NOW)


def a_user(email: str | None = None) -> User:
    user_id = new_id("usr")
    return User(user_id, email or f"{user_id}@example.org", "Ada", "argon2", True, NOW, NOW)


def a_key(account_id: Any, **changes: Any) -> ApiKey:
    key_id = new_id("key")
    fields: dict[str, Any] = {"name": "key", "prefix": "sk_live_ab", "secret_hash": key_id.encode(), "enabled": True}
    fields["created_by"] = "user:usr_1"
    return ApiKey(key_id=key_id, account_id=account_id, last_used_ms=None, created_ms=NOW, **(fields | changes))


def a_device(account_id: Any, project_id: Any, **changes: Any) -> Device:
    fields: dict[str, Any] = {
        "name": "Pump",
        "board_type": "esp32",
        "app_type": "irrigation",
        "app_type_other": None,
        "status": DeviceStatus.ACTIVE,
        "profile": FirmwareProfile.NATIVE,
        "device_type_id": None,
        "about": DeviceMetadata(description="a pump", tags=("garden", "north")),
        "created_ms": NOW,
    }
    return Device(device_id=new_id("dev"), device_no=0, account_id=account_id, project_id=project_id, **(fields | changes))


def a_grant(world: StoredAccount, **changes: Any) -> Grant:
    fields: dict[str, Any] = {
        "subject": GrantSubject(key_id=world.key.key_id),
        "device_id": world.device.device_id,
        "project_id": None,
        "commands": ("ON", "OFF"),
        "scope": Scope.WRITE,
        "expires_ms": None,
        "window": WeeklyGrantWindow(frozenset({1, 5}), 60, 120, "Europe/Berlin"),
        "rate_limit_per_minute": 3,
        "created_ms": NOW,
        "created_by": "user:usr_1",
    }
    return Grant(grant_id=new_id("grt"), account_id=world.account.account_id, **(fields | changes))


def an_approval(world: StoredAccount, **changes: Any) -> Approval:
    fields: dict[str, Any] = {
        "cmd": "ON",
        "params": {"level": [1, 2.5, None]},
        "ttl_ms": 60_000,
        "status": ApprovalStatus.PENDING,
        "requested_by": Requester("key", key_id=world.key.key_id),
        "grant_id": None,
        "created_ms": NOW,
        "expires_ms": NOW + 1000,
    }
    return Approval(
        approval_id=new_id("apv"), account_id=world.account.account_id, device_id=world.device.device_id, **(fields | changes)
    )


def a_definition(world: StoredAccount, **changes: Any) -> CommandDefinition:
    fields: dict[str, Any] = {
        "device_id": world.device.device_id,
        "device_type_id": None,
        "name": "DIM",
        "label": "Dim",
        "description": None,
        "kind": CommandKind.ACTION,
        "params_schema": {"type": "object"},
        "shape": CommandWidget.NUMBER,
        "requires_approval": True,
        "created_ms": NOW,
    }
    return CommandDefinition(command_id=new_id("cmd"), account_id=world.account.account_id, **(fields | changes))


def an_execution(world: StoredAccount, **changes: Any) -> Execution:
    fields: dict[str, Any] = {
        "cmd": "ON",
        "params": None,
        "status": ExecutionStatus.QUEUED,
        "source": TriggeredBy.USER,
        "requested_by": "user:usr_1",
        "grant_id": None,
        "created_ms": NOW,
        "expires_ms": NOW + 60_000,
        "device_id": world.device.device_id,
        "device_no": world.device.device_no,
    }
    return Execution(execution_id=new_id("exe"), seq=0, account_id=world.account.account_id, **(fields | changes))


async def add_execution(tx: Any, execution: Execution) -> Execution:
    """The execution as stored, with its `seq`."""
    await tx.executions.add_many([execution])
    stored = await tx.executions.find(execution.execution_id)
    assert isinstance(stored, Execution)
    return stored


def a_schedule(world: StoredAccount, **changes: Any) -> Schedule:
    fields: dict[str, Any] = {
        "slot": 0,
        "on_ts": 1_790_000_100,
        "off_ts": 1_790_000_200,
        "label": "morning",
        "enabled": True,
        "status": ScheduleStatus.PENDING,
        "on_command": PLAIN_ON,
        "off_command": PLAIN_OFF,
        "rrule": None,
        "timezone": "UTC",
        "misfire": MisfirePolicy.FIRE,
        "misfire_grace_s": 900,
        "revision": 1,
        "next_fire_ts": 1_790_000_100,
        "next_edge": SwitchEdge.ON,
        "last_fired_ms": None,
        "last_outcome": None,
        "created_by": world.membership.membership_id,
        "created_ms": NOW,
        "updated_ms": NOW,
        "device_id": world.device.device_id,
        "device_no": world.device.device_no,
    }
    return Schedule(schedule_id=new_id("sched"), account_id=world.account.account_id, **(fields | changes))


def a_rule(world: StoredAccount, **changes: Any) -> Rule:
    fields: dict[str, Any] = {
        "name": "too hot",
        "conditions": (RuleCondition("temperature", Comparator.GREATER, 30.0), RuleCondition("mode", Comparator.EQUAL, "eco")),
        "clear_conditions": (RuleCondition("temperature", Comparator.LESS, 28),),
        "action": RuleAction("OFF", {"soft": True}),
        "created_by": world.membership.membership_id,
        "created_ms": NOW,
        "device_id": world.device.device_id,
        "device_no": world.device.device_no,
    }
    return Rule(rule_id=new_id("rul"), rule_no=0, account_id=world.account.account_id, **(fields | changes))


def an_event(world: StoredAccount, **changes: Any) -> Event:
    fields: dict[str, Any] = {
        "account_id": world.account.account_id,
        "device_id": world.device.device_id,
        "device_name": world.device.name,
        "kind": "relay_changed",
        "description": "on",
        "at_ms": NOW,
        "source": "device",
        "address": "",
        "payload": {"type": "relay_changed", "relay": "ON", "deep": {"n": [1, 2.5, None, True]}},
    }
    return Event(position=0, event_id=new_id("evt"), **(fields | changes))


def a_webhook(world: StoredAccount, **changes: Any) -> Webhook:
    fields: dict[str, Any] = {
        "key_id": world.key.key_id,
        "origin": "https://example.org",
        "sealed_url": b"sealed url",
        "sealed_secret": b"sealed",
        "secret_prefix": "whsec_ab",
        "generation": 1,
        "enabled": True,
        "disabled_reason": None,
        "failing_since_ms": None,
        "created_ms": NOW,
        "updated_ms": NOW,
    }
    fields |= {"webhook_id": new_id("whk"), "account_id": world.account.account_id}
    return Webhook(**(fields | changes))


def a_delivery(webhook: Webhook, **changes: Any) -> WebhookDelivery:
    fields: dict[str, Any] = {
        "device_id": None,
        "event_type": "relay_changed",
        "data": b'{"type":"relay_changed"}',
        "state": WebhookDeliveryState.PENDING,
        "attempts": 0,
        "due_ms": NOW,
        "claimed_until_ms": None,
        "created_ms": NOW,
    }
    return WebhookDelivery(
        no=0, webhook_id=webhook.webhook_id, account_id=webhook.account_id, event_id=new_id("evt"), **(fields | changes)
    )


def an_attempt(delivery: WebhookDelivery, number: int = 1) -> DeliveryAttempt:
    return DeliveryAttempt(
        new_id("whd"), delivery.no, delivery.webhook_id, delivery.event_id, delivery.event_type, None, number, NOW
    )
