"""Grants, their uses, and approvals."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Index, Table, text

from adapters.storage.sql.tables.columns import belongs, counter, metadata, number, one_of, words
from domain.approvals.model import ApprovalStatus
from domain.grants.model import Scope

grants = Table(
    "grants",
    metadata,
    counter("seq"),
    words("grant_id", unique=True),
    belongs("account_id", "accounts.account_id"),
    belongs("key_id", "api_keys.key_id", null=True),
    belongs("membership_id", "memberships.membership_id", null=True),
    belongs("device_id", "devices.device_id", null=True),
    belongs("project_id", "projects.project_id", null=True),
    words("commands"),
    words("scope"),
    number("expires_ms", null=True),
    words("active_days"),
    number("from_minute", null=True),
    number("to_minute", null=True),
    words("timezone"),
    number("rate_limit_per_minute", null=True),
    number("created_ms"),
    words("created_by"),
    CheckConstraint("(key_id IS NULL) <> (membership_id IS NULL)", name="one_subject"),
    CheckConstraint("device_id IS NOT NULL OR project_id IS NOT NULL", name="some_place"),
    one_of("scope", [scope.value for scope in Scope]),
    Index(None, "key_id", "seq"),
    Index(None, "membership_id", "seq"),
    Index(None, "device_id", "seq"),
    Index(None, "project_id", "seq"),
)

grant_uses = Table(
    "grant_uses",
    metadata,
    counter("seq"),
    belongs("grant_id", "grants.grant_id"),
    number("at_ms"),
    Index(None, "grant_id", "at_ms"),
    Index(None, "at_ms"),
)

PENDING = text("status = 'PENDING'")

approvals = Table(
    "approvals",
    metadata,
    counter("seq"),
    words("approval_id", unique=True),
    belongs("account_id", "accounts.account_id"),
    belongs("device_id", "devices.device_id"),
    words("cmd"),
    words("params"),
    number("ttl_ms"),
    words("status"),
    words("requester_name"),
    words("requester_key_id", null=True),
    words("requester_membership_id", null=True),
    words("requester_user_id", null=True),
    words("grant_id", null=True),
    number("created_ms"),
    number("expires_ms"),
    words("decided_by", null=True),
    number("decided_ms", null=True),
    words("execution_id", null=True),
    one_of("status", [status.value for status in ApprovalStatus]),
    Index(None, "account_id", "seq"),
    Index(None, "account_id", "status", "seq"),
    Index(None, "device_id", "seq"),
    Index("ix_approvals__expiry", "expires_ms", "seq", sqlite_where=PENDING, postgresql_where=PENDING),
)
