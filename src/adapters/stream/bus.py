"""Short messages between the instances of a cluster, over core NATS: quick, and lost when nobody listens.

Whatever must not be lost is in the database or in the log; these messages make it faster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping

import msgspec
import nats.errors
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg

from adapters.stream.unix_bus import decode_interest, decode_readings, encode
from domain.feed.interest import PeerFeedInterestMessage, PeerFeedReadingsMessage
from domain.kernel.dataclasses import service
from domain.partitions.ports import ConnectedDevices, PeerLeaseAndCredentialQuery, PeerLeaseAndCredentialReply

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


@service
class NatsClusterBus:
    client: Client
    instance: str

    async def answer_calls(self, has_lease: Callable[[], bool]) -> None:
        """From now on `find_gone` of the other instances finds this one, unless it has no lease."""

        async def answer(message: Msg) -> None:
            await message.respond(b"" if has_lease() else _NO_LEASE)

        await self.client.subscribe(f"{_PREFIX}.call.{self.instance}", cb=answer)

    async def find_gone(self, instances: Collection[str]) -> frozenset[str]:
        """Those that say that they have no lease, and those that certainly have no connection to NATS: its servers know at once
        when a process has ended."""
        answers = await asyncio.gather(*[self._is_gone(instance) for instance in instances])
        return frozenset(instance for instance, is_gone in zip(instances, answers, strict=True) if is_gone)

    async def _is_gone(self, instance: str) -> bool:
        try:
            answer = await self.client.request(f"{_PREFIX}.call.{instance}", timeout=CALL_TIMEOUT_S)
        except nats.errors.NoRespondersError:
            return True
        except (nats.errors.Error, OSError, TimeoutError):
            return False
        return answer.data == _NO_LEASE

    async def reaches_itself(self, timeout_s: float) -> bool:
        """Whether a call of this instance arrives at this instance, by way of NATS."""
        try:
            await self.client.request(f"{_PREFIX}.call.{self.instance}", timeout=timeout_s)
        except (nats.errors.Error, OSError, TimeoutError):
            return False
        return True

    async def answer_leases(self, answer: Callable[[PeerLeaseAndCredentialQuery], PeerLeaseAndCredentialReply]) -> None:
        """From now on `poll_leases` of every instance gets an answer of this one."""

        async def reply(message: Msg) -> None:
            found = answer(_question.decode(message.data))
            await self.client.publish(message.reply, encode(found), headers={_SENDER: self.instance})

        await self.client.subscribe(f"{_PREFIX}.leases", cb=reply)

    async def poll_leases(
        self, question: PeerLeaseAndCredentialQuery, expected: Collection[str]
    ) -> Mapping[str, PeerLeaseAndCredentialReply]:
        found: dict[str, PeerLeaseAndCredentialReply] = {}
        is_complete = asyncio.Event()

        async def collect(message: Msg) -> None:
            found[(message.headers or {}).get(_SENDER, "")] = _answer.decode(message.data)
            if found.keys() >= set(expected):
                is_complete.set()

        inbox = self.client.new_inbox()
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                waiting = await self.client.subscribe(inbox, cb=collect)
                try:
                    await self.client.publish(
                        f"{_PREFIX}.leases", encode(question), reply=inbox, headers={_SENDER: self.instance}
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
            await self.client.flush(1)
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
        await self._publish("connected", encode(devices))

    async def on_readings(self, call: Callable[[str, PeerFeedReadingsMessage], Awaitable[None] | None]) -> None:
        await self._subscribe("readings", lambda sender, body: call(sender, decode_readings(body)))

    async def announce_readings(self, readings: PeerFeedReadingsMessage) -> None:
        """Lost while there is no connection. NATS' client would keep it and send it later, after newer readings of devices that
        another instance serves by then; the receivers notice the gap, and their clients resume."""
        if self.client.is_connected:
            await self._publish("readings", encode(readings))

    async def on_interest(self, call: Callable[[str, PeerFeedInterestMessage], Awaitable[None] | None]) -> None:
        await self._subscribe("interest", lambda sender, body: call(sender, decode_interest(body)))

    async def announce_interest(self, interest: PeerFeedInterestMessage) -> None:
        await self._publish("interest", encode(interest))

    async def _subscribe(self, subject: str, call: Callable[[str, bytes], Awaitable[None] | None]) -> None:
        async def receive(message: Msg) -> None:
            sender = (message.headers or {}).get(_SENDER, "")
            if sender == self.instance:
                return
            try:
                waiting = call(sender, message.data)
                if waiting is not None:
                    await waiting
            except msgspec.MsgspecError as error:  # of another version, during an upgrade
                log.warning("a message of another instance cannot be read", subject=subject, sender=sender, error=str(error))

        await self.client.subscribe(f"{_PREFIX}.{subject}", cb=receive)

    async def _publish(self, subject: str, body: bytes) -> None:
        try:
            await self.client.publish(f"{_PREFIX}.{subject}", body, headers={_SENDER: self.instance})
        except (nats.errors.Error, OSError) as error:
            log.debug("a message to the other instances was not sent", subject=subject, error=str(error))
