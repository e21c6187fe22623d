"""Settings of several worker processes on one machine (docs/how-to/operate.md, "Worker processes")."""

from __future__ import annotations

import sys

from pydantic import Field

from app.config.connection_limit_settings import ConnectionLimitSettings

MAX_WORKERS = 64


class WorkerProcessSettings(ConnectionLimitSettings):
    workers: int = Field(
        default=1, ge=1, le=MAX_WORKERS, description="Processes that share the HTTP port; more than 1 needs PostgreSQL."
    )
    worker_port: int | None = Field(
        default=None,
        ge=1,
        le=65_535 - MAX_WORKERS,
        description="Worker 1 alone answers here too, worker 2 on the next port: for metrics.",
    )

    def check_workers(self, *, database_url: str, in_cluster: bool) -> None:
        """Raises ValueError."""
        if self.workers == 1:
            return
        if not database_url.startswith("postgresql"):
            raise ValueError(
                f"{self.workers} workers need PostgreSQL: only one process may write to an SQLite file. Set "
                "LATCHBOARD_DATABASE_URL (`latchboard move-to` moves this installation), or leave LATCHBOARD_WORKERS at 1"
            )
        if in_cluster:
            raise ValueError(
                "LATCHBOARD_WORKERS and LATCHBOARD_CLUSTER exclude each other: an instance of a cluster has MQTT ports of its "
                "own. Start one instance per core instead, or unset LATCHBOARD_CLUSTER"
            )
        if sys.platform != "linux":
            raise ValueError(
                "more than one worker needs Linux, which spreads connections over processes. Leave LATCHBOARD_WORKERS at 1"
            )
