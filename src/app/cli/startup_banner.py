"""The text on the terminal after the start: addresses, and how the first person signs in.

A password or a one-time link is printed to a terminal only. A file or a journal is kept and read by others, so there the text
names the file that has it.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.cli.first_account import FIRST_LOGIN_FILE, FirstAccountCredentials, FirstRunLink
from app.config.reachable_server_address import is_loopback, reachable_address
from app.config.settings import Settings

WILDCARD_HOSTS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - compared, not bound
"""Addresses that mean all interfaces → the address by which this machine reaches itself."""


def http_url(settings: Settings) -> str:
    """Where this machine reaches the dashboard."""
    return f"http://{_reachable_host(settings.http_host)}:{settings.http_port}"


def network_url(settings: Settings) -> str:
    """Where a person reaches the dashboard, perhaps from another machine."""
    return settings.public_url or f"http://{_reachable_host(reachable_address(settings.http_host))}:{settings.http_port}"


def print_banner(
    settings: Settings,
    login: FirstAccountCredentials | FirstRunLink | None,
    *,
    highlights: Sequence[str] = (),
    demo: bool = False,
    console: Console | None = None,
) -> None:
    """`highlights`: lines about what there is to see."""
    console = console or Console(highlight=False, soft_wrap=True)
    console.print()
    console.print(Text("Latchboard is running", style="bold green"), Text("(demo)" if demo else ""), sep="  ")
    console.print(_address_table(settings, http_url(settings)))
    if isinstance(login, FirstRunLink):
        _print_link(console, settings, login)
    else:
        _print_login(console, settings, login)
    if highlights:
        console.print(Text("\nLook at:", style="bold"))
        for line in highlights:
            console.print(Text(f"  {line}"), soft_wrap=True)
    console.print(Text("\nCtrl-C stops the service.\n", style="dim"))


def _address_table(settings: Settings, url: str) -> Table:
    table = Table.grid(padding=(0, 2))
    host = _reachable_host(settings.mqtt_host)
    table.add_row("Dashboard", f"{url}/")
    table.add_row("API, docs", f"{url}/docs")
    table.add_row("Live feed", f"{url.replace('http', 'ws', 1)}/api/v1/ws")
    if settings.broker == "embedded":
        tls = f"   mqtts://{host}:{settings.mqtt_tls_port}" if settings.mqtt_tls_port is not None else ""
        table.add_row("MQTT", f"mqtt://{host}:{settings.mqtt_port}   ws://{host}:{settings.mqtt_ws_port}/mqtt{tls}")
        if is_loopback(settings.mqtt_host):
            table.add_row(
                "", Text("this machine only; set LATCHBOARD_MQTT_HOST=0.0.0.0 to accept devices from the network", style="dim")
            )
    else:
        table.add_row("MQTT", "external broker" if settings.has_broker else "none: another instance serves the devices")
    table.add_row("Data", str(settings.data_dir.resolve()))
    return table


def _print_link(console: Console, settings: Settings, link: FirstRunLink) -> None:
    if not console.is_terminal:
        console.print(Text(f"\nThe one-time link that makes the first login is in {link.path.resolve()}", style="bold yellow"))
        return
    console.print(Text("\nOpen this link to make your login. It works once, for a day:", style="bold yellow"))
    console.print(Text(f"  {link.url}"), soft_wrap=True)
    if settings.public_url is None and is_loopback(settings.http_host):
        port = settings.http_port
        hint = f"  On another computer, first: ssh -L {port}:127.0.0.1:{port} <this machine>"
        console.print(Text(hint, style="dim"), soft_wrap=True)
    console.print(Text("  A try without hardware of your own: make demo", style="dim"))


def _print_login(console: Console, settings: Settings, login: FirstAccountCredentials | None) -> None:
    file = settings.data_dir / FIRST_LOGIN_FILE
    if login is not None and login.password is not None and not console.is_terminal:
        console.print(Text(f"\nThe first login, {login.email} and its password, is in {file.resolve()}", style="bold yellow"))
    elif login is not None and login.password is not None:
        console.print()
        console.print(Text("First login, shown only once", style="bold yellow"), Text(f"(also in {file})", style="dim"))
        console.print(Text(f"  email    {login.email}\n  password {login.password}"))
    elif login is not None:
        console.print(Text(f"\nCreated the account of {login.email} with the password from the settings."))
    elif file.exists():
        console.print(Text(f"\nThe first login is in {file}; delete the file after you have changed the password.", style="dim"))


def _reachable_host(host: str) -> str:
    shown = WILDCARD_HOSTS.get(host, host)
    return f"[{shown}]" if ":" in shown and not shown.startswith("[") else shown
