"""Short messages between the instances of a cluster, over core NATS: quick, and lost when nobody listens.

Whatever must not be lost is in the database or in the log; these messages make it faster.

The feed's messages between instances, as JSON. Raises msgspec.MsgspecError for a message of another version.

Whether the nodes of NATS keep what they confirm: by default a node writes to its disk only every two minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

import httpx
import msgspec
import nats.errors
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg

from domain.events.model import Event
from domain.feed.interest import PeerFeedInterestMessage, PeerFeedReadingsMessage
from domain.partitions.ports import ConnectedDevices, PeerLeaseAndCredentialQuery, PeerLeaseAndCredentialReply

encode = msgspec.json.encode
decode_interest = msgspec.json.Decoder(PeerFeedInterestMessage).decode


def decode_readings(body: bytes) -> PeerFeedReadingsMessage:
    try:
        fields = msgspec.json.decode(body)
        return PeerFeedReadingsMessage(**fields | {"events": [Event(**each) for each in fields["events"]]})
    except (KeyError, TypeError) as error:
        raise msgspec.DecodeError(str(error)) from None


CALL_TIMEOUT_S = 0.3
STRANGERS_S = 0.15
"""When all that are known have answered: how long to wait for one that has joined meanwhile."""
_PREFIX = "latchboard"
_NO_LEASE = b"no lease"
_SENDER = "Latchboard-Instance"

_question = msgspec.json.Decoder(PeerLeaseAndCredentialQuery)
_answer = msgspec.json.Decoder(PeerLeaseAndCredentialReply)
_connected = msgspec.json.Decoder(list[tuple[str, int]])

log = structlog.get_logger("stream")


class NatsClusterBus:
    def __init__(self, client: Client, instance: str) -> None:
        self._client = client
        self._instance = instance

    async def answer_calls(self, has_lease: Callable[[], bool]) -> None:
        """From now on `find_gone` of the other instances finds this one, unless it has no lease."""

        async def answer(message: Msg) -> None:
            await message.respond(b"" if has_lease() else _NO_LEASE)

        await self._client.subscribe(f"{_PREFIX}.call.{self._instance}", cb=answer)

    async def find_gone(self, instances: Collection[str]) -> frozenset[str]:
        """Those that say that they have no lease, and those that certainly have no connection to NATS: its servers know at once
        when a process has ended."""
        answers = await asyncio.gather(*[self._is_gone(instance) for instance in instances])
        return frozenset(instance for instance, is_gone in zip(instances, answers, strict=True) if is_gone)

    async def _is_gone(self, instance: str) -> bool:
        try:
            answer = await self._client.request(f"{_PREFIX}.call.{instance}", timeout=CALL_TIMEOUT_S)
        except nats.errors.NoRespondersError:
            return True
        except (nats.errors.Error, OSError, TimeoutError):
            return False
        return answer.data == _NO_LEASE

    async def reaches_itself(self, timeout_s: float) -> bool:
        """Whether a call of this instance arrives at this instance, by way of NATS."""
        try:
            await self._client.request(f"{_PREFIX}.call.{self._instance}", timeout=timeout_s)
        except (nats.errors.Error, OSError, TimeoutError):
            return False
        return True

    async def answer_leases(self, answer: Callable[[PeerLeaseAndCredentialQuery], PeerLeaseAndCredentialReply]) -> None:
        """From now on `poll_leases` of every instance gets an answer of this one."""

        async def reply(message: Msg) -> None:
            found = answer(_question.decode(message.data))
            await self._client.publish(message.reply, msgspec.json.encode(found), headers={_SENDER: self._instance})

        await self._client.subscribe(f"{_PREFIX}.leases", cb=reply)

    async def poll_leases(
        self, question: PeerLeaseAndCredentialQuery, expected: Collection[str]
    ) -> Mapping[str, PeerLeaseAndCredentialReply]:
        found: dict[str, PeerLeaseAndCredentialReply] = {}
        is_complete = asyncio.Event()

        async def collect(message: Msg) -> None:
            found[(message.headers or {}).get(_SENDER, "")] = _answer.decode(message.data)
            if found.keys() >= set(expected):
                is_complete.set()

        inbox = self._client.new_inbox()
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                waiting = await self._client.subscribe(inbox, cb=collect)
                try:
                    await self._client.publish(
                        f"{_PREFIX}.leases", msgspec.json.encode(question), reply=inbox, headers={_SENDER: self._instance}
                    )
                    await asyncio.gather(is_complete.wait(), asyncio.sleep(STRANGERS_S))
                finally:
                    await waiting.unsubscribe()
        except (nats.errors.Error, OSError, TimeoutError) as error:
            log.debug("some instances have not answered", missing=sorted(set(expected) - found.keys()), error=str(error))
        return found

    async def flush(self) -> None:
        """Returns when the server has what was sent before, or after a moment without an answer."""
        try:
            await self._client.flush(1)
        except (nats.errors.Error, OSError, TimeoutError) as error:
            log.debug("messages to the other instances may still be on their way", error=str(error))

    async def on_moves(self, call: Callable[[str], None]) -> None:
        """The member with this name joins, has left, has released a partition, or has no lease any more."""
        await self._subscribe("moves", lambda sender, _body: call(sender))

    async def announce_move(self) -> None:
        await self._publish("moves", b"")

    async def on_connected(self, call: Callable[[ConnectedDevices], Awaitable[None]]) -> None:
        """Devices have connected to another instance: (device id, when in Unix ms)."""
        await self._subscribe("connected", lambda _sender, body: call(_connected.decode(body)))

    async def announce_connected(self, devices: ConnectedDevices) -> None:
        await self._publish("connected", msgspec.json.encode(devices))

    async def on_readings(self, call: Callable[[str, PeerFeedReadingsMessage], Awaitable[None] | None]) -> None:
        await self._subscribe("readings", lambda sender, body: call(sender, decode_readings(body)))

    async def announce_readings(self, readings: PeerFeedReadingsMessage) -> None:
        await self._publish("readings", msgspec.json.encode(readings))

    async def on_interest(self, call: Callable[[str, PeerFeedInterestMessage], Awaitable[None] | None]) -> None:
        await self._subscribe("interest", lambda sender, body: call(sender, decode_interest(body)))

    async def announce_interest(self, interest: PeerFeedInterestMessage) -> None:
        await self._publish("interest", msgspec.json.encode(interest))

    async def _subscribe(self, subject: str, call: Callable[[str, bytes], Awaitable[None] | None]) -> None:
        async def receive(message: Msg) -> None:
            sender = (message.headers or {}).get(_SENDER, "")
            if sender == self._instance:
                return
            try:
                waiting = call(sender, message.data)
                if waiting is not None:
                    await waiting
            except msgspec.MsgspecError as error:  # of another version, during an upgrade
                log.warning("a message of another instance cannot be read", subject=subject, sender=sender, error=str(error))

        await self._client.subscribe(f"{_PREFIX}.{subject}", cb=receive)

    async def _publish(self, subject: str, body: bytes) -> None:
        try:
            await self._client.publish(f"{_PREFIX}.{subject}", body, headers={_SENDER: self._instance})
        except (nats.errors.Error, OSError) as error:
            log.debug("a message to the other instances was not sent", subject=subject, error=str(error))


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
