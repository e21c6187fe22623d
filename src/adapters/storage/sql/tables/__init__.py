"""The schema, dialect-neutral; SQLite and PostgreSQL differ in the conditions of partial indexes and nothing else."""

from adapters.storage.sql.tables.columns import metadata
from adapters.storage.sql.tables.fleet import (
    credentials,
    definitions,
    device_types,
    devices,
    executions,
    rules,
    schedule_edges,
    schedules,
)
from adapters.storage.sql.tables.people import (
    accounts,
    answers,
    api_keys,
    login_failures,
    memberships,
    one_time_codes,
    projects,
    refresh_tokens,
    users,
)
from adapters.storage.sql.tables.permission import approvals, grant_uses, grants
from adapters.storage.sql.tables.records import (
    attempts,
    deliveries,
    device_latest,
    device_metrics,
    event_totals,
    events,
    metric_names,
    readings,
    webhooks,
)

__all__ = [
    "accounts",
    "answers",
    "api_keys",
    "approvals",
    "attempts",
    "credentials",
    "definitions",
    "deliveries",
    "device_latest",
    "device_metrics",
    "device_types",
    "devices",
    "event_totals",
    "events",
    "executions",
    "grant_uses",
    "grants",
    "login_failures",
    "memberships",
    "metadata",
    "metric_names",
    "one_time_codes",
    "projects",
    "readings",
    "refresh_tokens",
    "rules",
    "schedule_edges",
    "schedules",
    "users",
    "webhooks",
]
