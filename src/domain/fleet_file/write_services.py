"""The services with which a fleet file is applied: those of the single calls, so that every check and every event is theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from domain.accounts.projects import ProjectService
from domain.commands.definitions import CommandDefinitionService
from domain.commands.device_types import DeviceTypeAdminService
from domain.devices.credentials import CredentialIssuer
from domain.devices.service import DeviceService
from domain.fleet_file.after_apply_work import FleetAfterApplyWork
from domain.fleet_file.ports import FleetFileTx
from domain.grants.service import GrantService, GroupGrantService
from domain.groups.service import DeviceGroupService
from domain.kernel.unit_of_work import JoinedUnitOfWork
from domain.keys.service import ApiKeyService
from domain.rules.service import RuleService
from domain.schedules.service import ScheduleService
from domain.webhooks.service import WebhookService


@dataclass(frozen=True, slots=True)
class FleetFileWriteServices:
    projects: ProjectService
    device_types: DeviceTypeAdminService
    devices: DeviceService
    issuer: CredentialIssuer
    definitions: CommandDefinitionService
    schedules: ScheduleService
    rules: RuleService
    groups: DeviceGroupService
    keys: ApiKeyService[FleetFileTx]
    grants: GrantService[FleetFileTx]
    group_grants: GroupGrantService[FleetFileTx]
    webhooks: WebhookService


MakeWriters: TypeAlias = Callable[[JoinedUnitOfWork[FleetFileTx], FleetAfterApplyWork], FleetFileWriteServices]
