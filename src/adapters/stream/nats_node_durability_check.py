"""Whether the nodes of NATS keep what they confirm: by default a node writes to its disk only every two minutes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx

MIN_NODES = 3
MIN_VERSION = (2, 12)
TIMEOUT_S = 3.0


async def find_unsafe(monitors: Sequence[str]) -> list[str]:
    """What makes a confirmed message unsafe, by the monitoring addresses of the nodes. Empty: nothing was found."""
    if len(monitors) < MIN_NODES:
        return [
            f"{len(monitors)} monitoring addresses of NATS nodes are given, so it cannot be checked whether {MIN_NODES} nodes "
            "write each message to disk. Set LATCHBOARD_CLUSTER_MONITOR to the addresses of all nodes, such as "
            "http://nats-1:8222,http://nats-2:8222,http://nats-3:8222."
        ]
    async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
        return [problem for monitor in monitors for problem in await _find_in_node(client, monitor)]


async def _find_in_node(client: httpx.AsyncClient, monitor: str) -> list[str]:
    try:
        response = await client.get(f"{monitor}/varz")
        response.raise_for_status()
        node: dict[str, Any] = response.json()
    except (httpx.HTTPError, ValueError) as error:
        return [
            f"The NATS node at {monitor} does not answer ({error or type(error).__name__}). Check LATCHBOARD_CLUSTER_MONITOR."
        ]
    return check_node(monitor, node)


def check_node(monitor: str, node: dict[str, Any]) -> list[str]:
    """`node`: what the node says of itself at `/varz`."""
    found = []
    version = tuple(int(part) for part in str(node.get("version", "0.0")).split(".")[:2])
    if version < MIN_VERSION:
        found.append(f"The NATS node at {monitor} is version {node.get('version')}. Update it to 2.12 or newer.")
    config = node.get("jetstream", {}).get("config")
    if not config:
        found.append(f"The NATS node at {monitor} runs without JetStream. Add `jetstream {{ sync_interval: always }}` to it.")
    elif not config.get("sync_always"):
        found.append(
            f"The NATS node at {monitor} does not write confirmed messages to its disk at once, so a power failure loses them. "
            "Set `sync_interval: always` in the jetstream block of its configuration."
        )
    if not node.get("cluster", {}).get("name"):
        found.append(
            f"The NATS node at {monitor} is not part of a NATS cluster. Configure three nodes with routes to each other."
        )
    return found
