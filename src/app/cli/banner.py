"""The text on the terminal after the start: addresses, the first login, and three commands to try the service.

A password is printed to a terminal only. A file or a journal is kept and read by others, so there the text names the file
that has the password.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.cli.first_account import FIRST_LOGIN_FILE, FirstLogin
from app.config.settings import Settings

WILDCARD_HOSTS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - compared, not bound
"""Addresses that mean all interfaces → the address by which this machine reaches itself."""


def http_url(settings: Settings) -> str:
    return f"http://{_reachable_host(settings.http_host)}:{settings.http_port}"


def print_banner(settings: Settings, login: FirstLogin | None, *, demo: bool = False, console: Console | None = None) -> None:
    console = console or Console(highlight=False, soft_wrap=True)
    url = http_url(settings)
    console.print()
    console.print(Text("Latchboard is running", style="bold green"), Text("(demo)" if demo else ""), sep="  ")
    console.print(_address_table(settings, url))
    _print_login(console, settings, login)
    if login is not None and login.password is not None:
        console.print(Text("\nRegister a device, run a simulated one, switch it on:", style="bold"))
        for line in quick_start_commands(url, settings.data_dir / FIRST_LOGIN_FILE):
            console.print(Text(line), soft_wrap=True)
    console.print(Text("\nCtrl-C stops the service.\n", style="dim"))


def quick_start_commands(url: str, login_file: Path) -> tuple[str, str, str]:
    """Commands for a shell with curl and sed; the simulator provides the device. They read the password from its file, so that
    it is in no log and in no shell history."""
    json = "-H 'Content-Type: application/json'"
    email, password = (f"""'"$(sed -n 's/^{field} *//p' {login_file})"'""" for field in ("email", "password"))
    login = f"""-d '{{"email":"{email}","password":"{password}"}}'"""
    device = """-d '{"name":"Pump","boardType":"ESP32","appType":"PUMP"}'"""
    command = """-d '{"cmd":"ON","waitSeconds":10}'"""
    auth = '-H "Authorization: Bearer $TOKEN"'
    return (
        f"TOKEN=$(curl -s {url}/api/v1/auth/login {json} {login} | {_extract_json_field('accessToken')})",
        f"DEVICE=$(curl -s {url}/api/v1/devices/register {auth} {json} {device} | {_extract_json_field('deviceId')}); "
        f"curl -s -X POST {url}/api/v1/devices/$DEVICE/credentials {auth}",
        f"{program_name()} simulate --url {url} --token $TOKEN --device $DEVICE --seconds 60 & "
        f"curl -s {url}/api/v1/devices/$DEVICE/command {auth} {json} {command}",
    )


def _extract_json_field(name: str) -> str:
    """A sed command that prints one text field of a JSON response, for shells without jq."""
    return f"""sed 's/.*"{name}": *"\\([^"]*\\)".*/\\1/'"""


def program_name() -> str:
    """The command that started this program, relative to the current directory when it is below it."""
    path = Path(sys.argv[0])
    if path.name != "latchboard":
        return "latchboard"
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _address_table(settings: Settings, url: str) -> Table:
    table = Table.grid(padding=(0, 2))
    host = _reachable_host(settings.mqtt_host)
    table.add_row("Dashboard", f"{url}/")
    table.add_row("API, docs", f"{url}/docs")
    table.add_row("Live feed", f"{url.replace('http', 'ws', 1)}/api/v1/ws")
    if settings.broker == "embedded":
        tls = f"   mqtts://{host}:{settings.mqtt_tls_port}" if settings.mqtt_tls_port is not None else ""
        table.add_row("MQTT", f"mqtt://{host}:{settings.mqtt_port}   ws://{host}:{settings.mqtt_ws_port}/mqtt{tls}")
        if host in ("127.0.0.1", "localhost", "[::1]") and settings.mqtt_host not in WILDCARD_HOSTS:
            table.add_row(
                "", Text("this machine only; set LATCHBOARD_MQTT_HOST=0.0.0.0 to accept devices from the network", style="dim")
            )
    else:
        table.add_row("MQTT", "external broker" if settings.has_broker else "none: another instance serves the devices")
    table.add_row("Data", str(settings.data_dir.resolve()))
    return table


def _print_login(console: Console, settings: Settings, login: FirstLogin | None) -> None:
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
