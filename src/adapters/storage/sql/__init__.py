"""Storage in SQLite or PostgreSQL, by SQLAlchemy Core."""

from adapters.storage.sql.database import DatabaseUnusable, SqlDatabase
from adapters.storage.sql.schema import DatabaseTooNew, ForeignDatabase
from adapters.storage.sql.unit_of_work import SqlTransaction, SqlUnitOfWork

__all__ = ["DatabaseTooNew", "DatabaseUnusable", "ForeignDatabase", "SqlDatabase", "SqlTransaction", "SqlUnitOfWork"]
