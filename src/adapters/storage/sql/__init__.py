"""Storage in SQLite or PostgreSQL, by SQLAlchemy Core."""

from adapters.storage.sql.database import DatabaseUnusableError, SqlDatabase
from adapters.storage.sql.schema import DatabaseTooNewError, DatabaseTooOldError, ForeignDatabaseError
from adapters.storage.sql.unit_of_work import SqlTransaction, SqlUnitOfWork

__all__ = [
    "DatabaseTooNewError",
    "DatabaseTooOldError",
    "DatabaseUnusableError",
    "ForeignDatabaseError",
    "SqlDatabase",
    "SqlTransaction",
    "SqlUnitOfWork",
]
