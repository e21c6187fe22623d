"""Grants, their uses, and approvals."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Index, Table, text

from adapters.storage.sql.tables.columns import (
    autoincrement_key,
    foreign_key_column,
    integer_column,
    metadata,
    one_of_check,
    partial_index,
    text_column,
)
from domain.approvals.model import ApprovalStatus
from domain.grants.model import Scope

grants = Table(
    "grants",
    metadata,
    autoincrement_key("seq"),
    text_column("grant_id", unique=True),
    foreign_key_column("account_id", "accounts.account_id"),
    foreign_key_column("key_id", "api_keys.key_id", null=True),
    foreign_key_column("membership_id", "memberships.membership_id", null=True),
    foreign_key_column("device_id", "devices.device_id", null=True),
    foreign_key_column("project_id", "projects.project_id", null=True),
    text_column("commands"),
    text_column("scope"),
    integer_column("expires_ms", null=True),
    text_column("active_days"),
    integer_column("from_minute", null=True),
    integer_column("to_minute", null=True),
    text_column("timezone"),
    integer_column("rate_limit_per_minute", null=True),
    integer_column("created_ms"),
    text_column("created_by"),
    text_column("changed_by", null=True),
    text_column("group_id", null=True),
    CheckConstraint("(key_id IS NULL) <> (membership_id IS NULL)", name="one_subject"),
    CheckConstraint("device_id IS NOT NULL OR project_id IS NOT NULL", name="some_place"),
    one_of_check("scope", [scope.value for scope in Scope]),
    Index(None, "key_id", "seq"),
    Index(None, "membership_id", "seq"),
    Index(None, "device_id", "seq"),
    Index(None, "project_id", "seq"),
    Index(None, "group_id", "seq"),
)

grant_uses = Table(
    "grant_uses",
    metadata,
    autoincrement_key("seq"),
    foreign_key_column("grant_id", "grants.grant_id"),
    integer_column("at_ms"),
    Index(None, "grant_id", "at_ms"),
    Index(None, "at_ms"),
)

PENDING_APPROVAL = text("status = 'PENDING'")

approvals = Table(
    "approvals",
    metadata,
    autoincrement_key("seq"),
    text_column("approval_id", unique=True),
    foreign_key_column("account_id", "accounts.account_id"),
    foreign_key_column("device_id", "devices.device_id"),
    text_column("cmd"),
    text_column("params"),
    integer_column("ttl_ms"),
    text_column("status"),
    text_column("requester_name"),
    text_column("requester_key_id", null=True),
    text_column("requester_membership_id", null=True),
    text_column("requester_user_id", null=True),
    text_column("grant_id", null=True),
    integer_column("created_ms"),
    integer_column("expires_ms"),
    text_column("decided_by", null=True),
    integer_column("decided_ms", null=True),
    text_column("execution_id", null=True),
    text_column("reason", null=True),
    text_column("note", null=True),
    text_column("requester_session_id", null=True),
    one_of_check("status", [status.value for status in ApprovalStatus]),
    Index(None, "account_id", "seq"),
    Index(None, "account_id", "status", "seq"),
    Index(None, "device_id", "seq"),
    partial_index("ix_approvals__expiry", "expires_ms", "seq", where=PENDING_APPROVAL),
)
