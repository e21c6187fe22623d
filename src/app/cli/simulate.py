"""`latchboard simulate`: its options, and what it prints."""

from __future__ import annotations

import time
from dataclasses import field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from app.cli.serve import http_url
from app.cli.support import (
    EXIT_FAILURE,
    EXIT_USAGE,
    exit_with,
    find_secret,
    load_settings_or_exit,
    run_async,
    secret_or_exit,
    stdout_console,
)
from app.config.settings import Settings
from app.runtime import logging
from app.simulator.options import (
    FAULT_HELP,
    FaultInjectionOptions,
    InvalidChannelsError,
    InvalidFaultError,
    MqttConnectionOptions,
    MqttTransportProtocol,
    MqttVersion,
    SimulationError,
    SimulationOptions,
    SimulatorApiCredentials,
    parse_channels,
)
from domain.devices.channels import ChannelKind
from domain.devices.model import FirmwareProfile
from domain.kernel.dataclasses import service

PLAIN_PROGRESS_EVERY_S = 10.0
"""Interval of progress lines when the output is not a terminal."""


@service
class ConsoleProgressReporter:
    console: Console
    _is_progress_shown: bool = field(default=False, init=False)
    _last_printed_at: float = field(default=0.0, init=False)

    def print_line(self, line: str) -> None:
        self._end_progress_line()
        self.console.print(line)

    def update_progress(self, line: str) -> None:
        if self.console.is_terminal:
            self.console.print(f"\r{line}\x1b[K", end="")
            self._is_progress_shown = True
        elif time.monotonic() - self._last_printed_at >= PLAIN_PROGRESS_EVERY_S:
            self.console.print(line.strip())
            self._last_printed_at = time.monotonic()

    def _end_progress_line(self) -> None:
        if self._is_progress_shown:
            self.console.print()
            self._is_progress_shown = False


def _parse_faults(text: str) -> FaultInjectionOptions:
    try:
        return FaultInjectionOptions.parse(text)
    except InvalidFaultError as error:
        raise typer.BadParameter(str(error)) from None


def _parse_channels(text: str, profile: FirmwareProfile) -> tuple[tuple[ChannelKind, str], ...]:
    if text and profile is not FirmwareProfile.NATIVE:
        raise typer.BadParameter(f"--channels is for native devices; a simulated {profile} device has one relay")
    try:
        return parse_channels(text)
    except InvalidChannelsError as error:
        raise typer.BadParameter(str(error)) from None


def _parse_address(text: str | None) -> tuple[str | None, int | None]:
    if text is None:
        return None, None
    host, colon, port = text.rpartition(":")
    if not colon:
        return text, None
    if not port.isdecimal() or not 0 < int(port) < 65_536:
        raise typer.BadParameter(f"{text} is neither a host nor host:port")
    return host.strip("[]") or None, int(port)


def simulate(
    url: Annotated[
        str | None, typer.Option(help="URL of the service; default: the address in this installation's settings.")
    ] = None,
    email: Annotated[
        str | None, typer.Option(help="Sign in with this email address, and the password in LATCHBOARD_PASSWORD or as asked for.")
    ] = None,
    devices: Annotated[int, typer.Option(min=1, max=100_000, help="Number of devices; an earlier run's are used again.")] = 10,
    device: Annotated[
        list[str] | None, typer.Option(help="Id of an existing device (repeatable); it gets a new password.")
    ] = None,
    logins: Annotated[Path | None, typer.Option(help="File with a device id and password per line; needs no API.")] = None,
    write_logins: Annotated[Path | None, typer.Option(help="Write the device ids and passwords to this file.")] = None,
    profile: Annotated[FirmwareProfile, typer.Option(help="Firmware whose messages the devices use.")] = FirmwareProfile.NATIVE,
    channels: Annotated[
        str, typer.Option(metavar="KIND[:NAME],…", help=f"Channels of each native device: {', '.join(ChannelKind)}.")
    ] = "",
    press: Annotated[
        float | None, typer.Option(min=0.1, help="About every so many seconds each device presses one of its INPUTs.")
    ] = None,
    rate: Annotated[float, typer.Option(min=0, help="Telemetry messages per second, all devices together; 0: no limit.")] = 5.0,
    qos: Annotated[int, typer.Option(min=0, max=1, help="QoS of the telemetry.")] = 1,
    seconds: Annotated[float | None, typer.Option(min=0.1, help="Stop after this many seconds.")] = None,
    commands: Annotated[float, typer.Option(min=0, max=1_000, help="Commands per second, sent through the API.")] = 0.0,
    faults: Annotated[str, typer.Option(help=f"Faults to inject, comma-separated: {FAULT_HELP}.")] = "",
    transport: Annotated[
        MqttTransportProtocol, typer.Option(help="Transport of the MQTT connections.")
    ] = MqttTransportProtocol.TCP,
    mqtt_version: Annotated[MqttVersion, typer.Option(help="MQTT protocol version.")] = MqttVersion.V311,
    mqtt: Annotated[
        str | None, typer.Option(metavar="HOST[:PORT]", help="Address of the broker; default: as the service says.")
    ] = None,
    ca: Annotated[Path | None, typer.Option(help="PEM file of trusted certificates; default: the system's.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Delete the registered devices at the end.")] = False,
) -> None:
    """Connect simulated devices to a running service: they send telemetry, carry out commands, and fail as requested. Without
    LATCHBOARD_TOKEN (a user's access token) and --email, the command uses the data directory of this installation to sign in."""
    settings = load_settings_or_exit()
    if url is None and settings.http_port == 0:
        exit_with("LATCHBOARD_HTTP_PORT is 0, so the service chose a port itself. Give its address with --url.", EXIT_USAGE)
    token = None if email else find_secret("LATCHBOARD_TOKEN")
    password = secret_or_exit("LATCHBOARD_PASSWORD", prompt=f"Password of {email}") if email else None
    host, port = _parse_address(mqtt)
    _run_and_report(
        settings,
        SimulationOptions(
            credentials=SimulatorApiCredentials((url or http_url(settings)).rstrip("/"), token, email, password),
            connection=MqttConnectionOptions(transport, mqtt_version, host, port, ca),
            device_count=devices,
            device_ids=tuple(device or ()),
            logins_file=logins,
            write_logins_file=write_logins,
            profile=profile,
            channels=_parse_channels(channels, profile),
            press_every_s=press,
            messages_per_second=rate,
            qos=qos,
            duration_s=seconds,
            commands_per_second=commands,
            remove_devices=remove,
            faults=_parse_faults(faults),
        ),
    )


def _run_and_report(settings: Settings, options: SimulationOptions) -> None:
    from app.cli.operator import issue_owner_token
    from app.simulator.run import run_simulation

    logging.configure_logging(None, "WARNING")
    reporter = ConsoleProgressReporter(console=stdout_console())
    try:
        for line in run_async(run_simulation(options, reporter, lambda: issue_owner_token(settings))):
            stdout_console().print(line)
    except SimulationError as error:
        exit_with(str(error), EXIT_FAILURE)
    except KeyboardInterrupt:
        stdout_console().print("stopped")
