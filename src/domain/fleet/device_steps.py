"""What an apply does for a device beside its fields: it makes metrics known, and credentials."""

from __future__ import annotations

from dataclasses import replace

from domain.devices.bulk_registration import BulkCredentials
from domain.devices.lookup import get_device
from domain.devices.model import Device, DeviceStatus
from domain.fleet.device_sections import DeviceSection
from domain.fleet.model import MAX_METRICS_PER_DEVICE, FieldChange, FleetAction, FleetOutcome, WantedObject, with_place
from domain.fleet.section import FleetChange, FleetRun
from domain.kernel.caller import require_role
from domain.kernel.domain_events import DomainEvent
from domain.kernel.errors import DomainError, ValidationFailed
from domain.kernel.ids import DeviceId
from domain.team.service_sessions import check_operation


async def known_metrics(run: FleetRun, device: Device) -> tuple[str, ...]:
    """By name."""
    return tuple(name for _, name, _ in await run.tx.readings.list_device_metrics(device.device_no))


async def with_metrics(run: FleetChange, wanted: WantedObject, outcome: FleetOutcome) -> FleetOutcome:
    """Make the metrics known that the file names: rules may name them before the device has reported them. None is forgotten."""
    names = wanted.fields["metrics"]
    if not names:
        return outcome
    device = await get_device(run.tx, run.caller.account_id, DeviceId(outcome.id))
    before = await known_metrics(run, device)
    after = tuple(sorted({*before, *names}))
    if len(after) == len(before):
        return outcome
    try:
        _check_write(run)
        if len(after) > MAX_METRICS_PER_DEVICE:
            raise ValidationFailed.for_field("metrics", f"a device has at most {MAX_METRICS_PER_DEVICE} metrics.")
        await _declare(run, device, [name for name in names if name not in before])
    except DomainError as error:
        raise with_place(error, outcome.path) from None
    return _changed(outcome, FieldChange("metrics", before, after))


async def with_credentials(run: FleetChange, outcome: FleetOutcome) -> FleetOutcome:
    """New ones, if the request asks for them and the device has none that are used."""
    if run.credentials is BulkCredentials.NONE:
        return outcome
    device = await get_device(run.tx, run.caller.account_id, DeviceId(outcome.id))
    is_new = device.status is DeviceStatus.PENDING
    is_unused = device.status is DeviceStatus.ACTIVE and device.last_seen_ms is None and not device.is_online
    if not is_new and not (is_unused and run.credentials is BulkCredentials.UNUSED):
        return outcome
    try:
        _check_write(run)
        issued = await run.writers.issuer.issue(run.tx, run.caller, device, run.now_ms, rotated=not is_new)
    except DomainError as error:
        raise with_place(error, outcome.path) from None
    run.postponed.synced.append(device.device_id)
    return replace(_changed(outcome, FieldChange("credentials", None if is_new else "unused", "new")), credentials=issued)


def _check_write(run: FleetChange) -> None:
    require_role(run.caller, DeviceSection.writer)
    check_operation(run.caller, DeviceSection.tag, is_read=False)


async def _declare(run: FleetChange, device: Device, names: list[str]) -> None:
    numbers = await run.tx.readings.assign_metric_numbers(names)
    await run.tx.readings.upsert_device_metrics([(device.device_no, number, None) for number, _ in numbers])
    text = f"Metrics made known: {', '.join(sorted(names))}"
    await run.tx.emit(DomainEvent.from_caller(run.caller, "device_updated", text, run.now_ms, device_id=device.device_id))


def _changed(outcome: FleetOutcome, change: FieldChange) -> FleetOutcome:
    action = FleetAction.CHANGE if outcome.action is FleetAction.NONE else outcome.action
    return replace(outcome, action=action, changes=(*outcome.changes, change))
