"""In-memory storage for unit tests: the same behaviour as the database, lost when the process ends."""

from support.memory_storage.unit_of_work import MemoryTransaction, MemoryUnitOfWork

__all__ = ["MemoryTransaction", "MemoryUnitOfWork"]
