"""`latchboard simulate` on the command line."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from app.simulator.faults import FAULT_HELP, FaultInjectionOptions, InvalidFaultError
from app.simulator.options import (
    ApiCredentials,
    MqttConnectionOptions,
    MqttTransport,
    MqttVersion,
    SimulationOptions,
)
from domain.devices.model import FirmwareProfile

PLAIN_PROGRESS_EVERY_S = 10.0
"""Where nobody sees a line being replaced."""


class ConsoleProgressReporter:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._is_progress_shown = False
        self._last_printed_at = 0.0

    def print_line(self, line: str) -> None:
        self._end_progress_line()
        self._console.print(line)

    def update_progress(self, line: str) -> None:
        if self._console.is_terminal:
            self._console.print(f"\r{line}\x1b[K", end="")
            self._is_progress_shown = True
        elif time.monotonic() - self._last_printed_at >= PLAIN_PROGRESS_EVERY_S:
            self._console.print(line.strip())
            self._last_printed_at = time.monotonic()

    def _end_progress_line(self) -> None:
        if self._is_progress_shown:
            self._console.print()
            self._is_progress_shown = False


def _parse_faults(text: str) -> FaultInjectionOptions:
    try:
        return FaultInjectionOptions.parse(text)
    except InvalidFaultError as error:
        raise typer.BadParameter(str(error)) from None


def _parse_address(text: str | None) -> tuple[str | None, int | None]:
    if text is None:
        return None, None
    host, colon, port = text.rpartition(":")
    if not colon:
        return text, None
    if not port.isdecimal() or not 0 < int(port) < 65_536:
        raise typer.BadParameter(f"{text} is no host or host:port")
    return host.strip("[]") or None, int(port)


def simulate(
    url: Annotated[str, typer.Option(help="The service.")] = "http://127.0.0.1:8080",
    token: Annotated[str | None, typer.Option(envvar="LATCHBOARD_TOKEN", help="Access token.")] = None,
    email: Annotated[str | None, typer.Option(help="Or sign in with this address …")] = None,
    password: Annotated[str | None, typer.Option(envvar="LATCHBOARD_PASSWORD", help="… and this password.")] = None,
    devices: Annotated[int, typer.Option(min=1, max=100_000, help="Register this many, or use those of an earlier run.")] = 10,
    device: Annotated[list[str] | None, typer.Option(help="Play this one instead (repeatable); it gets a new password.")] = None,
    logins: Annotated[Path | None, typer.Option(help="Play those of this file (id, password a line); needs no API.")] = None,
    write_logins: Annotated[Path | None, typer.Option(help="Write such a file.")] = None,
    profile: Annotated[FirmwareProfile, typer.Option(help="The firmware they speak like.")] = FirmwareProfile.NATIVE,
    rate: Annotated[float, typer.Option(min=0, help="Telemetry messages a second of all together; 0: flat out.")] = 5.0,
    qos: Annotated[int, typer.Option(min=0, max=1, help="Of the telemetry.")] = 1,
    seconds: Annotated[float | None, typer.Option(min=0.1, help="Stop by itself after this time.")] = None,
    commands: Annotated[float, typer.Option(min=0, max=1_000, help="Commands a second, given through the API.")] = 0.0,
    faults: Annotated[str, typer.Option(help=f"What goes wrong, comma-separated: {FAULT_HELP}.")] = "",
    transport: Annotated[MqttTransport, typer.Option(help="How devices connect.")] = MqttTransport.TCP,
    mqtt_version: Annotated[MqttVersion, typer.Option(help="MQTT version.")] = MqttVersion.V311,
    mqtt: Annotated[str | None, typer.Option(metavar="HOST[:PORT]", help="Their broker; else as the service says.")] = None,
    ca: Annotated[Path | None, typer.Option(help="PEM certificates to trust; else the system's.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Delete the registered devices at the end.")] = False,
) -> None:
    """Play devices against a running service: they report, obey, and fail as told. Without --token or --email the data directory
    of this installation lets you in."""
    from app.cli.main import run_and_report

    access = ApiCredentials(url.rstrip("/"), token, email, password)
    host, port = _parse_address(mqtt)
    order = SimulationOptions(
        credentials=access,
        connection=MqttConnectionOptions(transport, mqtt_version, host, port, ca),
        device_count=devices,
        device_ids=tuple(device or ()),
        logins_file=logins,
        write_logins_file=write_logins,
        profile=profile,
        messages_per_second=rate,
        qos=qos,
        duration_s=seconds,
        commands_per_second=commands,
        remove_devices=remove,
        faults=_parse_faults(faults),
    )
    run_and_report(order)
