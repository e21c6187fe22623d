"""Deletes the dependants of a device, as a database does by foreign keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from domain.commands.model import CommandDefinition
from domain.devices.model import Device
from support.memory_storage.approvals import APPROVALS
from support.memory_storage.commands import DEFINITIONS, EXECUTIONS
from support.memory_storage.device_health import DROPS, HEALTH
from support.memory_storage.grants import delete_grants
from support.memory_storage.groups import leave_groups
from support.memory_storage.provisioning import CLAIMS
from support.memory_storage.rules import RULES
from support.memory_storage.schedules import SCHEDULES, delete_schedule
from support.memory_storage.tables import Database
from support.memory_storage.telemetry import DEVICE_METRICS, LATEST
from support.memory_storage.webhooks import DELIVERIES, delete_deliveries


def delete_definitions(database: Database, chosen: Callable[[CommandDefinition], bool]) -> None:
    database.delete(DEFINITIONS, [key for key, definition in database.rows(DEFINITIONS).items() if chosen(definition)])


def delete_device_dependants(database: Database, device: Device) -> None:
    gone = device.device_id
    delete_definitions(database, lambda definition: definition.device_id == gone)
    delete_grants(database, lambda grant: grant.device_id == gone)
    leave_groups(database, gone)
    database.delete(EXECUTIONS, [key for key, e in database.rows(EXECUTIONS).items() if e.device_id == gone])
    database.delete(APPROVALS, [key for key, a in database.rows(APPROVALS).items() if a.device_id == gone])
    database.delete(RULES, [key for key, rule in database.rows(RULES).items() if rule.device_id == gone])
    for claim in [each for each in database.rows(CLAIMS).values() if each.device_id == gone]:
        database.writable_rows(CLAIMS)[claim.claim_id] = replace(claim, device_id=None)
    for schedule in list(database.rows(SCHEDULES).values()):
        if schedule.device_id == gone:
            delete_schedule(database, schedule.schedule_id)
    delete_deliveries(database, [d.no for d in database.rows(DELIVERIES).values() if d.device_id == gone])
    delete_device_values(database, device.device_no)


def delete_device_values(database: Database, device_no: int) -> None:
    database.delete(DEVICE_METRICS, [key for key in database.rows(DEVICE_METRICS) if key[0] == device_no])
    database.delete(LATEST, [device_no])
    database.delete(HEALTH, [device_no])
    database.delete(DROPS, [key for key in database.rows(DROPS) if key[0] == device_no])
