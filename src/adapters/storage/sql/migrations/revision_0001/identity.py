"""Accounts, people, projects, sessions and API keys, as revision 0001 created them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from adapters.storage.sql.migrations.revision_0001 import NUMBER, create_partial_index


def create() -> None:
    accounts()
    users()
    memberships()
    projects()
    api_keys()
    refresh_tokens()
    one_time_codes()
    login_failures()
    answers()


def accounts() -> None:
    op.create_table(
        "accounts",
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("created_ms", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("account_id", name="pk_accounts"),
    )


def users() -> None:
    op.create_table(
        "users",
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("email", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("password_hash", sa.Text(), nullable=False),
        sa.Column("email_verified", sa.Boolean(), nullable=False),
        sa.Column("created_ms", NUMBER, nullable=False),
        sa.Column("password_changed_ms", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("user_id", name="pk_users"),
        sa.UniqueConstraint("email", name="uq_users__email"),
    )


def memberships() -> None:
    op.create_table(
        "memberships",
        sa.Column("seq", NUMBER, autoincrement=True, nullable=False),
        sa.Column("membership_id", sa.Text(), nullable=False),
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("created_ms", NUMBER, nullable=False),
        sa.CheckConstraint("role IN ('Owner', 'Admin', 'Member', 'Viewer')", name=op.f("ck_memberships__role_known")),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.account_id"], name="fk_memberships__account_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["user_id"], ["users.user_id"], name="fk_memberships__user_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("seq", name="pk_memberships"),
        sa.UniqueConstraint("account_id", "user_id", name="uq_memberships__account_id_user_id"),
        sa.UniqueConstraint("membership_id", name="uq_memberships__membership_id"),
    )
    op.create_index("ix_memberships__user_id_seq", "memberships", ["user_id", "seq"], unique=False)


def projects() -> None:
    op.create_table(
        "projects",
        sa.Column("seq", NUMBER, autoincrement=True, nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("is_default", sa.Boolean(), nullable=False),
        sa.Column("created_ms", NUMBER, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.account_id"], name="fk_projects__account_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("seq", name="pk_projects"),
        sa.UniqueConstraint("project_id", name="uq_projects__project_id"),
    )
    op.create_index("ix_projects__account_id_seq", "projects", ["account_id", "seq"], unique=False)
    create_partial_index(
        "uq_projects__one_default", "projects", ["account_id"], "is_default", on_sqlite="is_default = 1", unique=True
    )


def api_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("seq", NUMBER, autoincrement=True, nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("secret_hash", sa.LargeBinary(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("last_used_ms", NUMBER, nullable=True),
        sa.Column("created_ms", NUMBER, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.account_id"], name="fk_api_keys__account_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("seq", name="pk_api_keys"),
        sa.UniqueConstraint("key_id", name="uq_api_keys__key_id"),
        sa.UniqueConstraint("secret_hash", name="uq_api_keys__secret_hash"),
    )
    op.create_index("ix_api_keys__account_id_seq", "api_keys", ["account_id", "seq"], unique=False)


def refresh_tokens() -> None:
    op.create_table(
        "refresh_tokens",
        sa.Column("token_hash", sa.LargeBinary(), nullable=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("membership_id", sa.Text(), nullable=False),
        sa.Column("issued_ms", NUMBER, nullable=False),
        sa.Column("expires_ms", NUMBER, nullable=False),
        sa.Column("spent_ms", NUMBER, nullable=True),
        sa.Column("revoked_ms", NUMBER, nullable=True),
        sa.ForeignKeyConstraint(
            ["membership_id"], ["memberships.membership_id"], name="fk_refresh_tokens__membership_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.user_id"], name="fk_refresh_tokens__user_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("token_hash", name="pk_refresh_tokens"),
    )
    op.create_index("ix_refresh_tokens__expires_ms", "refresh_tokens", ["expires_ms"], unique=False)
    op.create_index("ix_refresh_tokens__family", "refresh_tokens", ["family"], unique=False)
    op.create_index("ix_refresh_tokens__membership_id", "refresh_tokens", ["membership_id"], unique=False)
    op.create_index("ix_refresh_tokens__user_id", "refresh_tokens", ["user_id"], unique=False)


def one_time_codes() -> None:
    op.create_table(
        "one_time_codes",
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("code_hash", sa.LargeBinary(), nullable=False),
        sa.Column("issued_ms", NUMBER, nullable=False),
        sa.Column("expires_ms", NUMBER, nullable=False),
        sa.Column("tries", NUMBER, nullable=False),
        sa.Column("used", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.user_id"], name="fk_one_time_codes__user_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("user_id", name="pk_one_time_codes"),
    )


def login_failures() -> None:
    op.create_table(
        "login_failures",
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("count", NUMBER, nullable=False),
        sa.Column("since_ms", NUMBER, nullable=False),
        sa.Column("last_ms", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("subject", name="pk_login_failures"),
    )
    op.create_index("ix_login_failures__last_ms", "login_failures", ["last_ms"], unique=False)


def answers() -> None:
    op.create_table(
        "answers",
        sa.Column("caller", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("request_hash", sa.LargeBinary(), nullable=False),
        sa.Column("status", NUMBER, nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("at_ms", NUMBER, nullable=False),
        sa.PrimaryKeyConstraint("caller", "key", name="pk_answers"),
    )
    op.create_index("ix_answers__at_ms", "answers", ["at_ms"], unique=False)
