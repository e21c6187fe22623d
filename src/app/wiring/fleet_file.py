"""Constructs the fleet as a file: the services of the single calls, once more for each transaction that they share."""

from __future__ import annotations

from typing import Any

from app.runtime.timeout_lock import LockWithTimeout
from app.wiring.adapters import ServiceAdapters
from app.wiring.services import Services
from domain.accounts.projects import ProjectService
from domain.approvals.pending_approval_closer import PendingApprovalCloser
from domain.commands.command_definitions import CommandDefinitionService
from domain.commands.device_types import DeviceTypeService
from domain.devices.service import DeviceService
from domain.fleet_file.ports import FleetAfterApplyWork, FleetFileTx, FleetFileWriteServices
from domain.fleet_file.service import FleetFileService
from domain.grants.grant_service import GrantService, GroupGrantService
from domain.groups.service import DeviceGroupService
from domain.kernel.joined_unit_of_work import JoinedUnitOfWork
from domain.keys.service import ApiKeyService
from domain.webhooks.service import WebhookChangedCallback, WebhookService


def create_fleet_file_service(
    services: Services, adapters: ServiceAdapters, on_webhook_changed: WebhookChangedCallback
) -> FleetFileService:
    def make_webhooks(uow: Any) -> WebhookService:
        return WebhookService(
            uow=uow,
            clock=adapters.clock,
            ids=adapters.ids,
            vault=adapters.vault,
            courier=adapters.courier,
            on_changed=on_webhook_changed,
        )

    def make_writers(uow: JoinedUnitOfWork[FleetFileTx], postponed: FleetAfterApplyWork) -> FleetFileWriteServices:
        shared: dict[str, Any] = {"uow": uow, "clock": adapters.clock, "ids": adapters.ids}
        access: dict[str, Any] = {
            **shared,
            "windows": adapters.engine.grant_evaluator,
            "commands": services.commands,
            "on_grants_changed": adapters.feed.mark_access_stale,
        }
        return FleetFileWriteServices(
            projects=ProjectService(**shared),
            device_types=DeviceTypeService(**shared, validator=adapters.params_checker),
            devices=DeviceService(**shared, credential_sync=postponed, presence=services.presence, erasure=postponed),
            issuer=services.credential_issuer,
            definitions=CommandDefinitionService(
                **shared, authorizer=services.authorizer, validator=adapters.params_checker, commands=services.commands
            ),
            schedules=services.schedules.with_unit_of_work(uow),
            rules=services.rules.with_unit_of_work(uow),
            groups=DeviceGroupService(
                **shared, authorizer=services.authorizer, on_access_changed=adapters.feed.mark_access_stale
            ),
            keys=ApiKeyService(**shared, digest=adapters.digest, requests=PendingApprovalCloser(adapters.approval_waiter)),
            grants=GrantService(**access),
            group_grants=GroupGrantService(**access),
            webhooks=make_webhooks(uow),
        )

    return FleetFileService(
        uow=services.uow,
        clock=adapters.clock,
        make_writers=make_writers,
        webhooks=make_webhooks(services.uow),
        projects=services.projects,
        device_types=services.device_types,
        credential_sync=services.credential_sync,
        erasure=services.device_erasure,
        engine_commit_lock=LockWithTimeout(services.engine_commit_lock),
    )
