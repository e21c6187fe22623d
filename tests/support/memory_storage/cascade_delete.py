"""What goes with a device when it is deleted; a database does this by its foreign keys."""

from __future__ import annotations

from collections.abc import Callable

from domain.commands.model import CommandDefinition
from domain.devices.model import Device
from support.memory_storage.approvals import APPROVALS
from support.memory_storage.commands import DEFINITIONS, EXECUTIONS
from support.memory_storage.grants import delete_grants
from support.memory_storage.rules import RULES
from support.memory_storage.schedules import SCHEDULES, delete_schedule
from support.memory_storage.tables import Database
from support.memory_storage.telemetry import DEVICE_METRICS, LATEST
from support.memory_storage.webhooks import DELIVERIES, delete_deliveries


def delete_definitions(book: Database, chosen: Callable[[CommandDefinition], bool]) -> None:
    book.delete(DEFINITIONS, [key for key, definition in book.rows(DEFINITIONS).items() if chosen(definition)])


def delete_device_dependants(book: Database, device: Device) -> None:
    gone = device.device_id
    delete_definitions(book, lambda definition: definition.device_id == gone)
    delete_grants(book, lambda grant: grant.device_id == gone)
    book.delete(EXECUTIONS, [key for key, e in book.rows(EXECUTIONS).items() if e.device_id == gone])
    book.delete(APPROVALS, [key for key, a in book.rows(APPROVALS).items() if a.device_id == gone])
    book.delete(RULES, [key for key, rule in book.rows(RULES).items() if rule.device_id == gone])
    for schedule in list(book.rows(SCHEDULES).values()):
        if schedule.device_id == gone:
            delete_schedule(book, schedule.schedule_id)
    delete_deliveries(book, [d.no for d in book.rows(DELIVERIES).values() if d.device_id == gone])
    delete_device_values(book, device.device_no)


def delete_device_values(book: Database, device_no: int) -> None:
    book.delete(DEVICE_METRICS, [key for key in book.rows(DEVICE_METRICS) if key[0] == device_no])
    book.delete(LATEST, [device_no])
