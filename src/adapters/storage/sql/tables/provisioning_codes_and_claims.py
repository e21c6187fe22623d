"""Provisioning codes, and the claims that devices make with them."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Index, LargeBinary, Table, UniqueConstraint

from adapters.storage.sql.tables.columns import (
    autoincrement_key,
    foreign_key_column,
    integer_column,
    metadata,
    one_of_check,
    text_column,
)
from domain.devices.model import FirmwareProfile
from domain.provisioning.model import ClaimStatus

provisioning_codes = Table(
    "provisioning_codes",
    metadata,
    autoincrement_key("seq"),
    text_column("code_id", unique=True),
    foreign_key_column("account_id", "accounts.account_id"),
    text_column("name"),
    text_column("prefix"),
    Column("code_hash", LargeBinary, nullable=False, unique=True),
    foreign_key_column("project_id", "projects.project_id"),
    text_column("board_type"),
    text_column("app_type"),
    text_column("profile", null=True),
    foreign_key_column("device_type_id", "device_types.device_type_id", null=True, ondelete="SET NULL"),
    text_column("tags"),
    integer_column("max_devices"),
    integer_column("claimed_count"),
    Column("requires_approval", Boolean, nullable=False),
    integer_column("expires_ms"),
    foreign_key_column("created_by", "memberships.membership_id"),
    integer_column("created_ms"),
    one_of_check("profile", [profile.value for profile in FirmwareProfile]),
    Index(None, "account_id", "seq"),
    Index(None, "project_id"),
    Index(None, "device_type_id"),
    Index(None, "created_by"),
)

device_claims = Table(
    "device_claims",
    metadata,
    autoincrement_key("seq"),
    text_column("claim_id", unique=True),
    foreign_key_column("code_id", "provisioning_codes.code_id"),
    foreign_key_column("account_id", "accounts.account_id"),
    text_column("hardware_id"),
    text_column("name", null=True),
    text_column("address"),
    text_column("status"),
    foreign_key_column("device_id", "devices.device_id", null=True, ondelete="SET NULL"),
    integer_column("created_ms"),
    text_column("decided_by", null=True),
    integer_column("decided_ms", null=True),
    one_of_check("status", [status.value for status in ClaimStatus]),
    UniqueConstraint("code_id", "hardware_id"),
    Index(None, "account_id", "seq"),
    Index(None, "account_id", "status", "seq"),
    Index(None, "code_id", "status"),
    Index(None, "device_id"),
)
