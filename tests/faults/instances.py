"""Three instances of a cluster behind HAProxy, which a workload uses as if they were one service."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import asyncpg

from domain.partitions.model import partition_of
from faults.hand_over import measure, read_rows
from support.balancer import Balancer
from support.nats import NatsNodes
from support.service import PORT_SETTINGS, Service
from support.silent_network import SilentNetwork
from support.waiting import TIMEOUT_S

INSTANCES = 3
MAX_WAIT_FOR_LOCK_S = 5.0
PARTITIONS = 12


@dataclass(frozen=True)
class InstanceNetworks:
    """What lies between one instance and the rest: each of them can fall silent."""

    database: SilentNetwork
    nodes: Sequence[SilentNetwork]

    @property
    def settings(self) -> dict[str, str]:
        return {"LATCHBOARD_DATABASE_URL": self.database.url, "LATCHBOARD_CLUSTER": ",".join(each.url for each in self.nodes)}


class InstanceGroup(Service):
    """Its ports are the balancer's."""

    def __init__(self, folder: Path, nodes: NatsNodes, networks: Sequence[InstanceNetworks] = (), **settings: Any) -> None:
        """`networks`: of each instance, in their order; without them nothing can be cut off."""
        super().__init__(folder, **settings)
        shared = {
            **settings,
            "LATCHBOARD_CLUSTER": nodes.url,
            "LATCHBOARD_CLUSTER_MONITOR": nodes.monitor_url,
            "LATCHBOARD_CLUSTER_PARTITIONS": PARTITIONS,
            "LATCHBOARD_CLUSTER_LOG_MIB": 32,
        }
        self._networks = networks
        ways = [each.settings for each in networks] or [{}] * INSTANCES
        self.instances = [Service(folder / f"instance-{number}", **shared | way) for number, way in enumerate(ways, 1)]
        self._balancer = Balancer(folder, {name: self.settings[name] for name in PORT_SETTINGS}, self.instances)
        self.hand_overs: list[float] = []
        """Seconds that partitions stood still after a kill."""

    @property
    def is_running(self) -> bool:
        return any(instance.is_running for instance in self.instances)

    def start(self) -> None:
        for instance in self.instances:
            if not instance.is_running:
                instance.start()
        self._balancer.start()
        deadline = time.monotonic() + TIMEOUT_S
        while not self._ready():
            assert time.monotonic() < deadline, "the balancer finds no instance that is ready"
            time.sleep(0.05)

    def restart(self) -> None:
        """A rolling update: one instance after the other is stopped with SIGTERM and started again."""
        for instance in self.instances:
            instance.restart()

    def kill(self) -> None:
        for instance in self.instances:
            instance.kill()

    async def kill_and_restart(self) -> None:
        """Kill an instance and start it again. Returns when its partitions have committed elsewhere."""
        url = str(self.settings["LATCHBOARD_DATABASE_URL"])
        connection = await asyncpg.connect(url.replace("+asyncpg", ""), timeout=TIMEOUT_S)
        try:
            busy = {partition_of(row[0], PARTITIONS) for row in await connection.fetch("SELECT DISTINCT device_no FROM readings")}
            before = await read_rows(connection)
        finally:
            await connection.close()
        instance, killed_at = random.choice(self.instances), time.monotonic()
        instance.kill()
        starting = asyncio.create_task(asyncio.to_thread(instance.start))
        self.hand_overs += await measure(url, before, busy, killed_at)
        await starting

    async def cut_off(self, seconds: float, *, database: bool, log: bool) -> None:
        """Let the networks of an instance fall silent for so long. The database's does so in the middle of a transaction that has
        locked a row."""
        networks = random.choice(self._networks)
        if database:
            networks.database.silent_from = b"UPDATE 1\0"
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MAX_WAIT_FOR_LOCK_S):
                    while not networks.database.silent:
                        await asyncio.sleep(0.005)
        silent = [*([networks.database] if database else []), *(networks.nodes if log else [])]
        for each in silent:
            each.silent = True
        try:
            await asyncio.sleep(seconds)
        finally:
            for each in silent:
                each.silent, each.silent_from = False, None

    async def pause(self, seconds: float, number: int | None = None) -> None:
        """SIGSTOP an instance, this one or any, for so long."""
        process = (random.choice(self.instances) if number is None else self.instances[number]).process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(process.pid, signal.SIGCONT)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        super().__exit__(kind, error, trace)
        self._balancer.stop()
        for instance in self.instances:
            if instance.process is not None:
                instance.kill()
