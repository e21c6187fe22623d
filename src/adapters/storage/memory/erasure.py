"""What goes with a device when it is deleted; a database does this by its foreign keys."""

from __future__ import annotations

from collections.abc import Callable

from adapters.storage.memory.approvals import APPROVALS
from adapters.storage.memory.commands import DEFINITIONS, EXECUTIONS
from adapters.storage.memory.grants import drop_grants
from adapters.storage.memory.rules import RULES
from adapters.storage.memory.schedules import SCHEDULES, drop_schedule
from adapters.storage.memory.shelves import Book
from adapters.storage.memory.telemetry import LATEST, METRICS
from adapters.storage.memory.webhooks import DELIVERIES, drop_deliveries
from domain.commands.model import Definition
from domain.devices.model import Device


def drop_definitions(book: Book, chosen: Callable[[Definition], bool]) -> None:
    book.drop(DEFINITIONS, [key for key, definition in book.rows(DEFINITIONS).items() if chosen(definition)])


def drop_device(book: Book, device: Device) -> None:
    gone = device.device_id
    drop_definitions(book, lambda definition: definition.device_id == gone)
    drop_grants(book, lambda grant: grant.device_id == gone)
    book.drop(EXECUTIONS, [key for key, e in book.rows(EXECUTIONS).items() if e.device_id == gone])
    book.drop(APPROVALS, [key for key, a in book.rows(APPROVALS).items() if a.device_id == gone])
    book.drop(RULES, [key for key, rule in book.rows(RULES).items() if rule.device_id == gone])
    for schedule in list(book.rows(SCHEDULES).values()):
        if schedule.device_id == gone:
            drop_schedule(book, schedule.schedule_id)
    drop_deliveries(book, [d.no for d in book.rows(DELIVERIES).values() if d.device_id == gone])
    drop_values(book, device.device_no)


def drop_values(book: Book, device_no: int) -> None:
    book.drop(METRICS, [key for key in book.rows(METRICS) if key[0] == device_no])
    book.drop(LATEST, [device_no])
