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
from app.simulator import report
from app.simulator.api_client import ApiClient, TokenIssuer
from app.simulator.command_load import CommandLoad
from app.simulator.options import DEFAULT_TLS_PORT, SimulationError, SimulationOptions
from app.simulator.provision import ProvisionedFleet, delete_devices, provision, read_logins, write_logins

PROGRESS_EVERY_S = 1.0
POLL_EVERY_S = 0.1
NO_CONNECTION_TIMEOUT_S = 10.0
"""So long nobody may get in before it is said that something is wrong."""


class ProgressReporter(Protocol):
    def print_line(self, line: str) -> None: ...

    def update_progress(self, line: str) -> None:
        """Progress: the next one takes its place."""


async def run_simulation(order: SimulationOptions, teller: ProgressReporter, issue: TokenIssuer | None = None) -> Sequence[str]:
    """Until its time is over, or SIGINT or SIGTERM. Returns what there is to say at the end. `issue` gives an access token where
    the order has none. Raises SimulationRefused, and what `issue` raises."""
    if order.logins_file is not None:
        return await _run_fleet(order, read_logins(order.logins_file, order.profile), None, teller)
    async with ApiClient(order.credentials, issue) as api:
        teller.print_line(f"asking {order.credentials.url} for {len(order.device_ids) or order.device_count:,} devices")
        roll: ProvisionedFleet | None = None
        try:
            roll = await provision(api, order, teller.print_line)
            if order.write_logins_file is not None:
                write_logins(order.write_logins_file, roll.logins)
            return await _run_fleet(order, roll, api, teller)
        except ExceptionGroup as several:
            raise _first_error(several) from None
        finally:
            if order.remove_devices and roll is not None and roll.created_devices:
                await delete_devices(api, roll.logins)


def _first_error(several: ExceptionGroup[Exception]) -> Exception:
    """What the service refused, out of whatever else that broke off."""
    found: Exception = several.subgroup(SimulationError) or several
    while isinstance(found, ExceptionGroup):
        found = found.exceptions[0]
    return found


async def _run_fleet(
    order: SimulationOptions, roll: ProvisionedFleet, api: ApiClient | None, teller: ProgressReporter
) -> Sequence[str]:
    host, port = _broker_address(order, roll)
    how = f"{order.connection.transport}, MQTT {order.connection.version}"
    teller.print_line(f"playing {len(roll.logins):,} {roll.profile} devices at {host}:{port} ({how})")
    fleet = _start_fleet(order, roll, host, port)
    commanding = (
        CommandLoad(api, roll.logins, order.commands_per_second) if api is not None and order.commands_per_second > 0 else None
    )
    try:
        async with _running_in_background(commanding):
            most = await _report_until_done(fleet, len(roll.logins), teller)
    finally:
        await asyncio.to_thread(fleet.stop)
    return report.summary_lines(order, fleet.stats(), most, commanding)


def _broker_address(order: SimulationOptions, roll: ProvisionedFleet) -> tuple[str, int]:
    """The public name need not be known here: the service is reached by the address we were given."""
    route = order.connection
    host = route.host or httpx.URL(order.credentials.url).host
    offered = roll.ws_port if route.transport.is_websocket else roll.port
    port = route.port or (DEFAULT_TLS_PORT if route.transport.is_tls else offered)
    if port is None:
        raise SimulationError("With --logins, say where the broker is: --mqtt host:1883.")
    return host, port


def _start_fleet(order: SimulationOptions, roll: ProvisionedFleet, host: str, port: int) -> extension.Simulation:
    route = order.connection
    try:
        return extension.Simulation(
            host,
            port,
            [(login.device_id, login.password) for login in roll.logins],
            websocket=route.transport.is_websocket,
            trust=route.load_trusted_certificates(),
            version=route.version.protocol_level,
            profile=str(roll.profile),
            rate=order.messages_per_second,
            qos=order.qos,
            seconds=order.duration_s,
            **asdict(order.faults),
        )
    except (OSError, ValueError) as error:
        raise SimulationError(f"The fleet cannot start: {error}. Check --ca and the address.") from None


@contextlib.asynccontextmanager
async def _running_in_background(commanding: CommandLoad | None) -> AsyncIterator[None]:
    task = None if commanding is None else asyncio.create_task(commanding.run())
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def _report_until_done(fleet: extension.Simulation, count: int, teller: ProgressReporter) -> int:
    """Until its time is over or a signal comes. The most devices that were connected at one look."""
    stop = _stop_on_signal()
    before: dict[str, int] = {}
    most = 0
    while fleet.running() and not stop.is_set():
        for _ in range(round(PROGRESS_EVERY_S / POLL_EVERY_S)):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), POLL_EVERY_S)
            most = max(most, fleet.stats()["connected"])
            if stop.is_set() or not fleet.running():
                break
        now = fleet.stats()
        teller.update_progress(report.progress_line(now, before, count))
        if not now["connects"] and now["elapsed_ms"] > NO_CONNECTION_TIMEOUT_S * 1000:
            raise SimulationError(
                f"No device gets in: {now['refused']} were refused, {now['failed']} reached nobody. "
                "Check host, port, transport and certificate."
            )
        before = now
    return most


def _stop_on_signal() -> asyncio.Event:
    """So that Ctrl-C ends the run and not its summary."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
