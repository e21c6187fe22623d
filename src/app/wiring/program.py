"""The composed program: its parts by name, so that the lifecycle, the HTTP application and the metrics can reach them, and what
`/readyz` answers of them: errors, which make it 503, and warnings, which do not. It answers within seconds, whatever hangs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from quart import Quart

from adapters.http.feed.endpoint import FeedEndpoint
from adapters.http.server.limits import HttpConnectionLimiter
from app.config.settings import Settings
from app.runtime.metrics import MetricsRegistry
from app.runtime.processes import WorkerProcessContext
from app.runtime.supervisor import WorkerSupervisor
from app.wiring.adapters import ServiceAdapters
from app.wiring.services import DomainServices
from app.wiring.workers import Workers
from domain.kernel.dataclasses import service
from domain.kernel.errors import Unavailable


@dataclass(slots=True)
class ComposedApplication:
    settings: Settings
    adapters: ServiceAdapters
    services: DomainServices
    workers: Workers
    supervisor: WorkerSupervisor
    metrics: MetricsRegistry
    http_connections: HttpConnectionLimiter
    worker: WorkerProcessContext | None = None
    """Set in a worker process."""
    http_app: Quart = field(init=False)
    feed_endpoint: FeedEndpoint = field(init=False)
    _database_probe: CachedReadinessProbe = field(init=False)

    def __post_init__(self) -> None:
        self._database_probe = CachedReadinessProbe(check=self.adapters.database.check)

    async def readiness_errors(self) -> Mapping[str, str]:
        """The current problem of each part; empty when the service is ready."""
        found = {f"worker {name}": error for name, error in self.supervisor.current_errors().items()}
        database_error = await self._database_probe.error()
        if database_error is not None:
            found["database"] = database_error
        found |= self.device_readiness_errors()
        if self.workers.postgres_listener is not None:
            found |= self.workers.postgres_listener.readiness_errors()
        if self.workers.cluster is not None:
            found |= self.workers.cluster.readiness_errors()
        return found

    def device_readiness_errors(self) -> Mapping[str, str]:
        """Why devices cannot connect here; empty when they can. In a cluster they can while the database is away."""
        errors = self.supervisor.current_errors()
        found = {f"worker {name}": errors[name] for name in ("front",) if name in errors}
        if (trouble := self.adapters.link.connection_problem()) is not None:
            found["broker"] = trouble
        if self.workers.device_lease is not None:
            found |= self.workers.device_lease.readiness_errors()
        if self.workers.cluster is not None and (trouble := self.workers.cluster.log_reach.problem()) is not None:
            found["cluster log"] = trouble
        return found

    def readiness_warnings(self) -> Mapping[str, str]:
        """What does not stop the service yet."""
        found = {"disk": self.adapters.disk.warning(), "broker": self.adapters.link.warning()}
        if self.workers.reading_mover is not None:
            found["clickhouse"] = self.workers.reading_mover.warning()
        return {part: warning for part, warning in found.items() if warning is not None}


@service
class CachedReadinessProbe:
    """Runs a check that raises Unavailable, at most once a second: it writes to the database, and anybody may poll `/readyz`."""

    check: Callable[[], Awaitable[None]]
    interval_s: float = 1.0
    timeout_s: float = 3.0
    _running: asyncio.Task[str | None] | None = field(default=None, init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _next_at: float = field(default=float("-inf"), init=False)
    _error: str | None = field(default=None, init=False)

    async def error(self) -> str | None:
        """The error of the last check; None if it succeeded. Concurrent callers share one check."""
        async with self._lock:
            if time.monotonic() >= self._next_at:
                self._error = await self._bounded()
                self._next_at = time.monotonic() + self.interval_s
            return self._error

    async def _bounded(self) -> str | None:
        """A check that takes too long goes on, and the next call waits for it too: it may hold the last connection."""
        running = self._running = self._running or asyncio.create_task(self._run())
        done, _ = await asyncio.wait([running], timeout=self.timeout_s)
        if not done:
            return f"It has not answered within {self.timeout_s:g} seconds."
        self._running = None
        return running.result()

    async def _run(self) -> str | None:
        try:
            await self.check()
        except Unavailable as error:
            return error.message
        return None
