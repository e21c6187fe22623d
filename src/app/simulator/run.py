"""Runs a simulation: provides the logins, starts the fleet, prints its progress every second, and returns the summary.

The fleet runs in the Rust extension, on its own threads: Python clients would be slower than the service under test.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, field
from typing import Protocol

import httpx

from adapters.engine import _native as extension  # noqa: TID251 - the fleet is part of the extension
from app.simulator.api_client import (
    ProvisionedFleet,
    SimulatorApiClient,
    TokenIssuer,
    delete_devices,
    provision,
    read_logins,
    write_logins,
)
from app.simulator.options import DEFAULT_TLS_PORT, DeviceLogin, SimulationError, SimulationOptions
from domain.kernel.dataclasses import service

PROGRESS_EVERY_S = 1.0
POLL_EVERY_S = 0.1
NO_CONNECTION_TIMEOUT_S = 10.0
"""The run fails when no device has connected after this time."""
RESULT_WAIT_S = 10
MAX_IN_FLIGHT = 128
FAULT_COUNTERS = ("silent", "slow", "duplicate", "late", "reconnect", "dirty", "storm")

SimulationStats = Mapping[str, int]


class SimulationProgressDisplay(Protocol):
    def print_line(self, line: str) -> None: ...

    def update_progress(self, line: str) -> None:
        """Show a progress line that the next one replaces."""


async def run_simulation(
    options: SimulationOptions, reporter: SimulationProgressDisplay, issue_token: TokenIssuer | None = None
) -> Sequence[str]:
    """Run until the time is over, or until SIGINT or SIGTERM. Returns the summary lines. `issue_token` supplies an access token
    when `options` have none. Raises SimulationError, and what `issue_token` raises."""
    if options.logins_file is not None:
        return await _run_fleet(options, read_logins(options.logins_file, options.profile), None, reporter)
    async with SimulatorApiClient(options.credentials, issue_token) as api:
        reporter.print_line(
            f"requesting {len(options.device_ids) or options.device_count:,} devices from {options.credentials.url}"
        )
        provisioned: ProvisionedFleet | None = None
        try:
            provisioned = await provision(api, options, reporter.print_line)
            if options.write_logins_file is not None:
                write_logins(options.write_logins_file, provisioned.logins)
            return await _run_fleet(options, provisioned, api, reporter)
        except ExceptionGroup as group:
            raise _first_error(group) from None
        finally:
            if options.remove_devices and provisioned is not None and provisioned.created_devices:
                await delete_devices(api, provisioned.logins)


def _first_error(group: ExceptionGroup[Exception]) -> Exception:
    """The first refusal of the service; without one, the first error of any kind."""
    found: Exception = group.subgroup(SimulationError) or group
    while isinstance(found, ExceptionGroup):
        found = found.exceptions[0]
    return found


async def _run_fleet(
    options: SimulationOptions, provisioned: ProvisionedFleet, api: SimulatorApiClient | None, reporter: SimulationProgressDisplay
) -> Sequence[str]:
    host, port = _broker_address(options, provisioned)
    transport = f"{options.connection.transport}, MQTT {options.connection.version}"
    reporter.print_line(f"simulating {len(provisioned.logins):,} {provisioned.profile} devices at {host}:{port} ({transport})")
    fleet = start_fleet(options, provisioned, host, port)
    load = (
        CommandLoadGenerator(api=api, logins=provisioned.logins, rate=options.commands_per_second)
        if api is not None and options.commands_per_second > 0
        else None
    )
    try:
        async with _running_in_background(load):
            max_connected = await _report_until_done(fleet, len(provisioned.logins), reporter)
    finally:
        await asyncio.to_thread(fleet.stop)
    return summary_lines(options, fleet.stats(), max_connected, load)


def _broker_address(options: SimulationOptions, provisioned: ProvisionedFleet) -> tuple[str, int]:
    """Host and port of the broker. The default host is that of the API: the public MQTT name may not resolve here."""
    connection = options.connection
    host = connection.host or httpx.URL(options.credentials.url).host
    service_port = provisioned.ws_port if connection.transport.is_websocket else provisioned.port
    port = connection.port or (DEFAULT_TLS_PORT if connection.transport.is_tls else service_port)
    if port is None:
        raise SimulationError("With --logins, name the broker too: --mqtt host:1883.")
    return host, port


def start_fleet(options: SimulationOptions, provisioned: ProvisionedFleet, host: str, port: int) -> extension.Simulation:
    """Start the devices on threads of their own; they run until `stop`, or for `duration_s`. Raises SimulationError."""
    connection = options.connection
    try:
        return extension.Simulation(
            host,
            port,
            [(login.device_id, login.password) for login in provisioned.logins],
            websocket=connection.transport.is_websocket,
            ca_certificates=connection.load_trusted_certificates(),
            version=connection.version.protocol_level,
            profile=str(provisioned.profile),
            rate=options.messages_per_second,
            qos=options.qos,
            seconds=options.duration_s,
            channels=[(str(kind), name) for kind, name in options.channels],
            press_every_s=options.press_every_s,
            **asdict(options.faults),
        )
    except (OSError, ValueError) as error:
        raise SimulationError(f"The fleet cannot start: {error}. Check --ca and the address.") from None


@contextlib.asynccontextmanager
async def _running_in_background(load: CommandLoadGenerator | None) -> AsyncIterator[None]:
    task = None if load is None else asyncio.create_task(load.run())
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def _report_until_done(fleet: extension.Simulation, count: int, reporter: SimulationProgressDisplay) -> int:
    """Print progress until the time is over or a signal arrives. Returns the highest sampled number of connected devices."""
    stop = _stop_on_signal()
    previous: dict[str, int] = {}
    max_connected = 0
    while fleet.is_running() and not stop.is_set():
        for _ in range(round(PROGRESS_EVERY_S / POLL_EVERY_S)):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), POLL_EVERY_S)
            max_connected = max(max_connected, fleet.stats()["connected"])
            if stop.is_set() or not fleet.is_running():
                break
        now = fleet.stats()
        reporter.update_progress(progress_line(now, previous, count))
        if not now["connects"] and now["elapsed_ms"] > NO_CONNECTION_TIMEOUT_S * 1000:
            raise SimulationError(
                f"No device connects: the broker refused {now['refused']} attempts, and {now['failed']} did not reach it. "
                "Check host, port, transport and certificate."
            )
        previous = now
    return max_connected


def _stop_on_signal() -> asyncio.Event:
    """Ctrl-C ends the run; the summary still appears."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


@service
class CommandLoadGenerator:
    """Sends commands through the API, as a user would: ON in one round over all devices and OFF in the next."""

    api: SimulatorApiClient
    logins: Sequence[DeviceLogin]
    rate: float
    """Commands per second."""
    outcomes: Counter[str] = field(default_factory=Counter, init=False)
    """Commands by final status, or by error code when the service refuses one."""
    latencies_s: list[float] = field(default_factory=list, init=False)
    """Time from the request to the response with the device's result; DONE only."""

    async def run(self) -> None:
        """Run until cancelled. With MAX_IN_FLIGHT commands open it waits, and does not catch up afterwards."""
        slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        async with asyncio.TaskGroup() as group:
            for number, login in enumerate(itertools.cycle(self.logins)):
                await slots.acquire()
                cmd = "OFF" if number // len(self.logins) % 2 else "ON"
                group.create_task(self._send_one(login, cmd, slots))
                await asyncio.sleep(1 / self.rate)

    async def _send_one(self, login: DeviceLogin, cmd: str, slots: asyncio.Semaphore) -> None:
        started_at = time.perf_counter()
        try:
            body = {"cmd": cmd, "waitSeconds": RESULT_WAIT_S}
            response = await self.api.post(f"/devices/{login.device_id}/command", body)
            self.outcomes[str(response.get("status", "WAITS"))] += 1
            if response.get("status") == "DONE":
                self.latencies_s.append(time.perf_counter() - started_at)
        except SimulationError as error:
            self.outcomes[str(error).split(": ")[1] if ": " in str(error) else "REFUSED"] += 1
        finally:
            slots.release()

    def latency_quantile_s(self, share: float) -> float:
        """Nearest-rank quantile in seconds; 0 when no command is DONE."""
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def progress_line(now: SimulationStats, before: SimulationStats, count: int) -> str:
    """Rates cover the time between the two samples."""
    seconds = max(0.001, (now["elapsed_ms"] - before.get("elapsed_ms", 0)) / 1000)
    sent, acknowledged = ((now[name] - before.get(name, 0)) / seconds for name in ("sent", "confirmed"))
    return (
        f"{now['elapsed_ms'] / 1000:6.0f} s  {now['connected']:,}/{count:,} connected  {sent:,.0f} published/s  "
        f"{acknowledged:,.0f} acknowledged/s  p50 {format_ms(now['confirmation_p50_us'])}  p99 {format_ms(now['confirmation_p99_us'])}  "  # noqa: E501
        f"{now['answered']:,} commands answered  {count_faults(now):,} faults"
    )


def count_faults(stats: SimulationStats) -> int:
    return sum(stats[f"fault_{name}"] for name in FAULT_COUNTERS)


def summary_lines(
    options: SimulationOptions, stats: SimulationStats, max_connected: int, load: CommandLoadGenerator | None
) -> Sequence[str]:
    seconds = max(0.001, stats["elapsed_ms"] / 1000)
    lines = [
        (
            "connected",
            f"{max_connected:,} at most at once; {stats['connects']:,} connects, {stats['refused']:,} refused, "
            f"{stats['failed']:,} failed, {stats['lost']:,} lost",
        ),
        ("published", f"{stats['sent']:,} messages, {stats['sent'] / seconds:,.0f}/s"),
    ]
    if options.qos:
        missing = stats["sent"] - stats["confirmed"]
        lines += [
            (
                "acknowledged",
                f"{stats['confirmed']:,}, {missing:,} not ({stats['abandoned']:,} of them because the connection ended)",
            ),
            ("to PUBACK", _latency_text(stats, "confirmation")),
        ]
    lines += [
        ("to CONNACK", _latency_text(stats, "connect")),
        (
            "commands",
            f"{stats['commands']:,} received ({stats['repeats']:,} repeated), {stats['answered']:,} answered, "
            f"{stats['expired']:,} after their deadline",
        ),
    ]
    if load is not None:
        outcomes = ", ".join(f"{count:,} {name}" for name, count in load.outcomes.most_common()) or "none"
        lines.append(("outcomes", outcomes))
        times = (f"p{share:.0%} {load.latency_quantile_s(share) * 1000:,.1f} ms".replace("%", "") for share in (0.5, 0.9, 0.99))
        lines.append(("to DONE", ", ".join(times)))
    injected = ", ".join(f"{name} {stats[f'fault_{name}']:,}" for name in FAULT_COUNTERS if stats[f"fault_{name}"])
    lines.append(("faults", injected or "none"))
    return [f"{name:13} {text}" for name, text in lines]


def _latency_text(stats: SimulationStats, what: str) -> str:
    return ", ".join(f"{name} {format_ms(stats[f'{what}_{name}_us'])}" for name in ("p50", "p90", "p99", "max"))


def format_ms(microseconds: int) -> str:
    return f"{microseconds / 1000:,.1f} ms"
