"""What a campaign runs in: the service with its database, its broker, its disk and its clock."""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from faults.cluster import Cluster
from faults.disk import SmallDisk
from faults.disk import available as disk_available
from faults.instances import INSTANCES, InstanceGroup, InstanceNetworks
from support import postgres
from support.balancer import BINARY as HAPROXY_BINARY
from support.external_broker import ExternalBroker
from support.machine_clock import DOUBTING, MachineClock
from support.machine_clock import LIBRARY as CLOCK_LIBRARY
from support.mosquitto import BINARY as MOSQUITTO_BINARY
from support.nats import BINARY as NATS_BINARY
from support.nats import NatsNodes, nats_nodes
from support.service import Service
from support.silent_network import silent_networks
from support.unread_output import FullPipe, UnreadService


class Setup(StrEnum):
    SQLITE = "SQLite"
    POSTGRES = "PostgreSQL"
    CLUSTER = "PostgreSQL, three instances"
    SILENT_CLUSTER = "PostgreSQL, three instances, networks that fall silent"
    MOVE = "SQLite, then PostgreSQL"
    UNREAD_LOG = "SQLite, nobody reads the log"
    MOSQUITTO = "SQLite, Mosquitto"
    SMALL_DISK = "SQLite, small disk"
    FALSE_CLOCK = "SQLite, false clock"
    """The service believes it."""
    DOUBTED_CLOCK = "SQLite, false clock in doubt"

    def missing(self) -> str | None:
        """Why this setup cannot run here, or None."""
        if self in (Setup.POSTGRES, Setup.MOVE, *CLUSTERS) and not postgres.available():
            return "PostgreSQL is not installed"
        if self in CLUSTERS and (NATS_BINARY is None or HAPROXY_BINARY is None):
            return "NATS or HAProxy is not installed"
        if self is Setup.MOSQUITTO and MOSQUITTO_BINARY is None:
            return "Mosquitto is not installed"
        if self is Setup.SMALL_DISK and not disk_available():
            return "only root can mount a disk to fill"
        if self in (Setup.FALSE_CLOCK, Setup.DOUBTED_CLOCK) and CLOCK_LIBRARY is None:
            return "libfaketime is not installed"
        return None


CLUSTERS = (Setup.CLUSTER, Setup.SILENT_CLUSTER)


@dataclass(frozen=True)
class Installation:
    """A service that is not started yet, and what it stands on; None where the setup has none."""

    service: Service
    cluster: Cluster | None = None
    instances: InstanceGroup | None = None
    nodes: NatsNodes | None = None
    broker: ExternalBroker | None = None
    disk: SmallDisk | None = None
    clock: MachineClock | None = None


@asynccontextmanager
async def installation(setup: Setup, folder: Path) -> AsyncIterator[Installation]:
    settings: dict[str, Any] = {"LATCHBOARD_INGEST_LIMIT": 0}
    async with AsyncExitStack() as stack:

        async def keep(made: Any) -> Any:
            stack.push_async_callback(asyncio.to_thread, made.remove)
            return made

        if setup in (Setup.POSTGRES, Setup.MOVE):
            cluster = await keep(await asyncio.to_thread(Cluster))
            await asyncio.to_thread(cluster.start)
            if setup is Setup.POSTGRES:
                settings["LATCHBOARD_DATABASE_URL"] = cluster.database_url
            yield Installation(Service(folder, **settings), cluster=cluster)
        elif setup in CLUSTERS:
            cluster = await keep(await asyncio.to_thread(Cluster))
            await asyncio.to_thread(cluster.start)
            nodes = stack.enter_context(nats_nodes())
            await nodes.wait_until_ready()
            ring = "shared:" + base64.b64encode(secrets.token_bytes(32)).decode()
            networks = _networks(stack, cluster, nodes) if setup is Setup.SILENT_CLUSTER else ()
            group = InstanceGroup(
                folder, nodes, networks, LATCHBOARD_DATABASE_URL=cluster.database_url, LATCHBOARD_SECRET_KEYS=ring, **settings
            )
            yield Installation(group, cluster=cluster, instances=group, nodes=nodes)
        elif setup is Setup.UNREAD_LOG:
            pipe = FullPipe()
            stack.callback(pipe.close)
            yield Installation(UnreadService(folder, pipe, LATCHBOARD_LOG_LEVEL="DEBUG", **settings))
        elif setup is Setup.MOSQUITTO:
            broker = await keep(await asyncio.to_thread(ExternalBroker, folder / "mosquitto"))
            yield Installation(Service(folder, **settings, **broker.settings), broker=broker)
        elif setup is Setup.SMALL_DISK:
            disk = await keep(await asyncio.to_thread(SmallDisk, folder))
            yield Installation(Service(folder, **settings, LATCHBOARD_DATA_DIR=disk.path / "data"), disk=disk)
        elif setup in (Setup.FALSE_CLOCK, Setup.DOUBTED_CLOCK):
            clock = MachineClock(folder / "clock")
            settings |= clock.settings | (DOUBTING if setup is Setup.DOUBTED_CLOCK else {})
            yield Installation(Service(folder, folder, **settings), clock=clock)
        else:
            yield Installation(Service(folder, **settings))


def _networks(stack: AsyncExitStack, cluster: Cluster, nodes: NatsNodes) -> Sequence[InstanceNetworks]:
    """Of each instance, to the database and to every NATS node."""
    found = [stack.enter_context(silent_networks([cluster.database_url, *nodes.servers])) for _ in range(INSTANCES)]
    return [InstanceNetworks(database, to_nodes) for database, *to_nodes in found]
