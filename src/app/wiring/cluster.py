"""The adapters of an instance of a cluster; nothing of it exists without LATCHBOARD_CLUSTER."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from adapters.storage.sql import SqlDatabase
from adapters.stream.bus import NatsClusterBus
from adapters.stream.jetstream import MIN_NODES, JetStreamLog, find_unsafe
from app.config.settings import Settings
from app.runtime.start import StartupError, find_clock_problem
from app.workers.due import WakeEvent
from domain.devices.credential_sync import RecentCredentialChanges
from domain.kernel.clock import Clock
from domain.partitions.ownership import OwnedPartitions

MIB = 1024 * 1024
MEMBERSHIP_CONNECTIONS = 2
"""One for the beats, one for claims."""
MEMBERSHIP_TIMEOUT_S = 5.0

log = structlog.get_logger("cluster")


@dataclass(slots=True)
class ClusterComponents:
    instance: str
    """Names this run of this instance; a restart is another one."""
    ownership: OwnedPartitions
    inbound_log: JetStreamLog
    bus: NatsClusterBus
    membership_database: SqlDatabase
    """The same database by connections of its own: a beat must not wait for the service's other work, nor for a disk."""
    credential_changes: RecentCredentialChanges
    owns_device: Callable[[int], bool] = lambda _: False
    """Whether the engine may hold the rules of the device with this number; set when the services are constructed."""
    beat_wake: WakeEvent = field(default_factory=WakeEvent)
    ownership_wake: WakeEvent = field(default_factory=WakeEvent)

    def holds(self, device_no: int) -> bool:
        return self.owns_device(device_no)


def create_cluster(settings: Settings, process_id: bytes, clock: Clock) -> ClusterComponents:
    instance = f"{socket.gethostname()}-{process_id[:4].hex()}"
    inbound_log = JetStreamLog(
        settings.cluster_servers,
        settings.cluster_partitions,
        replicas=1 if settings.cluster_unsafe and len(settings.cluster_servers) < MIN_NODES else MIN_NODES,
        max_bytes=settings.cluster_log_mib * MIB,
    )
    ownership = OwnedPartitions(instance, settings.cluster_partitions)
    database = SqlDatabase(
        settings.effective_database_url,
        pool_size=MEMBERSHIP_CONNECTIONS,
        acquire_timeout_s=MEMBERSHIP_TIMEOUT_S,
        transaction_timeout_s=MEMBERSHIP_TIMEOUT_S,
        instance=instance,
        for_membership=True,
    )
    bus = NatsClusterBus(client=inbound_log.client, instance=instance)
    return ClusterComponents(instance, ownership, inbound_log, bus, database, RecentCredentialChanges(clock))


async def require_same_clock(settings: Settings, database: SqlDatabase, clock: Clock) -> None:
    """Raises StartupError if the clock is not the database's, unless the settings allow it; Unavailable."""
    problem = await find_clock_problem(database, clock)
    if problem and not settings.cluster_unsafe:
        raise StartupError(f"{problem} LATCHBOARD_CLUSTER_UNSAFE=true starts nevertheless.")
    if problem:
        log.warning("the clocks of the cluster differ", problem=problem)


async def require_safe_log(settings: Settings) -> None:
    """Raises StartupError if the log may lose what it confirms, unless the settings allow it."""
    problems = await find_unsafe(settings.cluster_monitors)
    if problems and not settings.cluster_unsafe:
        raise StartupError(
            " ".join(problems) + " LATCHBOARD_CLUSTER_UNSAFE=true starts nevertheless; then confirmed messages may be lost."
        )
    for problem in problems:
        log.warning("the cluster's log may lose confirmed messages", problem=problem)
