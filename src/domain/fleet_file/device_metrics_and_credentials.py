"""What an apply does for a device beside its fields: it makes metrics known, and credentials."""

from __future__ import annotations

from dataclasses import replace

from domain.devices.lookup import get_device
from domain.devices.model import Device, DeviceStatus
from domain.devices.registration import BulkCredentials
from domain.fleet_file.device_reconciler import FleetFileDeviceReconciler
from domain.fleet_file.model import DesiredFleetObject, FleetAction, FleetObjectOutcome, PlannedFieldChange, with_place
from domain.fleet_file.reconciler import FleetFileReadContext, FleetFileWriteContext
from domain.kernel.errors import DomainError
from domain.kernel.ids import DeviceId
from domain.rules.service import declare_metrics


async def known_metrics(run: FleetFileReadContext, device: Device) -> tuple[str, ...]:
    """By name."""
    return tuple(name for _, name, _ in await run.tx.readings.list_device_metrics(device.device_no))


async def with_metrics(run: FleetFileWriteContext, wanted: DesiredFleetObject, outcome: FleetObjectOutcome) -> FleetObjectOutcome:
    """Make the metrics known that the file names: rules may name them before the device has reported them. None is forgotten."""
    names = wanted.fields["metrics"]
    if not names:
        return outcome
    device = await get_device(run.tx, run.caller.account_id, DeviceId(outcome.id))
    if set(names) <= set(await known_metrics(run, device)):
        return outcome
    try:
        FleetFileDeviceReconciler().check_writable(run.caller)
        before, after = await declare_metrics(run.tx, run.caller, device, names, run.now_ms)
    except DomainError as error:
        raise with_place(error, outcome.path) from None
    return _changed(outcome, PlannedFieldChange("metrics", before, after))


async def with_credentials(run: FleetFileWriteContext, outcome: FleetObjectOutcome) -> FleetObjectOutcome:
    """New ones, if the request asks for them and the device has none that are used."""
    if run.credentials is BulkCredentials.NONE:
        return outcome
    device = await get_device(run.tx, run.caller.account_id, DeviceId(outcome.id))
    is_new = device.status is DeviceStatus.PENDING
    if not run.credentials.are_due(device):
        return outcome
    try:
        FleetFileDeviceReconciler().check_writable(run.caller)
        issued = await run.writers.issuer.issue(run.tx, run.caller, device, run.now_ms, rotated=not is_new)
    except DomainError as error:
        raise with_place(error, outcome.path) from None
    run.postponed.synced.append(device.device_id)
    return replace(_changed(outcome, PlannedFieldChange("credentials", None if is_new else "unused", "new")), credentials=issued)


def _changed(outcome: FleetObjectOutcome, change: PlannedFieldChange) -> FleetObjectOutcome:
    action = FleetAction.CHANGE if outcome.action is FleetAction.NONE else outcome.action
    return replace(outcome, action=action, changes=(*outcome.changes, change))
