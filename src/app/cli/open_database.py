"""How the commands open the database, also while the service runs: SQLite serializes the two processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from adapters.crypto.key_ring import MasterKeyProvider
from adapters.feed_hub import InProcessFeedHub
from adapters.id_generator import RandomIdGenerator
from adapters.storage.sql import SqlDatabase
from adapters.storage.sql.unit_of_work import SqlUnitOfWork
from app.config.settings import Settings
from app.runtime.first_start_or_lost_database import KEY_FILE, require_database
from app.runtime.startup_errors import StartupError
from app.wiring.adapters import load_key_ring, prepare_data_dir
from domain.events.domain_event_recorder import DomainEventRecorder


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[SqlUnitOfWork]:
    """Raises StartupError, and what the database raises."""
    prepare_data_dir(settings.data_dir)
    database = SqlDatabase(settings.effective_database_url, pool_size=1)
    uow = database.unit_of_work(DomainEventRecorder(ids=RandomIdGenerator(), observers=[], feed=InProcessFeedHub()))
    try:
        require_database(settings, database.file)
        await database.start()
        yield uow
    finally:
        await database.stop()


def open_key_ring(settings: Settings) -> MasterKeyProvider:
    """Makes no new one. Raises StartupError."""
    prepare_data_dir(settings.data_dir)
    if settings.secret_keys is None and not (settings.data_dir / KEY_FILE).exists():
        raise StartupError(f"There is no key ring in {settings.data_dir}. Set LATCHBOARD_DATA_DIR to where the service keeps it.")
    return load_key_ring(settings)
