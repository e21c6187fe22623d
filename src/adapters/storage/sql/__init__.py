"""Storage in SQLite or PostgreSQL, by SQLAlchemy Core."""

from adapters.storage.sql.database import DatabaseTooNewError, DatabaseUnusableError, ForeignDatabaseError, SqlDatabase
from adapters.storage.sql.unit_of_work import SqlTransaction, SqlUnitOfWork

__all__ = [
    "DatabaseTooNewError",
    "DatabaseUnusableError",
    "ForeignDatabaseError",
    "SqlDatabase",
    "SqlTransaction",
    "SqlUnitOfWork",
]
