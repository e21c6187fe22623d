"""One run of the simulator: logins, the fleet on its own threads, a look at it every second, and what there is to say at the end.

The fleet is the extension's (rust/broker/src/simulate): a Python client a device would be slower than the service it is to load.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict
from typing import Protocol

import httpx

from adapters.engine import _native as extension  # noqa: TID251 - the fleet is the extension's own, beside broker and engine
from app.fleet import telling
from app.fleet.api import Api, Issue
from app.fleet.commands import Commanding
from app.fleet.enrol import Roll, enrol, read, remove, write
from app.fleet.order import TLS_PORT, Order, SimulationRefused

LOOK_EVERY_S = 1.0
ENDS_WITHIN_S = 0.1
NOBODY_S = 10.0
"""So long nobody may get in before it is said that something is wrong."""


class Teller(Protocol):
    def say(self, line: str) -> None: ...

    def show(self, line: str) -> None:
        """Progress: the next one takes its place."""


async def play(order: Order, teller: Teller, issue: Issue | None = None) -> Sequence[str]:
    """Until its time is over, or SIGINT or SIGTERM. Returns what there is to say at the end. `issue` gives an access token where
    the order has none. Raises SimulationRefused, and what `issue` raises."""
    if order.logins is not None:
        return await _play(order, read(order.logins, order.profile), None, teller)
    async with Api(order.access, issue) as api:
        teller.say(f"asking {order.access.url} for {len(order.devices) or order.count:,} devices")
        roll: Roll | None = None
        try:
            roll = await enrol(api, order, teller.say)
            if order.write_logins is not None:
                write(order.write_logins, roll.logins)
            return await _play(order, roll, api, teller)
        except ExceptionGroup as several:
            raise _first(several) from None
        finally:
            if order.remove and roll is not None and roll.made:
                await remove(api, roll.logins)


def _first(several: ExceptionGroup[Exception]) -> Exception:
    """What the service refused, out of whatever else that broke off."""
    found: Exception = several.subgroup(SimulationRefused) or several
    while isinstance(found, ExceptionGroup):
        found = found.exceptions[0]
    return found


async def _play(order: Order, roll: Roll, api: Api | None, teller: Teller) -> Sequence[str]:
    host, port = _address(order, roll)
    how = f"{order.route.transport}, MQTT {order.route.version}"
    teller.say(f"playing {len(roll.logins):,} {roll.profile} devices at {host}:{port} ({how})")
    fleet = _start(order, roll, host, port)
    commanding = Commanding(api, roll.logins, order.commands) if api is not None and order.commands > 0 else None
    try:
        async with _under_way(commanding):
            most = await _watch(fleet, len(roll.logins), teller)
    finally:
        await asyncio.to_thread(fleet.stop)
    return telling.summary(order, fleet.stats(), most, commanding)


def _address(order: Order, roll: Roll) -> tuple[str, int]:
    """The public name need not be known here: the service is reached by the address we were given."""
    route = order.route
    host = route.host or httpx.URL(order.access.url).host
    offered = roll.ws_port if route.transport.websocket else roll.port
    port = route.port or (TLS_PORT if route.transport.tls else offered)
    if port is None:
        raise SimulationRefused("With --logins, say where the broker is: --mqtt host:1883.")
    return host, port


def _start(order: Order, roll: Roll, host: str, port: int) -> extension.Simulation:
    route = order.route
    try:
        return extension.Simulation(
            host,
            port,
            [(login.device_id, login.password) for login in roll.logins],
            websocket=route.transport.websocket,
            trust=route.trust(),
            version=route.version.level,
            profile=str(roll.profile),
            rate=order.rate,
            qos=order.qos,
            seconds=order.seconds,
            **asdict(order.faults),
        )
    except (OSError, ValueError) as error:
        raise SimulationRefused(f"The fleet cannot start: {error}. Check --ca and the address.") from None


@contextlib.asynccontextmanager
async def _under_way(commanding: Commanding | None) -> AsyncIterator[None]:
    task = None if commanding is None else asyncio.create_task(commanding.run())
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def _watch(fleet: extension.Simulation, count: int, teller: Teller) -> int:
    """Until its time is over or a signal comes. The most devices that were connected at one look."""
    stop = _on_signal()
    before: dict[str, int] = {}
    most = 0
    while fleet.running() and not stop.is_set():
        for _ in range(round(LOOK_EVERY_S / ENDS_WITHIN_S)):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), ENDS_WITHIN_S)
            most = max(most, fleet.stats()["connected"])
            if stop.is_set() or not fleet.running():
                break
        now = fleet.stats()
        teller.show(telling.progress(now, before, count))
        if not now["connects"] and now["elapsed_ms"] > NOBODY_S * 1000:
            raise SimulationRefused(
                f"No device gets in: {now['refused']} were refused, {now['failed']} reached nobody. "
                "Check host, port, transport and certificate."
            )
        before = now
    return most


def _on_signal() -> asyncio.Event:
    """So that Ctrl-C ends the run and not its summary."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
