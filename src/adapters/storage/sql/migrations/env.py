"""Alembic's entry. The service passes a connection with an open transaction, in which all steps run and which it commits."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
