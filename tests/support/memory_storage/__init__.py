"""Storage in dictionaries, for unit tests: the same behaviour as the database, gone when the process ends."""

from support.memory_storage.unit_of_work import MemoryTransaction, MemoryUnitOfWork

__all__ = ["MemoryTransaction", "MemoryUnitOfWork"]
