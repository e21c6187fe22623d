"""Storage in dictionaries, for unit tests: the same behaviour as the database, gone when the process ends."""

from adapters.storage.memory.unit_of_work import MemoryTransaction, MemoryUnitOfWork

__all__ = ["MemoryTransaction", "MemoryUnitOfWork"]
