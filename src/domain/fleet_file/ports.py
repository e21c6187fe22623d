"""What the fleet as a file needs: all services that change one object, acting in one transaction, and what follows its commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from domain.accounts.ports import HasProjects
from domain.accounts.projects import ProjectService
from domain.approvals.ports import HasApprovals
from domain.commands.command_definitions import CommandDefinitionService
from domain.commands.device_type_service import DeviceTypeService
from domain.devices.credential_issuer import CredentialIssuer
from domain.devices.group_ports import HasDeviceGroups
from domain.devices.health import HasDeviceHealth
from domain.devices.model import Device
from domain.devices.ports import HasDeviceCredentials, HasDeviceTypes
from domain.devices.service import DeviceService
from domain.grants.grant_service import GrantService, GroupGrantService
from domain.groups.service import DeviceGroupService
from domain.kernel.ids import DeviceId, DeviceTypeId, ProjectId
from domain.kernel.joined_unit_of_work import JoinedUnitOfWork
from domain.keys.ports import HasApiKeys
from domain.keys.service import ApiKeyService
from domain.rules.service import RuleService
from domain.rules.storage_ports import HasMetricDeclarations, HasRules
from domain.schedules.ports import ScheduleTx
from domain.schedules.service import ScheduleService
from domain.webhooks.ports import HasWebhookDeliveries, HasWebhooks
from domain.webhooks.service import WebhookService


class FleetFileTx(
    ScheduleTx,
    HasApiKeys,
    HasApprovals,
    HasWebhookDeliveries,
    HasDeviceCredentials,
    HasDeviceGroups,
    HasDeviceHealth,
    HasDeviceTypes,
    HasMetricDeclarations,
    HasProjects,
    HasRules,
    HasWebhooks,
    Protocol,
):
    """The transactions of all of them in one."""


@dataclass(slots=True)
class FleetAfterApplyWork:
    """What services do about a device after their commit, kept until the whole apply is committed."""

    synced: list[DeviceId] = field(default_factory=list)
    erased: list[Device] = field(default_factory=list)
    deleted_projects: list[ProjectId] = field(default_factory=list)
    deleted_types: list[DeviceTypeId] = field(default_factory=list)
    """Both can be deleted when their last devices are erased."""

    async def sync(self, device_id: DeviceId) -> bool:
        self.synced.append(device_id)
        return True

    async def erase(self, device: Device) -> bool:
        self.erased.append(device)
        return True


@dataclass(frozen=True, slots=True)
class FleetFileWriteServices:
    """The services of the single calls, so that every check and every event is theirs."""

    projects: ProjectService
    device_types: DeviceTypeService
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
