"""`latchboard simulate` on the command line."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from app.fleet.faults import NAMES, Faults, NotAFault
from app.fleet.order import Access, Order, Profile, Route, Transport, Version

A_LINE_EVERY_S = 10.0
"""Where nobody sees a line being replaced."""


class Screen:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown = False
        self._last = 0.0

    def say(self, line: str) -> None:
        self._leave()
        self._console.print(line)

    def show(self, line: str) -> None:
        if self._console.is_terminal:
            self._console.print(f"\r{line}\x1b[K", end="")
            self._shown = True
        elif time.monotonic() - self._last >= A_LINE_EVERY_S:
            self._console.print(line.strip())
            self._last = time.monotonic()

    def _leave(self) -> None:
        if self._shown:
            self._console.print()
            self._shown = False


def _faults(text: str) -> Faults:
    try:
        return Faults.parse(text)
    except NotAFault as error:
        raise typer.BadParameter(str(error)) from None


def _address(text: str | None) -> tuple[str | None, int | None]:
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
    profile: Annotated[Profile, typer.Option(help="The firmware they speak like.")] = Profile.NATIVE,
    rate: Annotated[float, typer.Option(min=0, help="Telemetry messages a second of all together; 0: flat out.")] = 5.0,
    qos: Annotated[int, typer.Option(min=0, max=1, help="Of the telemetry.")] = 1,
    seconds: Annotated[float | None, typer.Option(min=0.1, help="Stop by itself after this time.")] = None,
    commands: Annotated[float, typer.Option(min=0, max=1_000, help="Commands a second, given through the API.")] = 0.0,
    faults: Annotated[str, typer.Option(help=f"What goes wrong, comma-separated: {NAMES}.")] = "",
    transport: Annotated[Transport, typer.Option(help="How devices connect.")] = Transport.TCP,
    mqtt_version: Annotated[Version, typer.Option(help="MQTT version.")] = Version.V311,
    mqtt: Annotated[str | None, typer.Option(metavar="HOST[:PORT]", help="Their broker; else as the service says.")] = None,
    ca: Annotated[Path | None, typer.Option(help="PEM certificates to trust; else the system's.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Delete the registered devices at the end.")] = False,
) -> None:
    """Play devices against a running service: they report, obey, and fail as told. Without --token or --email the data directory
    of this installation lets you in."""
    from app.cli import play_fleet

    access = Access(url.rstrip("/"), token, email, password)
    host, port = _address(mqtt)
    order = Order(
        access=access,
        route=Route(transport, mqtt_version, host, port, ca),
        count=devices,
        devices=tuple(device or ()),
        logins=logins,
        write_logins=write_logins,
        profile=profile,
        rate=rate,
        qos=qos,
        seconds=seconds,
        commands=commands,
        remove=remove,
        faults=_faults(faults),
    )
    play_fleet(order)
