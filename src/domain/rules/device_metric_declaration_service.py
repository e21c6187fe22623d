"""Makes metrics known before a device has reported them, so that rules may name them. None is forgotten."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from domain.commands.ports import AutomationTx
from domain.devices.lookup import get_device
from domain.devices.model import Device
from domain.devices.ports import HasDevices
from domain.kernel.caller import Role, SessionCaller, require_role
from domain.kernel.clock import Clock
from domain.kernel.domain_event import DomainEvent
from domain.kernel.errors import ValidationFailed
from domain.kernel.ids import DeviceId
from domain.kernel.unit_of_work import Transaction, UnitOfWork
from domain.rules.reported_and_declared_metric_ports import HasMetricDeclarations

MAX_METRICS_PER_DEVICE = 128


class MetricDeclarationTx(Transaction, HasMetricDeclarations, Protocol): ...


class DeviceMetricDeclarationTx(AutomationTx, HasDevices, HasMetricDeclarations, Protocol): ...


class DeviceMetricDeclarationService:
    def __init__(self, *, uow: UnitOfWork[DeviceMetricDeclarationTx], clock: Clock) -> None:
        self._uow = uow
        self._clock = clock

    async def declare(self, caller: SessionCaller, device_id: DeviceId, names: Collection[str]) -> tuple[str, ...]:
        """All that are known then, by name. Raises PermissionDenied below Member; NotFound, ValidationFailed."""
        require_role(caller, Role.MEMBER)
        async with self._uow.write(caller, Role.MEMBER) as tx:
            device = await get_device(tx, caller.account_id, device_id)
            _, known = await declare_metrics(tx, caller, device, names, self._clock.now_ms())
        return known


async def declare_metrics(
    tx: MetricDeclarationTx, caller: SessionCaller, device: Device, names: Collection[str], now_ms: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What was known before, and what is known now, by name. Raises ValidationFailed."""
    before = tuple(name for _, name, _ in await tx.readings.list_device_metrics(device.device_no))
    new = sorted(set(names) - set(before))
    if not new:
        return before, before
    if len(before) + len(new) > MAX_METRICS_PER_DEVICE:
        raise ValidationFailed.for_field("metrics", f"a device has at most {MAX_METRICS_PER_DEVICE} metrics.")
    numbers = await tx.readings.assign_metric_numbers(new)
    await tx.readings.upsert_device_metrics([(device.device_no, number, None) for number, _ in numbers])
    text = f"Metrics made known: {', '.join(new)}"
    await tx.emit(DomainEvent.from_caller(caller, "device_updated", text, now_ms, device_id=device.device_id))
    return before, tuple(sorted({*before, *new}))
