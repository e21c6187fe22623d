"""Constructs the fleet as a file: the services of the single calls, once more for each transaction that they share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from app.runtime.lock_with_timeout import LockWithTimeout
from app.wiring.adapters import ServiceAdapters
from app.wiring.domain_services import DomainServices
from domain.accounts.projects import ProjectService
from domain.approvals.service import PendingApprovalCloser
from domain.commands.device_types import DeviceTypeAdminService
from domain.fleet_file.model import FleetAfterApplyWork, FleetFileTx, FleetFileWriteServices
from domain.fleet_file.service import FleetFileService
from domain.kernel.unit_of_work import JoinedUnitOfWork
from domain.keys.service import ApiKeyService
from domain.webhooks.service import WebhookService


def create_fleet_file_service(services: DomainServices, adapters: ServiceAdapters, webhooks: WebhookService) -> FleetFileService:
    def make_writers(uow: JoinedUnitOfWork[FleetFileTx], postponed: FleetAfterApplyWork) -> FleetFileWriteServices:
        joined: dict[str, Any] = {"uow": uow}
        creating: dict[str, Any] = {**services.creating, **joined}
        return FleetFileWriteServices(
            projects=ProjectService(**creating),
            device_types=DeviceTypeAdminService(**creating, validator=adapters.params_checker),
            devices=replace(services.devices, **joined, credential_sync=postponed, erasure=postponed),
            issuer=services.credential_issuer,
            definitions=replace(services.definitions, **joined),
            schedules=services.schedules.with_unit_of_work(uow),
            rules=services.rules.with_unit_of_work(uow),
            groups=replace(services.groups, **joined),
            keys=ApiKeyService(**creating, digest=adapters.digest, requests=PendingApprovalCloser(adapters.approval_waiter)),
            grants=replace(services.grants, **joined),
            group_grants=replace(services.group_grants, **joined),
            webhooks=replace(webhooks, **joined),
        )

    return FleetFileService(
        **services.shared,
        make_writers=make_writers,
        webhooks=webhooks,
        projects=services.projects,
        device_types=services.device_types,
        credential_sync=services.credential_sync,
        erasure=services.device_erasure,
        engine_commit_lock=LockWithTimeout(services.engine_commit_lock),
    )
