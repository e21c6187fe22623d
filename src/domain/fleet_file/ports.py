"""The transaction in which a fleet file is read and applied."""

from __future__ import annotations

from typing import Protocol

from domain.accounts.ports import HasProjects
from domain.approvals.ports import HasApprovals
from domain.devices.health import HasDeviceHealth
from domain.devices.ports import HasDeviceCredentials, HasDeviceGroups, HasDeviceTypes
from domain.keys.ports import HasApiKeys
from domain.rules.ports import HasMetricDeclarations, HasRules
from domain.schedules.ports import ScheduleTx
from domain.webhooks.ports import HasWebhookDeliveries, HasWebhooks


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
